//! What the tags take of memory: the sets of causes that dirty pages carry.
//!
//! Planted, and red: 64 bytes a dirty page, as the paper's objects of about 55 take (section 4.3).

mod common;

use common::DISK;
use plimsoll_core::*;
use plimsoll_sim::cache::PAGE_BYTES;
use plimsoll_sim::fs::ext4::{Ext4, Ext4Options};
use plimsoll_sim::{Bytes, MachineConfig, Simulation};

const ACCOUNTS: u32 = 1_000;
const MEMORY: u64 = 1 << 30;

/// A thousand accounts of which each makes files and fills them on one ext4, so that every inode table block and bitmap
/// has several causes. The memory of tags at the most, as part of all memory.
fn part_of_memory(dirty_ratio: u32) -> f64 {
    let device = plimsoll_devices::build(DISK, 1).unwrap();
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let mut open = |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
    let defaults = MachineConfig::default();
    let dirty_background_ratio = dirty_ratio * defaults.dirty_background_ratio / defaults.dirty_ratio;
    let mut config = MachineConfig { memory_bytes: MEMORY, dirty_ratio, dirty_background_ratio, ..defaults };
    (config.accounts.flusher, config.accounts.journal) = (open("flusher"), open("journal"));
    let sessions: Vec<_> = (0..ACCOUNTS).map(|number| open(&number.to_string())).collect();
    let scheduler = plimsoll_schedulers::build("noop", &profile).unwrap();
    let files = Ext4::new(profile.capacity_bytes, Ext4Options::ORDERED);
    let mut simulation = Simulation::new(config, scheduler, device, files, &tree);
    for (number, session) in sessions.into_iter().enumerate() {
        simulation.machine().spawn(&number.to_string(), session, move |process| async move {
            for file in 0.. {
                let file = process.create(&format!("/{number}-{file}")).await.unwrap();
                for _ in 0..16 {
                    file.append(64.kib()).await;
                }
            }
        });
    }
    simulation.run_until(common::at(30.0));
    simulation.machine().cache.borrow().tag_bytes_max() as f64 / MEMORY as f64
}

/// Promise: sim-tag-memory.
#[test]
fn tags_of_a_thousand_accounts_take_little_memory() {
    for (dirty_ratio, part_max) in [(MachineConfig::default().dirty_ratio, 0.003), (50, 0.006)] {
        let part = part_of_memory(dirty_ratio);
        let pages = f64::from(dirty_ratio) / 100.0 * size_of::<u32>() as f64 / PAGE_BYTES as f64;
        assert!((pages..=part_max).contains(&part), "{part} at {dirty_ratio} %, the pages alone {pages}");
    }
}
