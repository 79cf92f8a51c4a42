//! Many first-in-first-out queues of requests.
//!
//! Most queues hold one request or none, so the first request stands in the queue itself. A caller with the queue at
//! hand has the request too, without another wait for memory. Later requests stand in one growing array that all queues
//! share, linked by index. A hundred thousand buffers of their own would be mostly empty.

use plimsoll_core::{BlockRequest, prefetch};

const NONE: u32 = u32::MAX;

/// One queue: its first request, and where in the shared array the second and the last one are.
#[derive(Debug)]
pub struct Queue {
    front: Option<BlockRequest>,
    second: u32,
    last: u32,
}

impl Queue {
    /// A queue without requests.
    pub const EMPTY: Queue = Queue { front: None, second: NONE, last: NONE };

    /// Whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.front.is_none() && self.second == NONE
    }

    /// The first request.
    pub const fn front(&self) -> Option<&BlockRequest> {
        self.front.as_ref()
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue::EMPTY
    }
}

/// The shared array. Push and pop are O(1) and allocate only while the number of queued requests is a new record.
#[derive(Default)]
pub struct RequestQueues {
    entries: Vec<(Option<BlockRequest>, u32)>,
    free: Vec<u32>,
}

impl RequestQueues {
    /// Appends `request` to `queue`.
    pub fn push(&mut self, queue: &mut Queue, request: BlockRequest) {
        if queue.is_empty() {
            queue.front = Some(request);
            return;
        }
        let entry = (Some(request), NONE);
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        match queue.second {
            NONE => queue.second = index,
            _ => self.entries[queue.last as usize].1 = index,
        }
        queue.last = index;
    }

    /// Takes the first request out of `queue`.
    pub fn pop(&mut self, queue: &mut Queue) -> Option<BlockRequest> {
        let request = self.take(queue);
        self.refill(queue);
        request
    }

    /// As [`pop`](Self::pop), for a caller with other work while the next request is loaded. Until
    /// [`refill`](Self::refill) the queue knows only whether it is empty.
    pub fn take(&self, queue: &mut Queue) -> Option<BlockRequest> {
        if let Some(second) = self.entries.get(queue.second as usize) {
            prefetch(second);
        }
        queue.front.take()
    }

    /// Makes what is behind a request that was taken the first one.
    pub fn refill(&mut self, queue: &mut Queue) {
        if queue.second != NONE {
            let (second, third) = &mut self.entries[queue.second as usize];
            queue.front = second.take();
            self.free.push(queue.second);
            queue.second = *third;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{AccountId, Operation, RequestId, Time};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn each_queue_is_a_plain_queue(steps in proptest::collection::vec((0usize..4, any::<bool>()), 1..200)) {
            let mut queues = RequestQueues::default();
            let mut heads = [Queue::EMPTY; 4];
            let mut oracle: [VecDeque<u64>; 4] = Default::default();
            for (number, (queue, is_push)) in steps.into_iter().enumerate() {
                if is_push {
                    let id = RequestId(number as u64);
                    let request = BlockRequest::new(id, AccountId(1), Operation::Read, 0, 512, Time::ZERO);
                    queues.push(&mut heads[queue], request);
                    oracle[queue].push_back(number as u64);
                } else {
                    prop_assert_eq!(heads[queue].front().map(|r| r.id.0), oracle[queue].front().copied());
                    let taken = queues.take(&mut heads[queue]).map(|r| r.id.0);
                    prop_assert_eq!(taken, oracle[queue].pop_front());
                    prop_assert_eq!(heads[queue].is_empty(), oracle[queue].is_empty(), "between taking and refilling");
                    queues.refill(&mut heads[queue]);
                }
                prop_assert_eq!(heads[queue].is_empty(), oracle[queue].is_empty());
            }
        }
    }
}
