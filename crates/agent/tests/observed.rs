//! An observed disk: its requests are seen, its tenants are held at their gates.
//!
//! Planted breaks that turned a test red: requests that are seen and not handed to the engine; I/O of no tenant
//! charged to a tenant; direct writes that do not ask the gates; words of readers that never close; words of readers
//! that never open again.

mod support;

use plimsoll_core::{Allocation, Rate};
use plimsoll_gates::GateClass;
use plimsoll_serve::attach::FileSystemKind;
use std::process::Child;
use support::lease::unless_a_lease_runs_out;
use support::{POOL, Rig, go};

const MIB: u64 = 1 << 20;
/// MiB of the tenant that will be held: so many that a machine busy with other work holds it before the end.
const LONG_MIB: u64 = 512;
/// Bytes a second of a tenant with a limit.
const LIMIT: f64 = 65_536.0;
const KINDS: [FileSystemKind; 2] = [FileSystemKind::Ext4, FileSystemKind::Xfs];

fn limited() -> Allocation {
    limited_to(LIMIT)
}

fn limited_to(bytes_per_second: f64) -> Allocation {
    Allocation { limit: Some(Rate::BytesPerSecond(bytes_per_second)), ..Allocation::default() }
}

/// A script that writes so many MiB.
fn write(rig: &Rig, name: &str, mib: u64) -> String {
    format!("exec dd if=/dev/zero of={} bs=64k count={} status=none", rig.path(name).display(), mib * 16)
}

