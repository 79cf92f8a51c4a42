//! Queues of requests in the order of their places, sweep by sweep, each request with a deadline if it has one.
//!
//! **Intuition.** A disk likes requests in the order of their places. **Rule.** A sweep over the device takes the
//! requests that were there at its beginning. Later ones wait for the next sweep. So nothing waits for more than two
//! sweeps, and two heaps are all that the order of place needs. A request past its deadline goes out of turn, the
//! earliest first. **Complication.** A heap gives back its first only. So a request that went out of turn leaves its
//! entry behind. Its slot in the memory of all queues is free when the sweep has passed.
//!
//! O(log queued) a request. Allocates only while the number of queued requests is a new record.

use crate::min_tree::{ABSENT, MinTree};
use plimsoll_core::{BlockRequest, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The key by deadline: a queue has one order of deadlines.
const DEADLINE: usize = 0;

/// One queue. Its requests lie in [`LocationQueues`].
#[derive(Default)]
pub struct LocationQueue {
    queued: usize,
    /// Place and slot of those of this sweep.
    current: BinaryHeap<Reverse<(u64, u32)>>,
    /// And of the next one.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    /// When the first of them came.
    current_since: Time,
    later_since: Time,
    /// By slot.
    deadlines: MinTree,
}

impl LocationQueue {
    /// How many are queued.
    pub fn len(&self) -> usize {
        self.queued
    }

    /// Whether none is queued.
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// When the one that waits longest came, or earlier; `None` if nothing waits.
    pub fn since(&self) -> Option<Time> {
        let since = if self.current.is_empty() { self.later_since } else { self.current_since };
        (!self.is_empty()).then_some(since)
    }

    /// The earliest deadline; `None` if none has one.
    pub fn earliest(&self) -> Option<Time> {
        Some(Time::from_nanos(self.deadlines.first(DEADLINE).key)).filter(|&deadline| deadline < Time::MAX)
    }

    /// The slot of the next one by place; begins another sweep if this one is over.
    fn first(&mut self) -> Option<u32> {
        if self.current.is_empty() {
            std::mem::swap(&mut self.current, &mut self.later);
            self.current_since = self.later_since;
        }
        self.current.peek().map(|&Reverse((_, slot))| slot)
    }
}

/// What all queues have queued. A queue must be used with the same one always.
#[derive(Default)]
pub struct LocationQueues {
    /// `None` for a request that went out of turn and still has its entry in the sweep.
    slots: Vec<Option<BlockRequest>>,
    free: Vec<u32>,
}

impl LocationQueues {
    /// Queues a request; its deadline is [`Time::MAX`] if it has none.
    pub fn push(&mut self, now: Time, queue: &mut LocationQueue, request: BlockRequest, deadline: Time) {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        queue.deadlines.assign(slot as usize, slot);
        queue.deadlines.set_one::<DEADLINE>(slot as usize, deadline.as_nanos());
        if queue.later.is_empty() {
            queue.later_since = now;
        }
        queue.later.push(Reverse((request.offset, slot)));
        queue.queued += 1;
        self.slots[slot as usize] = Some(request);
    }

    /// Takes the request past its deadline, the earliest first, or else the next by place.
    pub fn pop(&mut self, now: Time, queue: &mut LocationQueue) -> Option<BlockRequest> {
        // A sweep that is over ends here, whichever request goes next.
        let first = loop {
            let first = queue.first()?;
            if self.slots[first as usize].is_some() {
                break first;
            }
            queue.current.pop();
            self.free.push(first);
        };
        let earliest = queue.deadlines.first(DEADLINE);
        let slot = if earliest.key <= now.as_nanos() { earliest.owner } else { first };
        if slot == first {
            queue.current.pop();
            self.free.push(slot);
        }
        queue.deadlines.set_one::<DEADLINE>(slot as usize, ABSENT);
        queue.queued -= 1;
        self.slots[slot as usize].take()
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and what each turned red, here and in `split_deadline`'s
    //! `decides_as_the_obvious_way_does`:
    //! - those with a passed deadline wait for the sweep
    //! - what comes meanwhile joins the sweep under way
    //! - a slot is free while its entry is still in the sweep

    use super::*;
    use plimsoll_core::{AccountId, Operation, RequestId, Span};
    use proptest::prelude::*;

    /// A queue, the obvious way: place, arrival, deadline, and whether it is of the sweep under way.
    #[derive(Default)]
    struct Obvious {
        queued: Vec<(u64, Time, Time, bool)>,
        current_since: Time,
    }

    impl Obvious {
        fn since(&self) -> Option<Time> {
            let first = self.queued.iter().map(|one| one.1).min()?;
            Some(if self.queued.iter().any(|one| one.3) { self.current_since } else { first })
        }

        fn pop(&mut self, now: Time) -> Option<u64> {
            if self.queued.iter().all(|one| !one.3) {
                self.current_since = self.since()?;
                self.queued.iter_mut().for_each(|one| one.3 = true);
            }
            let expired = self.queued.iter().filter(|one| one.2 <= now).min_by_key(|one| one.2);
            let place = expired.or(self.queued.iter().filter(|one| one.3).min_by_key(|one| one.0))?.0;
            self.queued.retain(|one| one.0 != place);
            Some(place)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_lists(
            steps in proptest::collection::vec((0..2usize, any::<bool>(), 0..1u64 << 20, 0..900u64), 0..200),
        ) {
            let (mut memory, mut queues, mut lists) =
                (LocationQueues::default(), [(); 2].map(|_| LocationQueue::default()), [(); 2].map(|_| Obvious::default()));
            let mut now = Time::ZERO;
            for (number, (which, is_push, place, milliseconds)) in steps.into_iter().enumerate() {
                // No two are equal in anything that decides.
                now += Span::from_millis(10);
                let (queue, list) = (&mut queues[which], &mut lists[which]);
                if is_push {
                    let offset = place << 8 | number as u64;
                    let request =
                        BlockRequest::new(RequestId(number as u64), AccountId(1), Operation::Read, offset, 4096, now);
                    let within = Span::from_millis(milliseconds) + Span::from_nanos(number as u64);
                    let deadline = if milliseconds < 600 { now + within } else { Time::MAX };
                    memory.push(now, queue, request, deadline);
                    list.queued.push((offset, now, deadline, false));
                } else {
                    prop_assert_eq!(memory.pop(now, queue).map(|request| request.offset), list.pop(now));
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (list.queued.len(), list.queued.is_empty()));
                let deadlines = list.queued.iter().map(|one| one.2).filter(|&deadline| deadline < Time::MAX);
                prop_assert_eq!(queue.earliest(), deadlines.min());
                prop_assert_eq!(queue.since().is_some(), list.since().is_some());
                prop_assert!(queue.since() <= list.since());
            }
        }
    }
}
