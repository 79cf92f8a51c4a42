//! Planted breaks that turned a test red: a request completed before the scheduler let it go; a name given again that
//! completes the request before; a lost completion that is waited for without end; a reader that stays early for good;
//! a book that one session fills for all (no bound of its own); a bound that counts all sessions' reads; a log that
//! hears of a full book once, or each time.

use super::*;
use plimsoll_core::account::AccountKind;
use plimsoll_core::{AccountTree, Allocation, DeviceProfile, Dispatch};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

/// Lets requests go when it is told to, and checks that each is added, dispatched and completed in this order.
#[derive(Default)]
struct Slow {
    queued: VecDeque<BlockRequest>,
    may_go: usize,
    at_device: BTreeSet<RequestId>,
    completed: BTreeMap<RequestId, Completion>,
}

impl Scheduler for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        self.queued.push_back(request);
    }
    fn next(&mut self, now: Time) -> Dispatch {
        match self.queued.pop_front() {
            Some(request) if self.may_go > 0 => {
                self.may_go -= 1;
                assert!(self.at_device.insert(request.id));
                Dispatch::Now(request)
            }
            Some(request) => {
                self.queued.push_front(request);
                Dispatch::NotBefore(now + Span::from_millis(1))
            }
            None => Dispatch::Nothing,
        }
    }
    fn request_completed(&mut self, _now: Time, completion: &Completion) {
        assert!(self.at_device.remove(&completion.id), "{completion:?} was not dispatched");
        self.completed.insert(completion.id, completion.clone());
    }
}

/// A disk that is seen, with one session.
struct World {
    slow: Slow,
    meters: Meters,
    tree: AccountTree,
    session: AccountId,
    observed: ObservedRequests,
    reads: HeldReads,
}

