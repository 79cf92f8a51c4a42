//! How long a thread serves its queue: the paper's equations 1 and 2 (sections 2.3 and 4.2).

use crate::{QUEUES, Queue};
use plimsoll_core::Span;

/// The maintenance queue's slice, whatever the method: the paper keeps it in all experiments.
const MAINTENANCE: Span = Span::from_micros(200);

/// A way to find the time slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slicing {
    /// `window * w(i) / sum of w`, over queues that are not empty (equation 1).
    ByWeight {
        /// The time that the weights divide, 2 ms in the paper.
        window: Span,
    },
    /// QATS: `cap * q(i) p(i) / sum of q p + base`, with the depths of the queues `q` (equation 2).
    ByDepth {
        /// What a slice is at the least, 0.3 ms in the paper.
        base: Span,
        /// By how much it may be longer, 5 ms in the paper.
        cap: Span,
        /// The priority factors `p`, 1 each in the paper. Not negative.
        factors: [f64; QUEUES],
    },
}

impl Slicing {
    /// Equation 1 with the paper's window.
    pub const BY_WEIGHT: Slicing = Slicing::ByWeight { window: Span::from_micros(2000) };
    /// QATS with the paper's figures.
    pub const BY_DEPTH: Slicing =
        Slicing::ByDepth { base: Span::from_micros(300), cap: Span::from_micros(5000), factors: [1.0; QUEUES] };

    /// The slice of a thread that drew `queue`, while so many requests wait in each. O(1).
    pub fn slice(&self, queue: Queue, depths: [u32; QUEUES], weights: [u32; QUEUES]) -> Span {
        if queue == Queue::Maintenance {
            return MAINTENANCE;
        }
        match *self {
            Slicing::ByWeight { window } => {
                let counts = |each: Queue| each == queue || depths[each.index()] > 0;
                let sum: u32 =
                    Queue::ALL.into_iter().filter(|&each| counts(each)).map(|each| weights[each.index()]).sum();
                Span::from_nanos(window.as_nanos() * u64::from(weights[queue.index()]) / u64::from(sum.max(1)))
            }
            Slicing::ByDepth { base, cap, factors } => {
                let part = |each: Queue| f64::from(depths[each.index()]) * factors[each.index()];
                let sum: f64 = Queue::ALL.into_iter().map(part).sum();
                let more = if sum > 0.0 { part(queue) / sum } else { 0.0 };
                base + Span::from_secs_f64(cap.as_secs_f64() * more)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: [u32; QUEUES] = [60, 30, 10];

    #[test]
    fn weights_divide_the_window_among_queues_that_are_not_empty() {
        let slice = |queue, depths| Slicing::BY_WEIGHT.slice(queue, depths, WEIGHTS);
        assert_eq!(slice(Queue::High, [1, 1, 1]), Span::from_micros(1200));
        assert_eq!(slice(Queue::Low, [9, 1, 1]), Span::from_micros(600));
        assert_eq!(slice(Queue::Maintenance, [1, 1, 1]), Span::from_micros(200));
        assert_eq!(slice(Queue::Low, [0, 3, 0]), Span::from_micros(2000));
        // The thread that has just taken the last request still serves it.
        assert_eq!(slice(Queue::Low, [0, 0, 0]), Span::from_micros(2000));
    }

    #[test]
    fn the_deeper_queue_is_served_for_longer_within_bounds() {
        let slice = |queue, depths| Slicing::BY_DEPTH.slice(queue, depths, WEIGHTS);
        assert_eq!(slice(Queue::High, [30, 10, 0]), Span::from_micros(300 + 3750));
        assert_eq!(slice(Queue::Low, [30, 10, 0]), Span::from_micros(300 + 1250));
        assert_eq!(slice(Queue::High, [5, 0, 0]), Span::from_micros(5300), "no more than cap and base");
        assert_eq!(slice(Queue::High, [0, 0, 0]), Span::from_micros(300), "no less than base");
        assert_eq!(slice(Queue::Maintenance, [1, 1, 1000]), Span::from_micros(200));
        // Section 4.2: twice the factor is worth twice the depth.
        let factors = [2.0, 1.0, 1.0];
        let doubled = Slicing::ByDepth { base: Span::ZERO, cap: Span::from_micros(1000), factors };
        assert_eq!(doubled.slice(Queue::High, [5, 10, 0], WEIGHTS), doubled.slice(Queue::Low, [5, 10, 0], WEIGHTS));
    }
}
