//! The requests that wait, for one thread or for a simulation of many.
//!
//! In the high queue, requests with a deadline go before requests without, the earliest deadline first (section 2.1).
//! All others are served in the order in which they came. **Complication.** A request without a deadline could wait
//! for ever behind those with one. So after [`URGENT_IN_A_ROW_MAX`] requests with a deadline in a row, one without goes
//! first; the paper does not say.

use crate::{QUEUES, Queue};
use plimsoll_core::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// After so many in a row that have a deadline, one goes first that has none.
pub const URGENT_IN_A_ROW_MAX: u32 = 16;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// What is to be run.
    pub request: T,
    /// When it should be done; `None`: as soon as possible.
    pub deadline: Option<Time>,
    /// Since when it waits.
    pub since: Time,
}

/// By deadline, and among the same by arrival.
struct Urgent<T> {
    deadline: Time,
    number: u64,
    waiting: Waiting<T>,
}

impl<T> Urgent<T> {
    fn key(&self) -> (Time, u64) {
        (self.deadline, self.number)
    }
}

impl<T> PartialEq for Urgent<T> {
    fn eq(&self, other: &Urgent<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Urgent<T> {}

impl<T> PartialOrd for Urgent<T> {
    fn partial_cmp(&self, other: &Urgent<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Urgent<T> {
    fn cmp(&self, other: &Urgent<T>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The three queues. What was waiting once keeps its memory: nothing is allocated until more wait than ever before.
pub struct Queues<T> {
    urgent: BinaryHeap<Reverse<Urgent<T>>>,
    /// Taken one after the other, out of the high queue.
    urgent_in_a_row: u32,
    in_order: [VecDeque<Waiting<T>>; QUEUES],
    arrivals: u64,
}

impl<T> Default for Queues<T> {
    fn default() -> Queues<T> {
        let in_order = std::array::from_fn(|_| VecDeque::new());
        Queues { urgent: BinaryHeap::new(), urgent_in_a_row: 0, in_order, arrivals: 0 }
    }
}

impl<T> Queues<T> {
    /// Puts a request into a queue. O(1), with a deadline in the high queue O(log those).
    pub fn put(&mut self, queue: Queue, waiting: Waiting<T>) {
        self.arrivals += 1;
        match waiting.deadline {
            Some(deadline) if queue == Queue::High => {
                self.urgent.push(Reverse(Urgent { deadline, number: self.arrivals, waiting }));
            }
            _ => self.in_order[queue.index()].push_back(waiting),
        }
    }

    /// Takes the next request out of a queue; `None` if it is empty. Like [`put`](Self::put).
    pub fn take(&mut self, queue: Queue) -> Option<Waiting<T>> {
        let in_order = &mut self.in_order[queue.index()];
        if queue != Queue::High {
            return in_order.pop_front();
        }
        let is_others_turn = self.urgent_in_a_row >= URGENT_IN_A_ROW_MAX && !in_order.is_empty();
        let urgent = if is_others_turn { None } else { self.urgent.pop() };
        self.urgent_in_a_row = if urgent.is_some() { self.urgent_in_a_row.saturating_add(1) } else { 0 };
        urgent.map(|Reverse(urgent)| urgent.waiting).or_else(|| in_order.pop_front())
    }

    /// How many wait in each. O(1).
    pub fn depths(&self) -> [u32; QUEUES] {
        let mut depths = [0; QUEUES];
        for queue in Queue::ALL {
            depths[queue.index()] = self.in_order[queue.index()].len() as u32;
        }
        depths[Queue::High.index()] += self.urgent.len() as u32;
        depths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(Queue, Option<u64>),
        Take(Queue),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Mostly high and with a deadline, so that many of these wait.
        let queue = || prop_oneof![3 => Just(Queue::High), 1 => Just(Queue::Low), 1 => Just(Queue::Maintenance)];
        prop_oneof![
            3 => (queue(), prop::option::weighted(0.8, 0_u64..5)).prop_map(|(queue, deadline)| Step::Put(queue, deadline)),
            2 => queue().prop_map(Step::Take),
        ]
    }

    proptest! {
        /// Against a list that is searched. Planted breaks: among those with a deadline, the latest first; a request
        /// without waits until none of them is left.
        /// Promise: executor-queues.
        #[test]
        fn deadlines_go_first_and_all_others_in_order(steps in prop::collection::vec(step(), 0..600)) {
            let (mut queues, mut in_a_row) = (Queues::default(), 0);
            let mut list: Vec<(Queue, Waiting<usize>)> = Vec::new();
            for (request, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(queue, deadline) => {
                        let deadline = deadline.map(Time::from_nanos);
                        let waiting = Waiting { request, deadline, since: Time::from_nanos(request as u64) };
                        queues.put(queue, waiting);
                        list.push((queue, waiting));
                    }
                    Step::Take(queue) => {
                        let is_its = |&at: &usize| list[at].0 == queue;
                        // Deadlines count only in the high queue; a request without one is later than all.
                        let order = |&at: &usize| match list[at].1.deadline {
                            Some(deadline) if queue == Queue::High => (deadline, at),
                            _ => (Time::MAX, at),
                        };
                        let has_none = |&at: &usize| list[at].1.deadline.is_none();
                        let others = (0..list.len()).filter(is_its).filter(has_none).min();
                        let others = others.filter(|_| queue == Queue::High && in_a_row >= URGENT_IN_A_ROW_MAX);
                        let first = others.or_else(|| (0..list.len()).filter(is_its).min_by_key(order));
                        if queue == Queue::High {
                            in_a_row = if first.is_some_and(|at| !has_none(&at)) { in_a_row + 1 } else { 0 };
                        }
                        prop_assert_eq!(queues.take(queue), first.map(|at| list.remove(at).1));
                    }
                }
                let of = |queue| list.iter().filter(|(its, _)| *its == queue).count() as u32;
                prop_assert_eq!(queues.depths(), Queue::ALL.map(of));
            }
        }
    }
}
