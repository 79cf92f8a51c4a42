//! The simulated machine with tenants of several priorities, each with files of its own on an ext4.

use plimsoll_core::*;
use plimsoll_sim::fs::ext4::{Ext4, Ext4Options};
use plimsoll_sim::{MachineConfig, Process, Simulation};
use std::cell::RefCell;
use std::rc::Rc;

pub const DISK: &str = "hdd.wd-aakx";
const PAGE: u64 = 4096;
/// Files that are written, and that are read: the latter are larger than memory.
const WRITTEN_BYTES: u64 = 1 << 30;
const READ_BYTES: u64 = 30 << 30;
/// Of a call that overwrites.
const OVERWRITE_BYTES: u64 = 64 << 10;

/// What each thread of a tenant does in a file of its own, again and again.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Overwrites a page anywhere and waits until it is durable.
    WriteAndSync,
    /// Appends so many bytes, and never waits for them.
    Append(u64),
    /// Reads so many bytes one after the other.
    Read(u64),
    /// Overwrites the same 4 MiB.
    Overwrite,
}

/// A tenant's priority and load, and its number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    pub priority: Priority,
    pub load: Load,
    pub threads: usize,
    /// Seconds after the files were made.
    pub start: u64,
}

async fn turn(process: &Process, file: &plimsoll_sim::File, load: Load, number: u64) -> u64 {
    match load {
        Load::WriteAndSync => {
            file.write(process.random_below(WRITTEN_BYTES / PAGE) * PAGE, PAGE).await;
            file.fsync().await;
            1
        }
        Load::Append(bytes) => {
            file.append(bytes).await;
            bytes
        }
        Load::Overwrite => {
            file.write(number * OVERWRITE_BYTES % (4 << 20), OVERWRITE_BYTES).await;
            OVERWRITE_BYTES
        }
        Load::Read(bytes) => file.read(number * bytes % READ_BYTES, bytes).await,
    }
}

/// What each tenant got done between `from` and `to` seconds after its files were made.
pub fn run(scheduler: &str, mut config: MachineConfig, tenants: &[Tenant], (from, to): (u64, u64)) -> Vec<f64> {
    let device = plimsoll_devices::build(DISK, config.seed).unwrap();
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let mut open = |name: &str, allocation| tree.open(AccountId::ROOT, name, AccountKind::Session, allocation).unwrap();
    config.accounts.flusher = open("flusher", Allocation::default());
    config.accounts.journal = open("journal", Allocation::default());
    let sessions: Vec<_> = tenants
        .iter()
        .enumerate()
        .map(|(number, tenant)| {
            open(&number.to_string(), Allocation { priority: tenant.priority, ..Allocation::default() })
        })
        .collect();
    let file_system = Ext4::new(profile.capacity_bytes, Ext4Options::ORDERED);
    let scheduler = plimsoll_schedulers::build(scheduler, &profile).unwrap();
    let mut simulation = Simulation::new(config.clone(), scheduler, device, file_system, &tree);
    let all: Vec<Tenant> = tenants.to_vec();
    simulation.machine().spawn("prepare", config.accounts.flusher, |process| async move {
        for (number, tenant) in all.iter().enumerate() {
            process.mkdir(&format!("/{number}")).await.unwrap();
            for thread in 0..tenant.threads {
                let file = process.create(&format!("/{number}/{thread}")).await.unwrap();
                match tenant.load {
                    Load::WriteAndSync => file.fill(WRITTEN_BYTES).await,
                    Load::Read(_) => file.fill(READ_BYTES).await,
                    Load::Append(_) | Load::Overwrite => {}
                }
            }
        }
        process.sync().await;
        process.sync().await;
    });
    simulation.run_to_completion();
    let start = simulation.machine().now();
    let (first, last) = (start + Span::from_secs(from), start + Span::from_secs(to));
    let done = Rc::new(RefCell::new(vec![0.0; tenants.len()]));
    for (number, tenant) in tenants.iter().enumerate() {
        for thread in 0..tenant.threads {
            let (done, load, begins) = (done.clone(), tenant.load, start + Span::from_secs(tenant.start));
            simulation.machine().spawn(&format!("{number}"), sessions[number], move |process| async move {
                let file = process.open(&format!("/{number}/{thread}")).await.unwrap();
                process.sleep_until(begins).await;
                for turn_number in 0.. {
                    let amount = turn(&process, &file, load, turn_number).await;
                    let is_counted = process.now() >= first && process.now() < last;
                    done.borrow_mut()[number] += if is_counted { amount as f64 } else { 0.0 };
                }
            });
        }
    }
    simulation.run_until(last);
    drop(simulation);
    done.take()
}

/// Mean of how far each is from its ideal share, 8 to 1 for levels 0 to 7, as part of that.
pub fn deviation(done: &[f64], tenants: &[Tenant]) -> f64 {
    let weight = |tenant: &Tenant| match tenant.priority {
        Priority::Level(level) => f64::from(8 - level),
        _ => 0.0,
    };
    let (sum, weights): (f64, f64) = (done.iter().sum(), tenants.iter().map(weight).sum());
    let deviations = done.iter().zip(tenants).map(|(done, tenant)| (done / sum * weights / weight(tenant) - 1.0).abs());
    deviations.sum::<f64>() / done.len() as f64
}

/// A tenant at each level from 0 to 7.
pub fn levels(load: Load, threads: usize) -> Vec<Tenant> {
    (0..8).map(|level| Tenant { priority: Priority::Level(level), load, threads, start: 0 }).collect()
}
