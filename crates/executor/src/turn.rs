//! A thread's turn: how long it serves its queue, and what ends that earlier.
//!
//! **Intuition.** A slice is a promise to the requests in the queue, and its end is one to all others. **Rule.** A turn
//! ends with its slice. **Complication.** No request in the high queue waits for a slice that the low queue got only
//! because the high queue was empty. No client's request waits for a whole slice of maintenance. Such a turn ends with
//! the run in which the request came. The paper has a client wait for up to 200 us there (section 2.3).

use crate::{Adaptive, Policy, QUEUES, Queue};
use plimsoll_core::Span;

/// What a thread has drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The queue that it serves.
    pub queue: Queue,
    /// For how long.
    pub slice: Span,
    is_lent: bool,
}

impl Turn {
    /// The turn of a thread that drew `queue` at these depths; also by `adaptive`'s experience, if that is the policy.
    /// O(1).
    pub fn new(queue: Queue, depths: [u32; QUEUES], policy: &Policy, adaptive: Option<&Adaptive>) -> Turn {
        match adaptive {
            Some(adaptive) => {
                let is_lent = Adaptive::is_lent(queue, depths);
                Turn { queue, slice: adaptive.slice(queue, depths), is_lent }
            }
            None => Turn { queue, slice: policy.slice(queue, depths), is_lent: false },
        }
    }

    /// Whether the turn ends with the last run, though its slice is not spent, for a request that waits. `depths` is
    /// called only if it matters. O(1).
    pub fn gives_way(&self, depths: impl FnOnce() -> [u32; QUEUES]) -> bool {
        match self.queue {
            Queue::Maintenance => {
                let [high, low, _] = depths();
                high > 0 || low > 0
            }
            Queue::High | Queue::Low => self.is_lent && depths()[Queue::High.index()] > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted breaks: maintenance goes on; it gives way to maintenance that waits, too; a lent slice goes on.
    /// Promise: executor-maintenance.
    #[test]
    fn maintenance_gives_way_to_clients_and_a_lent_slice_to_the_high_queue() {
        let adaptive = Adaptive::default();
        let gives_way = |adaptive: Option<&Adaptive>, queue, drawn: [u32; QUEUES], depths: [u32; QUEUES]| {
            Turn::new(queue, drawn, &Policy::COMBO, adaptive).gives_way(|| depths)
        };
        for rules in [None, Some(&adaptive)] {
            let maintenance = |depths| gives_way(rules, Queue::Maintenance, [0, 0, 9], depths);
            assert_eq!([[1, 0, 0], [0, 1, 0], [0, 0, 9]].map(maintenance), [true, true, false]);
            // The low queue drew against others, and no queue is above the high one.
            assert!(!gives_way(rules, Queue::Low, [1, 1, 0], [9, 9, 9]));
            assert!(!gives_way(rules, Queue::High, [1, 0, 0], [9, 9, 9]));
        }
        let lent = |depths| gives_way(Some(&adaptive), Queue::Low, [0, 1, 0], depths);
        assert_eq!([[1, 0, 0], [0, 9, 9]].map(lent), [true, false]);
        assert!(!gives_way(None, Queue::Low, [0, 1, 0], [1, 0, 0]), "only adaptive lends");
    }
}
