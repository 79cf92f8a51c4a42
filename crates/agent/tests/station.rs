//! Real processes on real file systems, each known by what it does, each held when the scheduler says so.

mod support;

use plimsoll_agent::TenantState;
use plimsoll_core::{Allocation, Rate};
use plimsoll_gates::GateClass;
use plimsoll_serve::attach::FileSystemKind;
use support::lease::unless_a_lease_runs_out;
use support::{POOL, Rig, go};

const MIB: u64 = 1 << 20;
/// MiB of the tenant that will be held: so many that a machine busy with other work holds it before the end.
const LONG_MIB: u64 = 512;
/// Bytes a second of a tenant with a limit.
const LIMIT: f64 = 65_536.0;
const KINDS: [FileSystemKind; 2] = [FileSystemKind::Ext4, FileSystemKind::Xfs];

fn limited(bytes_per_second: f64) -> Allocation {
    Allocation { limit: Some(Rate::BytesPerSecond(bytes_per_second)), ..Allocation::default() }
}

/// A script that writes so many MiB.
fn write(rig: &Rig, name: &str, mib: u64) -> String {
    format!("exec dd if=/dev/zero of={} bs=64k count={} status=none", rig.path(name).display(), mib * 16)
}

#[test]
fn what_a_tenant_wrote_is_its_own_in_every_writeback() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "noop") else { return };
        let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", Allocation::default()));
        let mut children = [rig.start(&a, &write(&rig, "a", 32)), rig.start(&b, &write(&rig, "b", 8))];
        rig.sync();
        let before = [rig.bytes("a"), rig.bytes("b")];
        children.iter_mut().for_each(go);
        children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
        rig.sync();
        let moved = [rig.bytes("a") - before[0], rig.bytes("b") - before[1]];
        let metadata_max = MIB;
        assert!((32 * MIB..32 * MIB + metadata_max).contains(&moved[0]), "{kind:?}: {moved:?}");
        assert!((8 * MIB..8 * MIB + metadata_max).contains(&moved[1]), "{kind:?}: {moved:?}");
        rig.station().leave(&a).unwrap();
        rig.station().leave_when_gone(b);
        rig.wait_until("the end of who has no process left", || rig.accounts() == [POOL, "pool/mount#1"]);
    }
}

