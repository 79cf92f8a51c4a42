//! An observed disk where no BPF program tells causes: tenants are charged for what their processes submit.
//!
//! Planted breaks that turned a test red: children that do not inherit; reads that are not told; requests of submitters
//! that do not ask the gates; a process that has ended stays a task.

mod support;

use plimsoll_core::{Allocation, Rate};
use plimsoll_gates::GateClass;
use plimsoll_serve::attach::FileSystemKind;
use support::lease::unless_a_lease_runs_out;
use support::{POOL, Rig, go};

const MIB: u64 = 1 << 20;
/// MiB of the tenant that will be held: so many that a machine busy with other work holds it before the end.
const LONG_MIB: u64 = 512;
/// What programs that start may read of themselves, from whatever disk.
const PROGRAMS_BYTES: u64 = 8 * MIB;
const KINDS: [FileSystemKind; 2] = [FileSystemKind::Ext4, FileSystemKind::Xfs];

fn limited() -> Allocation {
    Allocation { limit: Some(Rate::BytesPerSecond(65_536.0)), ..Allocation::default() }
}

fn write(rig: &Rig, name: &str, mib: u64) -> String {
    format!("dd if=/dev/zero of={} bs=64k count={} status=none", rig.path(name).display(), mib * 16)
}

/// The shell stays when it has done it: what its last process moves just before its end is not seen any more.
fn until_told(script: &str) -> String {
    format!("{script}; read end")
}

/// Promise: tenants-no-bpf.
#[test]
fn what_children_move_is_charged_to_the_tenant_once_and_what_others_move_is_not() {
    for kind in KINDS {
        let Some(rig) = Rig::observing_submitters(kind, "noop") else { return };
        assert!(!rig.station().coverage().has_causes);
        let a = rig.join("a", Allocation::default());
        let script =
            format!("{{ ({}; {}) & wait; {}; }}", write(&rig, "x", 16), write(&rig, "y", 16), write(&rig, "z", 16));
        let mut writer = rig.start(&a, &until_told(&script));
        go(&mut writer);
        rig.cold_file("others", 64);
        rig.wait_until("all that was written", || rig.bytes("a") >= 48 * MIB);
        go(&mut writer);
        assert!(writer.wait().unwrap().success());
        let moved = rig.bytes("a");
        assert!(moved <= 48 * MIB + PROGRAMS_BYTES, "{kind:?}: {moved} bytes");
        rig.station().leave_when_gone(a);
        rig.wait_until("the end of its session", || rig.accounts() == [POOL, "pool/others#1"]);
    }
}

/// Promise: tenants-no-bpf.
#[test]
fn a_tenant_that_writes_beyond_its_limit_waits_at_its_gate_cached_or_direct() {
    unless_a_lease_runs_out(|| {
        for (kind, how) in KINDS.into_iter().flat_map(|kind| [(kind, ""), (kind, " oflag=direct")]) {
            let Some(rig) = Rig::observing_submitters(kind, "split_token") else { return };
            let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", limited()));
            let mut writer = rig.start(&b, &until_told(&format!("{}{how}", write(&rig, "b", LONG_MIB))));
            go(&mut writer);
            rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
            assert!(rig.start_flushing(&a, "a").wait().unwrap().success());
            // At its limit the rest would take two hours.
            assert!(writer.try_wait().unwrap().is_none(), "{kind:?}{how}: a tenant beyond its limit still waits");
            rig.engine.change_account(&format!("{POOL}/b#3"), Allocation::default()).unwrap();
            rig.wait_until("the rest", || rig.bytes("b") >= LONG_MIB * MIB);
            go(&mut writer);
            assert!(writer.wait().unwrap().success());
            let moved = rig.bytes("b");
            assert!(moved <= LONG_MIB * MIB + PROGRAMS_BYTES, "{kind:?}{how}: {moved} bytes");
        }
    });
}

/// Promise: tenants-no-bpf.
#[test]
fn an_account_that_reads_beyond_its_limit_waits_until_it_has_paid() {
    unless_a_lease_runs_out(|| {
        let Some(rig) = Rig::observing_submitters(FileSystemKind::Ext4, "split_token") else { return };
        rig.cold_file("cold", LONG_MIB);
        let b = rig.join("b", limited());
        let mut reader =
            rig.start(&b, &format!("dd if={} of=/dev/null bs=64k status=none", rig.path("cold").display()));
        go(&mut reader);
        rig.wait_until("the gate of who has read too much", || rig.word(&b, GateClass::Read) != 0);
        assert!(reader.try_wait().unwrap().is_none(), "a tenant beyond its limit still waits");
        rig.engine.change_account(&format!("{POOL}/b#2"), Allocation::default()).unwrap();
        assert!(reader.wait().unwrap().success());
        rig.wait_until("the gate of who has no limit", || rig.word(&b, GateClass::Read) == 0);
    });
}
