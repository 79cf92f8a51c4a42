//! Flushes among requests that have a place.
//!
//! **Rule.** A flush has no place to be sorted by, and a caller waits for it: it goes at once. **Complication.** A
//! session that flushes without end must not keep others from the device: while others wait, never two go in a row.
//!
//! O(1) an event; allocates only while the number of queued flushes is a new record.

use plimsoll_core::BlockRequest;
use std::collections::VecDeque;

/// See the module's text.
#[derive(Default)]
pub struct FlushQueue {
    flushes: VecDeque<BlockRequest>,
    has_just_flushed: bool,
}

impl FlushQueue {
    /// Appends a flush.
    pub fn push(&mut self, flush: BlockRequest) {
        self.flushes.push_back(flush);
    }

    /// The next flush; `None` if it is the turn of others, or there is none. The caller then dispatches one of these.
    pub fn pop(&mut self, others_wait: bool) -> Option<BlockRequest> {
        let is_others_turn = others_wait && self.has_just_flushed;
        self.has_just_flushed = !self.flushes.is_empty() && !is_others_turn;
        if self.has_just_flushed { self.flushes.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    //! Planted: two flushes in a row while others wait (`is_others_turn` is always false).

    use super::*;
    use plimsoll_core::{AccountId, Operation, RequestId, Time};

    #[test]
    fn takes_turns_with_others_that_wait() {
        let mut queue = FlushQueue::default();
        for id in 0..4 {
            queue.push(BlockRequest::new(RequestId(id), AccountId(1), Operation::Flush, 0, 0, Time::ZERO));
        }
        let others_wait = [false, true, true, false, false, true];
        let popped = others_wait.map(|others| queue.pop(others).map(|flush| flush.id.0));
        assert_eq!(popped, [Some(0), None, Some(1), Some(2), Some(3), None]);
    }
}
