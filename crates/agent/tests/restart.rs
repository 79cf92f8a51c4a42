//! An agent that is started again. The test is alone in its process and counts the process's listeners.

mod support;

use plimsoll_core::{Allocation, Rate};
use plimsoll_serve::attach::FileSystemKind;
use support::lease::unless_a_lease_runs_out;
use support::{Rig, go};

/// Tenants of an earlier agent have no account: the number that one of them had belongs to another tenant now.
///
/// It writes (its words), and creates a file (its listener).
///
/// Broken on purpose and seen red: listeners that come back keep their numbers.
/// Promise: gates-account-number, gates-reused-number.
#[test]
fn a_tenant_of_an_earlier_agent_does_not_wait_for_the_present_one_with_its_number() {
    unless_a_lease_runs_out(|| {
        let limited = Allocation { limit: Some(Rate::BytesPerSecond(4_096.0)), ..Allocation::default() };
        let Some(mut rig) = Rig::new(FileSystemKind::Ext4, "split_token") else { return };
        let before = rig.join("before", Allocation::default());
        let mut child = rig.start(
            &before,
            &format!("exec dd if=/dev/zero of={} bs=4k count=4 status=none", rig.path("new").display()),
        );
        rig.close_station();
        assert_eq!(listeners(), 0);
        rig.open_station();
        rig.wait_until("its listener", || listeners() == 1);
        let now = rig.join("now", limited);
        assert_eq!(now.bit, before.bit);
        let path = rig.path("now");
        let script = format!("exec dd if=/dev/zero of={} bs=64k count=1024 status=none", path.display());
        let mut writer = rig.start(&now, &script);
        go(&mut writer);
        rig.wait_until("the gate of who has written too much", || rig.is_closed(&now));
        let written = || std::fs::metadata(&path).unwrap().len();
        // The write that had passed the gate before it closed ends first; the debt takes minutes to pay.
        let last = std::cell::Cell::new(0);
        let a_while = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        rig.wait_until("the end of its last write", || {
            let _ = rustix::thread::nanosleep(&a_while);
            last.replace(written()) == written()
        });
        let before = written();
        go(&mut child);
        rig.wait_until("the end of who is nobody now", || {
            child.try_wait().unwrap().is_some_and(|status| status.success())
        });
        assert_eq!(written(), before, "no process waited for the tenant beyond its limit");
        writer.kill().unwrap();
        writer.wait().unwrap();
    });
}

/// Listeners that this process holds.
fn listeners() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("anon_inode:seccomp notify")))
        .count()
}