/// Broken on purpose and seen red: the tasks of a tenant that has left stay registered until its bit is used again.
#[test]
fn an_account_that_leaves_while_its_tasks_live_leaves_their_places_to_the_next() {
    // More than are taken out in one turn, and twice that is more than there is room for.
    const TASKS: usize = 81;
    const TASKS_MAX: u32 = 120;
    let Some(mut rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    rig.close_station();
    rig.open_station_for(TASKS_MAX);
    let tenants = ["a", "b"].map(|name| rig.join(name, Allocation::default()));
    let mut children = tenants.map(|tenant| {
        // They end when their input does.
        let script = format!("exec 3<&0; for i in $(seq {}); do cat <&3 & done; wait", TASKS - 1);
        let mut child = rig.start(&tenant, &script);
        go(&mut child);
        let is_mine = |tenants: &[TenantState]| tenants.iter().any(|tenant| tenant.tasks.len() == TASKS);
        rig.station().leave_when_gone(tenant.clone());
        rig.wait_until("a shell and what it started", || is_mine(&rig.station().tenants().unwrap()));
        rig.station().leave(&tenant).unwrap();
        child
    });
    assert_eq!(rig.station().losses().registrations, 0);
    for child in &mut children {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[test]
fn a_tenant_beyond_its_limit_waits_at_its_gate_and_no_other_does() {
    unless_a_lease_runs_out(|| {
        for kind in KINDS {
            let Some(rig) = Rig::new(kind, "split_token") else { return };
            let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", limited(LIMIT)));
            let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
            go(&mut writer);
            rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
            let mut syncer = rig.start_flushing(&a, "a");
            assert!(syncer.wait().unwrap().success());
            // At its limit the rest would take two hours.
            assert!(writer.try_wait().unwrap().is_none(), "{kind:?}: a tenant beyond its limit still waits");
            rig.sync();
            let written = rig.bytes("b");
            assert!(written < LONG_MIB / 2 * MIB, "{kind:?}: {written} bytes went through");
            rig.engine.change_account(&format!("{POOL}/b#3"), Allocation::default()).unwrap();
            assert!(writer.wait().unwrap().success());
            rig.sync();
            assert!(rig.bytes("b") >= LONG_MIB * MIB, "{kind:?}: without a limit it goes on");
        }
    });
}

/// More threads than the loop device has places, each of which would wait for seconds with its read.
/// Promise: tenants-held-threads.
#[test]
fn hundreds_of_held_readers_stall_no_other() {
    unless_a_lease_runs_out(|| {
        const READERS: usize = 200;
        for (kind, flags) in [(FileSystemKind::Ext4, ""), (FileSystemKind::Xfs, "iflag=direct")] {
            let Some(rig) = Rig::new(kind, "split_token") else { return };
            rig.cold_file("of b", READERS as u64);
            rig.cold_file("of a", 1);
            let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", limited(1000.0)));
            let read = |name: &str, skip: &str, count: u32| {
                let path = rig.path(name);
                format!("dd if='{}' bs=4k skip={skip} count={count} status=none {flags}", path.display())
            };
            let each = read("of b", "$((i * 256))", 64);
            // Opened once: an open that may create waits at its gate.
            let crowd = format!("exec > /dev/null; for i in $(seq 0 {}); do {each} & done; wait", READERS - 1);
            let mut readers = rig.start(&b, &crowd);
            go(&mut readers);
            rig.wait_until("the gate of who has too many reads waiting", || rig.word(&b, GateClass::Read) != 0);
            let mut others =
                [rig.start_flushing(&a, "flushed"), rig.start(&a, &format!("{} > /dev/null", read("of a", "0", 256)))];
            go(&mut others[1]);
            for child in &mut others {
                rig.wait_until("the others' calls", || child.try_wait().unwrap().is_some());
            }
            assert!(readers.try_wait().unwrap().is_none(), "{kind:?}: a tenant beyond its limit still waits");
            rig.engine.change_account(&rig.session("b"), Allocation::default()).unwrap();
            assert!(readers.wait().unwrap().success());
            let (bytes, wanted) = (rig.bytes("b"), READERS as u64 * 64 * 4096);
            // Reads into the cache are read ahead.
            let most = if flags.is_empty() { READERS as u64 * MIB } else { wanted + MIB };
            assert!(
                (wanted..most).contains(&bytes),
                "{kind:?}: without a limit all is read, and once: {bytes} of {wanted}"
            );
            rig.wait_until("the gate of who has no limit", || rig.word(&b, GateClass::Read) == 0);
        }
    });
}

/// A process that was forked before the agent enrolled its parent is in no table of processes, and behind the gate all
/// the same.
///
/// Broken on purpose and seen red: listeners not counted among the processes that are left.
#[test]
fn a_process_behind_a_tenants_gate_has_not_gone() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let b = rig.join("b", Allocation::default());
    let mut child = rig.launch(&b, "true");
    rig.station().leave_when_gone(b);
    // Two rounds of the search for tenants that have gone.
    let visits = rustix::thread::Timespec { tv_sec: 1, tv_nsec: 500_000_000 };
    let _ = rustix::thread::nanosleep(&visits);
    assert_eq!(rig.accounts(), [POOL, "pool/mount#1", "pool/b#2"]);
    go(&mut child);
    assert!(child.wait().unwrap().success());
    rig.wait_until("the end of who has gone", || rig.accounts() == [POOL, "pool/mount#1"]);
}

/// A killed tenant's debt to the scheduler may take hours to pay, and its account closes without waiting for that.
#[test]
fn a_thread_killed_at_its_gate_leaves_at_once() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "split_token") else { return };
    let b = rig.join("b", limited(LIMIT));
    let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
    go(&mut writer);
    rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
    writer.kill().unwrap();
    writer.wait().unwrap();
    rig.station().leave_when_gone(b);
    rig.wait_until("the end of who was killed", || rig.accounts() == [POOL, "pool/mount#1"]);
}

/// A listener has places for 1,024 calls that are held. Without a free place it hears no further call, whatever the
/// account owes.
#[test]
fn a_thread_killed_at_its_gate_leaves_its_place_to_others() {
    unless_a_lease_runs_out(|| {
        const CROWD: usize = 1100;
        let Some(rig) = Rig::new(FileSystemKind::Ext4, "split_token") else { return };
        let b = rig.join("b", limited(LIMIT));
        let (owing, new, end) = (write(&rig, "b", LONG_MIB), rig.path("new"), rig.path("end"));
        let crowd = format!("for i in $(seq {CROWD}); do (: > {}-$i) & all=\"$all $!\"; done", new.display());
        let script = format!(
            "{{ {owing} & all=$!; read crowd; {crowd}; read killed; kill -9 $all; wait; : > {}; }}",
            end.display()
        );
        let mut child = rig.start(&b, &script);
        go(&mut child);
        rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
        // However long a crowd takes to gather, its debt is not paid meanwhile.
        rig.engine.change_account(&rig.session("b"), limited(1.0)).unwrap();
        go(&mut child);
        rig.wait_until("a crowd at the gate", || children_in(libc::SYS_openat, child.id()) >= CROWD);
        go(&mut child);
        rig.wait_until("the end of the crowd", || children_in(libc::SYS_openat, child.id()) == 0);
        // Waits for a search for ended threads: an earlier release would find them ended by itself.
        let visit = rustix::thread::Timespec { tv_sec: 1, tv_nsec: 500_000_000 };
        let _ = rustix::thread::nanosleep(&visit);
        rig.engine.change_account(&rig.session("b"), Allocation::default()).unwrap();
        rig.wait_until("the end of who owes nothing", || {
            child.try_wait().unwrap().is_some_and(|status| status.success())
        });
        assert!(end.exists());
    });
}

