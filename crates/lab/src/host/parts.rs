//! Parts of a simulated machine, by their names in a scenario.

use plimsoll_core::{DeviceProfile, Scheduler};
use plimsoll_sim::cache::PAGE_BYTES;
use plimsoll_sim::fs::FileSystem;
use plimsoll_sim::fs::ext4::{self, Ext4};
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::fs::xfs::{self, Xfs};
use std::rc::Rc;

/// File systems of the simulator.
pub const FILE_SYSTEMS: &[&str] = &["raw", "ext4", "ext4-dioread-lock", "xfs"];

/// Tells the seeds of the machines of one run apart: 2^64 divided by the golden ratio, made odd.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The seed of a run's `number`-th machine; that of the first is the run's.
pub(super) fn seed_of(run: u64, number: usize) -> u64 {
    run.wrapping_add(SEED_STEP.wrapping_mul(number as u64))
}

pub(super) fn scheduler(name: &str, device: &DeviceProfile) -> Box<dyn Scheduler> {
    plimsoll_schedulers::build(name, device).expect("chosen by its name")
}

pub(super) fn file_system(name: &str, bytes: u64, journal_bytes: Option<u64>) -> Rc<dyn FileSystem> {
    let journal_blocks = journal_bytes.map(|bytes| bytes / PAGE_BYTES);
    match name {
        "raw" => Rc::new(Raw::new(bytes)),
        "ext4" => Ext4::new(bytes, ext4::Ext4Options { journal_blocks, ..ext4::Ext4Options::NOLOCK }),
        "ext4-dioread-lock" => Ext4::new(bytes, ext4::Ext4Options { journal_blocks, ..ext4::Ext4Options::ORDERED }),
        "xfs" => Xfs::new(bytes, xfs::XfsOptions::default()),
        other => unreachable!("{other} is not among FILE_SYSTEMS"),
    }
}
