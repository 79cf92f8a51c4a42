//! Planted breaks that turned a test red: a request completed before the scheduler let it go; a name given again that
//! completes the request before; a lost completion that is waited for without end.

use super::*;
use plimsoll_core::Operation;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const SESSION: AccountId = AccountId(3);

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

fn request() -> BlockRequest {
    BlockRequest::new(RequestId(0), SESSION, Operation::Write, 0, 65_536, Time::ZERO)
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_millis(milliseconds)
}

#[test]
fn a_request_takes_as_long_as_the_disk_had_it_whenever_the_scheduler_lets_it_go() {
    let (mut slow, mut observed) = (Slow::default(), ObservedRequests::default());
    observed.issued(at(0), &mut slow, 7, request());
    assert_eq!(observed.pump(at(0), &mut slow), Some(at(1)));
    observed.completed(at(4), &mut slow, 7, true);
    assert!(slow.completed.is_empty() && observed.is_busy(SESSION), "the scheduler still has it");
    // The kernel gives its name to another, which the scheduler lets go while the disk has it.
    observed.issued(at(5), &mut slow, 7, request());
    slow.may_go = 2;
    assert_eq!(observed.pump(at(9), &mut slow), None);
    assert_eq!(slow.completed.keys().copied().collect::<Vec<_>>(), [RequestId(1)]);
    observed.completed(at(12), &mut slow, 7, false);
    let services: Vec<_> = slow.completed.values().map(|one| (one.service, one.runs, one.succeeded)).collect();
    assert_eq!(services, [(Span::from_millis(4), 2, true), (Span::from_millis(7), 2, false)]);
    assert!(!observed.is_busy(SESSION));
}

#[test]
fn what_was_not_seen_is_supposed() {
    let (mut slow, mut observed) = (Slow { may_go: 3, ..Slow::default() }, ObservedRequests::default());
    observed.completed(at(0), &mut slow, 9, true);
    observed.issued(at(0), &mut slow, 7, request());
    observed.issued(at(1), &mut slow, 8, request());
    observed.pump(at(1), &mut slow);
    observed.issued(at(2), &mut slow, 8, request());
    assert_eq!(slow.completed.len(), 1, "a name is given again when its request is done");
    observed.give_up_lost(at(0) + LOST_AFTER, &mut slow);
    assert_eq!((slow.completed.len(), observed.is_busy(SESSION)), (2, true));
    observed.pump(at(2), &mut slow);
    observed.give_up_lost(at(2) + LOST_AFTER, &mut slow);
    assert_eq!((slow.completed.len(), observed.is_busy(SESSION)), (3, false));
    assert!(slow.completed.values().last().is_some_and(|last| !last.succeeded));
}

#[test]
fn memory_is_bounded() {
    let (mut slow, mut observed) = (Slow::default(), ObservedRequests::default());
    for key in 0..REQUESTS_MAX as u64 + 10 {
        observed.issued(at(0), &mut slow, key, request());
    }
    assert_eq!((slow.queued.len(), observed.left_out()), (REQUESTS_MAX, 10));
}

proptest! {
    /// Whatever comes in whatever order, the scheduler hears of each request once, and of nothing twice.
    #[test]
    fn each_request_is_completed_once(steps in prop::collection::vec((0..4u8, 0..5u64), 1..200)) {
        let (mut slow, mut observed) = (Slow::default(), ObservedRequests::default());
        let mut issued = 0;
        for (now, (kind, key)) in (0..).zip(steps) {
            match kind {
                0 => { issued += 1; observed.issued(at(now), &mut slow, key, request()) }
                1 => observed.completed(at(now), &mut slow, key, true),
                2 => slow.may_go += key as usize,
                _ => drop(observed.pump(at(now), &mut slow)),
            }
        }
        slow.may_go = usize::MAX;
        observed.pump(at(300), &mut slow);
        (0..5).for_each(|key| observed.completed(at(300), &mut slow, key, true));
        prop_assert_eq!(slow.completed.len(), issued);
        prop_assert!(!observed.is_busy(SESSION));
    }
}
