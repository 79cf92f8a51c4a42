//! What an administrator chooses: dispatching, slices and weights, and the four that the paper names.

use crate::{Arrival, Dispatching, Kind, QUEUES, Queue, Slicing};
use plimsoll_core::Span;

/// A fixed policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// In which queue a request waits.
    pub dispatching: Dispatching,
    /// How long a thread serves a queue.
    pub slicing: Slicing,
    /// How likely a queue is drawn, beside the others that are not empty. Above zero.
    pub weights: [u32; QUEUES],
}

impl Policy {
    /// As the filer was: section 2.3.
    pub const BASELINE: Policy =
        Policy { dispatching: Dispatching::Baseline, slicing: Slicing::BY_WEIGHT, weights: [60, 30, 10] };
    /// Size-oriented request dispatching alone: section 4.1.
    pub const SORD: Policy = Policy { dispatching: Dispatching::SizeOriented, ..Policy::BASELINE };
    /// Queue-depth aware time slices alone: section 4.2.
    pub const QATS: Policy = Policy { slicing: Slicing::BY_DEPTH, ..Policy::BASELINE };
    /// Both, and 90 for the high queue: section 5.2.
    pub const COMBO: Policy =
        Policy { dispatching: Dispatching::SizeOriented, slicing: Slicing::BY_DEPTH, weights: [90, 30, 10] };

    /// Where a request waits. O(1).
    pub fn queue(&self, kind: Kind, arrival: Arrival) -> Queue {
        self.dispatching.queue(kind, arrival)
    }

    /// The slice of a thread that drew `queue`, while so many requests wait in each. O(1).
    pub fn slice(&self, queue: Queue, depths: [u32; QUEUES]) -> Span {
        self.slicing.slice(queue, depths, self.weights)
    }
}
