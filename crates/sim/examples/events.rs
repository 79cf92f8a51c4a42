//! How many events the simulator takes in a second of a core's time (not of the clock's: the machine may be busy). An
//! event is a task that runs, or something that the trace has: a call's entry or return, a stretch of pages dirtied or
//! freed, a request added, dispatched or completed.
//!
//! `events` runs every load; `events NUMBER [SHARE]` runs one of them, for this share of its simulated time, as a
//! profiler needs it.

use plimsoll_core::*;
use plimsoll_sim::block::{Bio, BioEnd};
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::{Bytes, Machine, MachineConfig, Simulation};
use std::rc::Rc;

const TENANTS: u64 = 32;
const PLACES: u64 = 1 << 20;

fn simulation(device: &str) -> (Simulation, AccountId) {
    let device = plimsoll_devices::build(device, 1).expect("a model of this name");
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let session = tree.open(AccountId::ROOT, "s", AccountKind::Session, Allocation::default()).expect("the first");
    let scheduler = plimsoll_schedulers::build("noop", &profile).expect("noop");
    let file_system = Rc::new(Raw::new(profile.capacity_bytes));
    (Simulation::new(MachineConfig::default(), scheduler, device, file_system, &tree), session)
}

/// Random reads of 4 KiB past everything but the block layer.
fn block_readers(machine: &Machine, session: AccountId) {
    for _ in 0..TENANTS {
        machine.spawn("reader", session, move |process| async move {
            loop {
                let bio = Bio {
                    session,
                    causes: CauseSet::of(session),
                    class: Class::UNCLASSIFIED,
                    operation: Operation::Read,
                    offset: process.random_below(PLACES) * 4.kib(),
                    length: 4.kib() as u32,
                    is_sync: true,
                    is_forced: false,
                    file: None,
                    end: BioEnd::Nothing,
                };
                process.machine().perform(bio).await;
            }
        });
    }
}

/// Through the whole stack: random reads and writes, appends with fsync, overwriting in memory.
fn processes(machine: &Machine, session: AccountId) {
    for number in 0..TENANTS {
        machine.spawn(&format!("process {number}"), session, move |process| async move {
            let file = process.create(&format!("/{number}")).await.expect("a new name");
            file.allocate(0, 1.gib()).await;
            loop {
                let offset = process.random_below(1.gib() / 4.kib()) * 4.kib();
                match number % 4 {
                    0 => drop(file.read(offset, 4.kib()).await),
                    1 => file.write(offset, 4.kib()).await,
                    2 => {
                        file.append(4.kib()).await;
                        file.fsync().await;
                    }
                    _ => file.write(offset % 4.mib(), 4.kib()).await,
                }
            }
        });
    }
}

/// Overwriting in memory: calls and pages, no I/O to speak of.
fn memory_writers(machine: &Machine, session: AccountId) {
    for number in 0..8 {
        machine.spawn("memory writer", session, move |process| async move {
            let file = process.create(&format!("/{number}")).await.expect("a new name");
            loop {
                file.write(process.random_below(1024) * 4.kib(), 4.kib()).await;
            }
        });
    }
}

/// Seconds that this process, which has one thread, has had of a core; from a file, as the call for it cannot be made
/// under valgrind.
fn cpu_seconds() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").expect("a kernel with CONFIG_SCHED_INFO");
    let nanoseconds = schedstat.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    nanoseconds.expect("the first number: nanoseconds on a core") as f64 / 1e9
}

type Load = fn(&Machine, AccountId);

fn main() {
    let loads: [(&str, &str, f64, Load); 4] = [
        ("block layer, 32 random readers", "nvme", 4.0, block_readers),
        ("block layer, 32 random readers", "hdd.wd-aakx", 4000.0, block_readers),
        ("whole stack, 32 processes", "nvme", 4.0, processes),
        ("whole stack, 8 writers in memory", "nvme", 1.0, memory_writers),
    ];
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next().map(|number| number.parse::<usize>().expect("a load's number, from 0"));
    let share = arguments.next().map_or(1.0, |share| share.parse::<f64>().expect("a share of the simulated time"));
    for (number, (name, device, seconds, load)) in loads.into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let seconds = seconds * share;
        let (mut simulation, session) = simulation(device);
        load(simulation.machine(), session);
        let started = cpu_seconds();
        simulation.run_until(Time::ZERO + Span::from_secs_f64(seconds));
        let took = cpu_seconds() - started;
        let events = simulation.events() as f64;
        println!(
            "{name:34} {device:12} {:6.2} M events/s, {:7.1} simulated seconds a second, trace {:016x}",
            events / took / 1e6,
            seconds / took,
            simulation.trace_hash()
        );
    }
}
