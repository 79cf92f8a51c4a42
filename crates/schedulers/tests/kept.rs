//! What the registry says is kept on volumes, promise by promise, on a device of exactly known speed. A new line of
//! the registry meets the check of its promise here; what is kept for tenants has its tests where calls are seen
//! (`scs_token.rs`, `split_token.rs`, `afq.rs`, the scenarios, `crates/cli/tests/up`).

mod metronome;

use metronome::{DISK, Metronome, at, completed};
use plimsoll_core::*;
use plimsoll_devices::DeviceModel;
use plimsoll_schedulers::{Entry, Kept, Promise, Reach, Target, registry};
use plimsoll_sim::block::{BlockHost, Served};
use plimsoll_sim::workload::Workload;

const RUNS_PER_SECOND: f64 = 1000.0;
/// The seconds that are looked at: the first two are for schedulers that learn the device.
const FROM_S: f64 = 2.0;
const SECONDS: f64 = 8.0;
/// Requests of a tenant that takes what it gets.
const GREEDY_DEPTH: u32 = 200;
/// The same where deadlines are looked at: a scheduler that goes by them keeps those of others, too, and half a second
/// of others' requests is all that the usual deadline leaves.
const BUSY_DEPTH: u32 = 100;
const DEADLINE: Span = Span::from_millis(20);
/// Behind the deadline: batches of 16 by place, what the device holds, and others that are late as well, at a
/// millisecond each. The first request of [`BUSY_DEPTH`] goes after 100.
const LATE_MAX: Span = Span::from_millis(80);

/// Two pools directly on the device, a session in each: the first's is `first`, the other is greedy.
fn beside_a_greedy_one(entry: &Entry, promises: [Allocation; 2], depths: [u32; 2], read_percent: u8) -> Vec<Served> {
    let device = Metronome::new(RUNS_PER_SECOND, 4);
    let mut tree = AccountTree::new(device.profile().clone());
    // Rates and weights are a pool's; a priority and deadlines are each session's own.
    let sessions = [0, 1].map(|number| {
        let Allocation { priority, deadlines, .. } = promises[number];
        let name = number.to_string();
        let pool = tree.open(AccountId::ROOT, &name, AccountKind::Pool, promises[number]).unwrap();
        let own = Allocation { priority, deadlines, ..Allocation::default() };
        tree.open(pool, "session", AccountKind::Session, own).unwrap()
    });
    let mut host = BlockHost::new((entry.build)(device.profile()), Box::new(device), &tree);
    for (seed, (session, depth)) in sessions.into_iter().zip(depths).enumerate() {
        host.add_tenant(Workload { read_percent, ..Workload::greedy(session, DISK, depth) }, seed as u64);
    }
    host.run_until(at(FROM_S + SECONDS))
}

/// What both had, in requests a second.
fn rates(served: &[Served]) -> [f64; 2] {
    [0, 1].map(|tenant| completed(served, tenant, FROM_S, SECONDS) / SECONDS)
}

fn slowest_of_first(served: &[Served]) -> Span {
    let spans = served.iter().filter(|one| one.tenant == 0).map(|one| one.completed.since(one.arrived));
    spans.max().expect("some were served")
}

fn promised(change: impl Fn(&mut Allocation)) -> [Allocation; 2] {
    let mut first = Allocation::default();
    change(&mut first);
    [first, Allocation::default()]
}

fn keeps(entry: &Entry, promise: Promise) -> Result<(), String> {
    let told = |is_kept, measured: String| if is_kept { Ok(()) } else { Err(measured) };
    match promise {
        Promise::Reserve => {
            let promises = promised(|first| first.reserve = Rate::DevicePercent(60.0));
            let [first, other] = rates(&beside_a_greedy_one(entry, promises, [8, GREEDY_DEPTH], 100));
            told(first >= 0.59 * RUNS_PER_SECOND, format!("{first}/s of 600, the other one {other}"))
        }
        Promise::Limit => {
            let promises = promised(|first| first.limit = Some(Rate::RunsPerSecond(50.0)));
            let [first, other] = rates(&beside_a_greedy_one(entry, promises, [8, GREEDY_DEPTH], 100));
            told((40.0..=51.0).contains(&first), format!("{first}/s at a limit of 50, the other one {other}"))
        }
        Promise::Weight => {
            let promises = promised(|first| first.weight = 300);
            let [first, other] = rates(&beside_a_greedy_one(entry, promises, [GREEDY_DEPTH; 2], 100));
            told((2.8..=3.2).contains(&(first / other)), format!("{first} and {other}/s at 3 to 1"))
        }
        Promise::Priority => {
            let mut promises = promised(|first| first.priority = Priority::Level(0));
            promises[1].priority = Priority::Level(7);
            let [first, other] = rates(&beside_a_greedy_one(entry, promises, [GREEDY_DEPTH; 2], 100));
            told(first >= 2.0 * other && other > 0.0, format!("{first} and {other}/s at priorities 0 and 7"))
        }
        Promise::ReadDeadline => {
            let promises = promised(|first| first.deadlines.read = Some(DEADLINE));
            let slowest = slowest_of_first(&beside_a_greedy_one(entry, promises, [1, BUSY_DEPTH], 100));
            told(slowest <= LATE_MAX, format!("a read of {slowest} at a deadline of {DEADLINE}"))
        }
        Promise::WriteDeadline => {
            let promises = promised(|first| first.deadlines.write = Some(DEADLINE));
            let slowest = slowest_of_first(&beside_a_greedy_one(entry, promises, [1, BUSY_DEPTH], 0));
            told(slowest <= LATE_MAX, format!("a write of {slowest} at a deadline of {DEADLINE}"))
        }
        Promise::FsyncDeadline => Err("an fsync is a call, and volumes have none".to_owned()),
    }
}

/// Planted break: `noop` says that it keeps each of them.
/// Promise: schedulers-registry-kept.
#[test]
fn what_the_registry_says_is_kept_on_volumes_is_kept() {
    let mut checked = 0;
    for entry in registry() {
        for Kept { promise, .. } in entry.keeps.iter().filter(|kept| kept.target == Target::Volumes) {
            keeps(entry, *promise).unwrap_or_else(|measured| panic!("{}: {}: {measured}", entry.name, promise.name()));
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked} promises");
}

/// The checks can fail: a scheduler that promises nothing keeps nothing.
/// Promise: schedulers-registry-kept.
#[test]
fn a_scheduler_that_keeps_no_promise_fails_each_check() {
    let noop = registry().iter().find(|entry| entry.keeps.is_empty()).unwrap();
    for promise in Promise::ALL {
        assert!(keeps(noop, promise).is_err(), "{} passes as a keeper of {}", noop.name, promise.name());
    }
}

#[test]
fn each_line_of_the_registry_stands_once_and_names_a_level() {
    for entry in registry() {
        for (number, kept) in entry.keeps.iter().enumerate() {
            let name = (entry.name, kept.promise.name(), kept.target.name());
            assert!(!kept.levels.is_empty(), "{name:?}");
            assert_eq!(
                entry.keeps.iter().position(|one| one.promise == kept.promise && one.target == kept.target),
                Some(number),
                "{name:?}"
            );
            assert!(entry.refuses(kept.target).is_none(), "{name:?} is kept for those that it refuses");
            assert!(kept.reach == Reach::All || kept.target == Target::Volumes, "{name:?}");
        }
    }
}
