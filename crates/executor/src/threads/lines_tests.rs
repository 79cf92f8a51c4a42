//! The shared queues against those of one thread. Apart, since a benchmark takes `lines.rs` as it is.

use super::lines::Lines;
use crate::queues::{Queues, Waiting};
use crate::{QUEUES, Queue};
use plimsoll_core::Time;
use proptest::prelude::*;

proptest! {
    /// Against the queues of one thread, which are tried against a list. Broken on purpose and seen red: where no
    /// request has a deadline, the row of those with one does not end.
    /// Promise: executor-queues.
    #[test]
    fn one_thread_takes_what_queues_of_its_own_would_give_it(
        // Where to, with a deadline or without, or taken from there; now and then no request has one for a while.
        steps in prop::collection::vec((0..QUEUES, prop::option::weighted(0.8, 0_u64..5), 0..5), 0..600),
    ) {
        let (lines, mut queues) = (Lines::new(steps.len().max(1)), Queues::default());
        for (number, (queue, deadline, kind)) in steps.into_iter().enumerate() {
            let (queue, since) = (Queue::ALL[queue], Time::from_nanos(number as u64));
            match kind {
                0 => {
                    let deadline = deadline.map(Time::from_nanos);
                    lines.put(queue, number, deadline, since);
                    queues.put(queue, Waiting { request: number, deadline, since });
                }
                1 => {
                    lines.put(queue, number, None, since);
                    queues.put(queue, Waiting { request: number, deadline: None, since });
                }
                2 => loop {
                    let expected = queues.take(Queue::High);
                    prop_assert_eq!(lines.take(Queue::High), expected);
                    if expected.is_none() {
                        break;
                    }
                },
                3 if queue == Queue::High => for ahead in 0..12 {
                    let deadline = Time::from_nanos(ahead);
                    lines.put(queue, number, Some(deadline), since);
                    queues.put(queue, Waiting { request: number, deadline: Some(deadline), since });
                },
                _ => prop_assert_eq!(lines.take(queue), queues.take(queue)),
            }
            prop_assert_eq!(lines.depths(), queues.depths());
        }
    }
}