fn ends_well(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// Promise: tenants-observed.
#[test]
fn what_is_seen_is_charged_to_its_causes_and_to_the_others() {
    for kind in KINDS {
        let Some(rig) = Rig::observing(kind, "noop") else { return };
        let a = rig.join("a", Allocation::default());
        assert_eq!(rig.accounts(), [POOL, "pool/others#1", "pool/a#2"]);
        let mut writer = rig.start(&a, &write(&rig, "a", 32));
        rig.sync();
        let before = [rig.bytes("a"), rig.bytes("others")];
        go(&mut writer);
        ends_well(writer);
        rig.cold_file("others", 8);
        rig.sync();
        rig.wait_until("all that was written", || rig.bytes("a") >= 32 * MIB && rig.bytes("others") >= 8 * MIB);
        let moved = [rig.bytes("a") - before[0], rig.bytes("others") - before[1]];
        // The others sync, and so force the journal.
        let metadata_max = 4 * MIB;
        assert!((32 * MIB..32 * MIB + metadata_max).contains(&moved[0]), "{kind:?}: {moved:?}");
        assert!((8 * MIB..8 * MIB + metadata_max).contains(&moved[1]), "{kind:?}: {moved:?}");
        rig.station().leave(&a).unwrap();
        rig.wait_until("the end of its session", || rig.accounts() == [POOL, "pool/others#1"]);
    }
}

/// Promise: tenants-observed.
#[test]
fn a_tenant_beyond_its_limit_waits_at_its_gate_and_no_other_does() {
    unless_a_lease_runs_out(|| {
        for kind in KINDS {
            let Some(rig) = Rig::observing(kind, "split_token") else { return };
            let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", limited()));
            let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
            go(&mut writer);
            rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
            let syncer = rig.start_flushing(&a, "a");
            ends_well(syncer);
            // At its limit the rest would take two hours.
            assert!(writer.try_wait().unwrap().is_none(), "{kind:?}: a tenant beyond its limit still waits");
            rig.sync();
            let written = rig.bytes("b");
            assert!(written < LONG_MIB / 2 * MIB, "{kind:?}: {written} bytes went through");
            rig.engine.change_account(&format!("{POOL}/b#3"), Allocation::default()).unwrap();
            ends_well(writer);
            rig.sync();
            rig.wait_until("the rest", || rig.bytes("b") >= LONG_MIB * MIB);
        }
    });
}

/// What goes past the page cache dirties no page.
#[test]
fn a_direct_writer_beyond_its_limit_waits_too() {
    unless_a_lease_runs_out(|| {
        for kind in KINDS {
            let Some(rig) = Rig::observing(kind, "split_token") else { return };
            let b = rig.join("b", limited());
            let mut writer = rig.start(&b, &format!("{} oflag=direct", write(&rig, "b", LONG_MIB)));
            go(&mut writer);
            rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
            assert!(rig.bytes("b") < LONG_MIB / 2 * MIB, "{kind:?}");
            rig.engine.change_account(&format!("{POOL}/b#2"), Allocation::default()).unwrap();
            ends_well(writer);
        }
    });
}

/// An observed disk holds no read back: a tenant beyond its limit waits before its next read.
/// Promise: tenants-observed.
#[test]
fn a_reader_beyond_its_limit_waits_until_it_has_paid() {
    unless_a_lease_runs_out(|| {
        for kind in KINDS {
            let Some(rig) = Rig::observing(kind, "split_token") else { return };
            rig.cold_file("cold", LONG_MIB);
            let b = rig.join("b", limited());
            let script = format!("exec dd if={} of=/dev/null bs=64k status=none", rig.path("cold").display());
            let mut reader = rig.start(&b, &script);
            go(&mut reader);
            rig.wait_until("the gate of who has read too much", || rig.word(&b, GateClass::Read) != 0);
            let read = rig.bytes("b");
            assert!(read < LONG_MIB / 2 * MIB, "{kind:?}: {read} bytes went through");
            assert!(reader.try_wait().unwrap().is_none(), "{kind:?}: a tenant beyond its limit still waits");
            rig.engine.change_account(&format!("{POOL}/b#2"), Allocation::default()).unwrap();
            ends_well(reader);
            rig.wait_until("the gate of who has no limit", || rig.word(&b, GateClass::Read) == 0);
        }
    });
}

/// Its files have numbers of devices that are no disk's. Of a call by path it is not asked where it leads, of one by
/// descriptor it is.
///
/// Broken on purpose and seen red: the block device's own number alone.
/// Promise: tenants-observed.
#[test]
fn calls_by_descriptor_wait_on_btrfs_too() {
    unless_a_lease_runs_out(|| {
        let Some(rig) = Rig::observing_btrfs("split_token") else { return };
        let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", limited()));
        let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
        go(&mut writer);
        rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
        for (name, command, number) in
            [("synced", "sync", libc::SYS_fsync), ("cut", "truncate -c -s 1", libc::SYS_ftruncate)]
        {
            // However long this takes, the debt is not paid meanwhile.
            rig.engine.change_account(&rig.session("b"), limited_to(1.0)).unwrap();
            let path = rig.path(name);
            std::fs::write(&path, "two").unwrap();
            let mut child = rig.start(&b, &format!("exec {command} {}", path.display()));
            go(&mut child);
            rig.wait_until("the call", || call_of(child.id()) == Some(number) || child.try_wait().unwrap().is_some());
            // Earlier data is on the disk, and others' calls have gone by.
            ends_well(rig.start_flushing(&a, "a"));
            rig.sync();
            assert!(child.try_wait().unwrap().is_none(), "{command}: a tenant beyond its limit does not wait");
            rig.engine.change_account(&rig.session("b"), Allocation::default()).unwrap();
            ends_well(child);
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
    });
}

/// The number of the system call that a process is in.
fn call_of(process: u32) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/syscall")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[test]
fn a_station_that_closes_lets_all_calls_go_and_leaves_the_disk_alone() {
    let Some(mut rig) = Rig::observing(FileSystemKind::Ext4, "split_token") else { return };
    let b = rig.join("b", limited());
    let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
    go(&mut writer);
    rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
    rig.close_station();
    ends_well(writer);
    assert_eq!(std::fs::metadata(rig.path("b")).unwrap().len(), LONG_MIB * MIB);
    assert_eq!(rig.engine.status().unwrap().requests_under_way, 0);
}
