//! Crowds at the gates of a real agent: fifty writers that it holds when it is killed, and tenants that flood it with
//! calls.

use crate::agent::{Disk, held_writer_of, site, start};
use crate::lease::unless_a_lease_runs_out;
use crate::support::Site;
use crate::tenants::{run, wait_until, watch_lease};
use plimsoll_core::Span;
use plimsoll_gates::clock::monotonic_now;
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

const WRITERS: usize = 50;
/// What each of them writes, in blocks of 64 KiB. Between two looks of the agent, a millisecond, one can write some
/// megabytes.
const BLOCKS_EACH: u64 = 80;
/// The promise: all writers go on so soon after the agent was killed.
const FAIL_OPEN: Span = Span::from_secs(1);
/// How often that is tried: where the machine takes the processors away, no writer goes on in time.
const TRIES: u32 = 5;
/// Of each of two tenants. Together they are more than an agent hears in a turn.
const FLOODERS: usize = 40;
/// Where a task of the kernel's is that waits at a gate: at a word of the shim, or for an answer to a notification.
const AT_GATE: [&str; 2] = ["futex", "seccomp"];

/// A tenant, and all that it starts. They end with this.
struct Crowd {
    child: Child,
}

impl Crowd {
    fn new(site: &Site, options: &[&str], script: &str) -> Crowd {
        let mut command = run(site, options, &["sh", "-c", script]);
        Crowd { child: command.process_group(0).stdout(Stdio::piped()).spawn().unwrap() }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Where a process waits in the kernel; one that has ended does not.
fn waits_in(process: &str, place: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/wchan")).is_ok_and(|wchan| wchan.contains(place))
}

fn is_held(process: &str) -> bool {
    AT_GATE.iter().any(|place| waits_in(process, place))
}

/// Fifty processes in a pool that owes, all held: half of them by the shim, at their first write, and half by the
/// filter, where they make their files.
fn fifty_held(site: &Site, disk: &Disk<'_>) -> (Crowd, Vec<String>) {
    (1..=WRITERS / 2).for_each(|number| drop(File::create(disk.path(&format!("b{number}"))).unwrap()));
    let each = format!("dd if=/dev/zero of={}$i bs=64k count={BLOCKS_EACH} status=none", disk.path("b").display());
    let half = |from: usize, to: usize, conversion: &str| {
        format!("for i in $(seq {from} {to}); do {each} {conversion} & echo $!; done")
    };
    let halves = [half(1, WRITERS / 2, "conv=nocreat,notrunc"), half(WRITERS / 2 + 1, WRITERS, "")];
    // A shell that wrote to a file would be held itself.
    let mut crowd = Crowd::new(site, &["--pool", "backup"], &format!("{}; wait", halves.join("; ")));
    let lines = BufReader::new(crowd.child.stdout.take().unwrap()).lines();
    let processes: Vec<String> = lines.take(WRITERS).map(Result::unwrap).collect();
    assert_eq!(processes.len(), WRITERS);
    for place in AT_GATE {
        let count = || processes.iter().filter(|process| waits_in(process, place)).count();
        wait_until("half of them held there", || count() == WRITERS / 2);
    }
    (crowd, processes)
}

/// The time from the kill of the agent until the last of fifty writers goes on. Their calls do not fail.
fn kill_over_fifty(site: &Site) -> Span {
    let disk = Disk::new(site, "ext4");
    let daemon = start(site);
    let lease = watch_lease(site);
    // So little that none of the fifty is through with what it writes before all are there, on the slowest machine.
    let mut first = held_writer_of(site, &disk, 64, "1kB/s");
    wait_until("a pool that owes", || is_held(&first.id().to_string()));
    let (mut crowd, mut held) = fifty_held(site, &disk);
    drop(lease);
    let killed = monotonic_now();
    daemon.signal(Signal::KILL);
    wait_until("all of them going on", || {
        held.retain(|process| is_held(process));
        held.is_empty()
    });
    let after = monotonic_now().since(killed);
    assert!(crowd.child.wait().unwrap().success() && first.wait().unwrap().success());
    let written = |number| std::fs::metadata(disk.path(&format!("b{number}"))).unwrap().len();
    assert!((1..=WRITERS).all(|number| written(number) == BLOCKS_EACH << 16), "no call failed");
    daemon.wait();
    start(site).stop();
    after
}

/// Broken on purpose and seen red: a lease that lasts for three seconds, in the words and in the shim.
/// Promise: gates-dead-agent.
#[test]
fn an_agent_that_is_killed_lets_fifty_writers_go_within_a_second() {
    let best = Cell::new(Span::MAX);
    for _ in 0..TRIES {
        unless_a_lease_runs_out(|| {
            let Some(site) = site() else { return best.set(Span::ZERO) };
            best.set(best.get().min(kill_over_fifty(&site)));
        });
        println!("all {WRITERS} have gone on; at best after {:.0} ms", best.get().as_millis_f64());
        if best.get() < FAIL_OPEN {
            return;
        }
    }
    panic!("{:.0} ms at best of {TRIES} times", best.get().as_millis_f64());
}

/// The flood consists of calls that the agent is told one by one: each makes a file. Red where the agent hears no
/// tenant.
/// Promise: gates-floods.
#[test]
fn tenants_that_flood_the_agent_keep_no_other_from_it() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let disk = Disk::new(&site, "ext4");
        let daemon = start(&site);
        let folder = disk.path("f");
        std::fs::create_dir(&folder).unwrap();
        let script = format!(
            "cd {} && for i in $(seq {FLOODERS}); do (while :; do : > $i; done) & done; wait",
            folder.display()
        );
        let floods =
            ["x", "y"].map(|name| Crowd::new(&site, &["--name", name], &script.replace("$i;", &format!("{name}$i;"))));
        wait_until("the flood", || std::fs::read_dir(&folder).unwrap().count() == 2 * FLOODERS);
        let lease = watch_lease(&site);
        let other = disk.path("other");
        let script = format!("for i in $(seq 100); do : > {0}$i; done; echo text > {0}; sync {0}", other.display());
        let mut other = run(&site, &["--name", "other"], &["sh", "-c", &script]).spawn().unwrap();
        wait_until("the end of who makes a hundred files", || other.try_wait().unwrap().is_some());
        assert!(other.wait().unwrap().success());
        assert!(site.ask(&["status"]).status.success());
        drop(lease);
        drop(floods);
        let log = daemon.stop();
        assert!(!log.contains("ERROR"), "{log}");
    });
}