impl World {
    fn new() -> World {
        let profile = DeviceProfile {
            name: "seen".into(),
            capacity_bytes: 1 << 40,
            worst_case_runs_per_second: 100.0,
            sequential_bytes_per_second: 1e8,
            sequential_write_bytes_per_second: 1e8,
            write_settle: Span::ZERO,
            is_rotational: true,
            outstanding_max: 1,
        };
        let mut tree = AccountTree::new(profile);
        let session = tree.open(AccountId::ROOT, "reader", AccountKind::Session, Allocation::default()).unwrap();
        let mut meters = Meters::new(Time::ZERO);
        meters.opened(Time::ZERO, session);
        World {
            slow: Slow::default(),
            meters,
            tree,
            session,
            observed: ObservedRequests::default(),
            reads: HeldReads::default(),
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut ObservedRequests, &mut Books<'_>) -> T) -> T {
        let mut books = Books {
            scheduler: &mut self.slow,
            meters: &mut self.meters,
            tap: None,
            reads: &mut self.reads,
            tree: &self.tree,
        };
        act(&mut self.observed, &mut books)
    }

    fn issued(&mut self, now: Time, key: u64) {
        self.issued_of(now, key, self.session, Operation::Read);
    }

    /// At another place each millisecond.
    fn issued_of(&mut self, now: Time, key: u64, session: AccountId, operation: Operation) {
        let offset = now.as_nanos() / 1_000_000 * 65_536;
        let request = BlockRequest::new(RequestId(0), session, operation, offset, 65_536, now);
        self.with(|observed, books| observed.issued(now, books, key, request));
    }

    fn completed(&mut self, now: Time, key: u64, succeeded: bool) {
        self.with(|observed, books| observed.completed(now, books, key, now, succeeded));
    }

    fn pump(&mut self, now: Time) {
        self.with(|observed, books| {
            while let Dispatch::Now(request) = books.scheduler.next(now) {
                observed.dispatched(now, books, request.id);
            }
        });
    }

    /// Requests in the scheduler, at the device, and bytes that were moved.
    fn metered(&self) -> (u32, u32, u64) {
        let status = self.meters.status(at(1000), &self.tree);
        let reader = status.iter().find(|account| account.path == "reader").unwrap();
        (reader.queued, reader.in_flight, reader.bytes)
    }

    /// Early reads of the session, which are those of all.
    fn early(&self) -> u32 {
        assert_eq!(self.reads.sum().early, self.reads.of(self.session).early);
        self.reads.sum().early
    }
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_millis(milliseconds)
}

#[test]
fn a_request_takes_as_long_as_the_disk_had_it_whenever_the_scheduler_lets_it_go() {
    let mut world = World::new();
    world.issued(at(0), 7);
    world.pump(at(0));
    assert_eq!((world.metered(), world.early()), ((1, 0, 0), 0));
    world.completed(at(4), 7, true);
    assert!(world.slow.completed.is_empty(), "the scheduler still has it");
    assert_eq!((world.observed.of(world.session), world.early()), (1, 1), "it was read too early");
    // The kernel gives its name to another, which the scheduler lets go while the disk has it.
    world.issued(at(5), 7);
    world.slow.may_go = 2;
    world.pump(at(9));
    assert_eq!((world.metered(), world.early()), ((0, 1, 65_536), 0));
    assert_eq!(world.slow.completed.len(), 1);
    world.completed(at(12), 7, false);
    let services: Vec<_> = world.slow.completed.values().map(|one| (one.service, one.runs, one.succeeded)).collect();
    assert_eq!(services, [(Span::from_millis(4), 2, true), (Span::from_millis(7), 2, false)]);
    assert_eq!((world.observed.of(world.session), world.metered()), (0, (0, 0, 131_072)));
}

/// A driver that is busy gives a request back, and the kernel issues it once more. Broken on purpose and seen red, as
/// it was: it counts as another one, and the one before as done.
#[test]
fn a_request_that_the_driver_gave_back_is_issued_again_and_counts_once() {
    let mut world = World::new();
    world.slow.may_go = 2;
    for operation in [Operation::Read, Operation::Write] {
        let before = world.slow.completed.len();
        world.issued_of(at(0), 7, world.session, operation);
        world.pump(at(0));
        world.issued_of(at(0), 7, world.session, operation);
        world.pump(at(1));
        assert_eq!((world.slow.completed.len(), world.observed.of(world.session)), (before, 1));
        world.completed(at(2), 7, true);
        assert_eq!((world.slow.completed.len(), world.observed.of(world.session)), (before + 1, 0));
    }
    assert_eq!(world.metered(), (0, 0, 2 * 65_536));
}

#[test]
fn what_was_not_seen_is_supposed() {
    let mut world = World::new();
    world.slow.may_go = 3;
    world.completed(at(0), 9, true);
    world.issued(at(0), 7);
    world.issued(at(1), 8);
    world.pump(at(1));
    world.issued(at(2), 8);
    assert_eq!(world.slow.completed.len(), 1, "a name is given again when its request is done");
    world.with(|observed, books| observed.give_up_lost(at(0) + LOST_AFTER, books));
    assert_eq!((world.slow.completed.len(), world.observed.of(world.session)), (2, 1));
    world.pump(at(2));
    world.with(|observed, books| observed.give_up_lost(at(2) + LOST_AFTER, books));
    assert_eq!((world.slow.completed.len(), world.observed.of(world.session)), (3, 0));
    assert!(world.slow.completed.values().last().is_some_and(|last| !last.succeeded));
}

#[test]
fn what_is_forgotten_is_under_way_no_more() {
    let mut world = World::new();
    world.slow.may_go = 1;
    world.issued(at(0), 1);
    world.pump(at(0));
    world.issued(at(1), 2);
    world.completed(at(2), 2, true);
    assert_eq!((world.metered(), world.early()), ((1, 1, 0), 1));
    world.observed.forget(&mut world.meters, &mut world.reads);
    assert_eq!((world.metered(), world.early(), world.observed.len()), ((0, 0, 0), 0, 0));
    world.completed(at(3), 1, true);
    assert!(world.slow.completed.is_empty());
}

#[test]
fn memory_is_bounded() {
    let mut world = World::new();
    for key in 0..REQUESTS_MAX as u64 + 10 {
        world.issued(at(0), key);
    }
    assert_eq!((world.slow.queued.len(), world.observed.left_out), (REQUESTS_MAX, 10));
}

/// Promise: tenants-past-gates.
#[test]
fn an_account_that_reads_past_its_gates_leaves_the_book_to_others() {
    let mut world = World::new();
    let other = world.tree.open(AccountId::ROOT, "other", AccountKind::Session, Allocation::default()).unwrap();
    world.meters.opened(Time::ZERO, other);
    // As a disk does it: each is done before the next one but some.
    for key in 0..REQUESTS_MAX as u64 + 10 {
        world.issued(at(key), key);
        world.completed(at(key), key, true);
    }
    let beyond = REQUESTS_MAX as u64 + 10 - u64::from(READS_OWED_MAX);
    assert_eq!((world.slow.queued.len() as u32, world.observed.left_out), (READS_OWED_MAX, beyond));
    let now = at(100_000);
    world.issued_of(now, 1, other, Operation::Read);
    world.issued_of(now, 2, world.session, Operation::Write);
    assert_eq!((world.slow.queued.len() as u32, world.observed.of(other)), (READS_OWED_MAX + 2, 1));
    // A session that has paid one is charged for the next.
    world.slow.may_go = 1;
    world.pump(now);
    world.issued(now, 3);
    assert_eq!((world.slow.queued.len() as u32, world.observed.left_out), (READS_OWED_MAX + 2, beyond));
}

/// Promise: tenants-past-gates.
#[test]
fn a_trouble_is_told_again_when_it_was_over_and_does_not_flood_the_log() {
    let mut warning = Warning::default();
    assert_eq!([0, 1, 100_000].map(|now| warning.is_news(at(now))), [true, false, false]);
    warning.is_over();
    assert!(warning.is_news(at(100_001)));
    warning.is_over();
    assert_eq!([100_002, 160_000, 160_001].map(|now| warning.is_news(at(now))), [false, false, true]);
    // What is over is known to be.
    let mut world = World::new();
    (world.observed.full.is_known, world.observed.owing.is_known) = (true, true);
    world.issued(at(0), 1);
    world.completed(at(0), 1, true);
    world.slow.may_go = 1;
    world.pump(at(0));
    assert!(!world.observed.full.is_known && !world.observed.owing.is_known);
}

proptest! {
    /// Whatever comes in whatever order, the scheduler hears of each request once, and of nothing twice.
    #[test]
    fn each_request_is_completed_once(steps in prop::collection::vec((0..4u8, 0..5u64), 1..200)) {
        let mut world = World::new();
        let mut issued = 0;
        for (now, (kind, key)) in (0..).zip(steps) {
            match kind {
                0 => { issued += 1; world.issued(at(now), key) }
                1 => world.completed(at(now), key, true),
                2 => world.slow.may_go += key as usize,
                _ => world.pump(at(now)),
            }
        }
        world.slow.may_go = usize::MAX;
        world.pump(at(300));
        (0..5).for_each(|key| world.completed(at(300), key, true));
        prop_assert_eq!(world.slow.completed.len(), issued);
        prop_assert_eq!(world.observed.of(world.session), 0);
        prop_assert_eq!(world.metered(), (0, 0, issued as u64 * 65_536));
        prop_assert_eq!(world.early(), 0);
    }
}
