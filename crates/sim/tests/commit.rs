//! A scheduler may wish that the journal commits: it does so at once, with no caller waiting, and without the data of
//! calls that only overwrite.
//!
//! Planted, and red: the wish is ignored (ext4, then XFS); it has the next transaction committed too.

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_sim::fs::ext4::{Ext4, Ext4Options};
use plimsoll_sim::fs::xfs::{self, Xfs};
use plimsoll_sim::fs::{FileSystem, raw::Raw};
use plimsoll_sim::{Bytes, MachineConfig};
use std::rc::Rc;

const CAPACITY_BYTES: u64 = 500_000_000_000;

/// A file is made and written; at second 40, when all of it is on the device, a page of it is overwritten. The wish
/// comes at `wish_at`. Answers with the writes since second 39: those to the journal, and others.
fn writes(file_system: Rc<dyn FileSystem>, wish_at: Time, until: Time) -> (usize, usize) {
    let (mut probe, seen) = Probe::new();
    probe.commit_at = wish_at;
    let device = plimsoll_devices::build(DISK, 1).unwrap();
    let config = MachineConfig { memory_bytes: 1 << 30, ..MachineConfig::default() };
    let (mut simulation, sessions) = machine_on(file_system, config, Box::new(probe), device, 1);
    simulation.machine().spawn("writer", sessions[0], |process| async move {
        let file = process.create("/file").await.unwrap();
        file.append(64.kib()).await;
        file.fsync().await;
        process.sync().await;
        process.sleep_until(at(40.0)).await;
        file.write(8.kib(), 4.kib()).await;
    });
    simulation.run_until(until);
    let late = seen.requests().into_iter().filter(|request| request.arrived >= at(39.0));
    let (journal, others): (Vec<_>, Vec<_>) =
        late.filter(|request| request.operation.is_write()).partition(|request| request.class == Class::JOURNAL);
    (journal.len(), others.len())
}

/// Promise: sim-commit-wish.
#[test]
fn a_wish_commits_what_has_changed_and_no_data() {
    let systems: [fn() -> Rc<dyn FileSystem>; 2] =
        [|| Ext4::new(CAPACITY_BYTES, Ext4Options::ORDERED), || Xfs::new(CAPACITY_BYTES, xfs::XfsOptions::default())];
    for file_system in systems {
        let name = file_system().name();
        assert_eq!(writes(file_system(), Time::MAX, at(41.0)), (0, 0), "{name}: nobody wants it");
        let (journal, others) = writes(file_system(), at(40.1), at(41.0));
        assert!(journal > 0 && others == 0, "{name}: {journal} and {others}");
        assert_eq!(writes(file_system(), at(39.9), at(41.0)), (0, 0), "{name}: nothing had changed");
    }
    assert_eq!(writes(Rc::new(Raw::new(CAPACITY_BYTES)), at(40.1), at(41.0)), (0, 0), "no journal");
}