/// How many children of a process are in a system call.
fn children_in(call: i64, parent: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_child = |process: &std::path::PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1).is_some_and(|number| number == parent.to_string())
    };
    let is_inside = |process: &std::path::PathBuf| {
        let text = std::fs::read_to_string(process.join("syscall")).unwrap_or_default();
        text.split(' ').next().is_some_and(|number| number == call.to_string())
    };
    processes.filter(is_child).filter(is_inside).count()
}

/// To start one takes milliseconds, in which other tenants' requests would stand still.
///
/// Broken on purpose and seen red: one that is started in a turn of the levels.
/// Promise: gates-keeper-start.
#[test]
fn the_engine_waits_for_no_keeper_to_start() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let b = rig.join("b", Allocation::default());
    let slow = rig.slow_keepers();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| rig.start(&b, "true"));
        rig.wait_until("the start of the keeper", || slow.has_begun());
        let (answer, answered) = std::sync::mpsc::channel();
        let engine = rig.engine.clone();
        std::thread::spawn(move || answer.send(engine.status().is_ok()));
        let has_answered = answered.recv_timeout(std::time::Duration::from_secs(60));
        let is_waiting = !starting.is_finished();
        slow.go_on();
        assert_eq!((has_answered, is_waiting), (Ok(true), true));
        let mut child = starting.join().unwrap();
        go(&mut child);
        assert!(child.wait().unwrap().success());
    });
}

/// Promise: tenants-full.
#[test]
fn a_full_disk_fails_calls_and_holds_no_process() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "split_token") else { return };
        let (a, b) = (rig.join("a", Allocation::default()), rig.join("b", Allocation::default()));
        let mut first = rig.start(&a, &format!("{} conv=fsync", write(&rig, "a", 8)));
        go(&mut first);
        assert!(first.wait().unwrap().success());
        let mut filling = rig.start(&b, &format!("{} conv=fsync 2> /dev/null", write(&rig, "b", 2048)));
        go(&mut filling);
        assert_eq!(filling.wait().unwrap().code(), Some(1), "{kind:?}: dd says that there is no room");
        assert!(std::fs::metadata(rig.path("b")).unwrap().len() < 1024 * MIB);
        let mut again = rig.start(&a, &format!("{} conv=notrunc,fsync", write(&rig, "a", 8)));
        go(&mut again);
        assert!(again.wait().unwrap().success(), "{kind:?}: what has its place can be written");
        rig.station().leave_when_gone(a);
        rig.station().leave_when_gone(b);
        rig.wait_until("the end of both", || rig.accounts() == [POOL, "pool/mount#1"]);
    }
}

/// 62 bits, one of which all other processes share.
/// Promise: tenants-full.
#[test]
fn one_tenant_too_many_is_refused_by_name_and_gets_no_session() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let tenants: Vec<_> = (0..61).map(|n| rig.join(&format!("t{n}"), Allocation::default())).collect();
    let accounts = rig.accounts();
    let refusal = rig.station().join(POOL, "late", Allocation::default()).unwrap_err().to_string();
    assert!(refusal.starts_with("no account is free for late: 62 are open, allowed are 62"), "{refusal}");
    assert_eq!(rig.accounts(), accounts);
    let mut child = rig.start(&tenants[60], &write(&rig, "last", 8));
    go(&mut child);
    assert!(child.wait().unwrap().success());
    rig.sync();
    assert!(rig.bytes("t60") >= 8 * MIB, "the last one is told apart");
}

/// The station that holds the gates is gone: within the lease all held calls go on.
#[test]
fn a_station_that_closes_lets_all_calls_go() {
    let Some(mut rig) = Rig::new(FileSystemKind::Ext4, "split_token") else { return };
    let b = rig.join("b", limited(LIMIT));
    let mut writer = rig.start(&b, &write(&rig, "b", LONG_MIB));
    go(&mut writer);
    rig.wait_until("the gate of who has written too much", || rig.is_closed(&b));
    rig.close_station();
    assert!(writer.wait().unwrap().success());
    assert_eq!(std::fs::metadata(rig.path("b")).unwrap().len(), LONG_MIB * MIB);
}
