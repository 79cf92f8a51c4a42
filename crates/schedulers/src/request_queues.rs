//! Many first-in-first-out queues of requests in one block of memory.
//!
//! A hundred thousand sessions, most of them with nothing queued, would each pay for a buffer of their own. Here the
//! requests of all queues stand in one growing array, linked by index, and an empty queue is two numbers.

use plimsoll_core::BlockRequest;

const NONE: u32 = u32::MAX;

/// One queue: its first and last request in the shared array.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    head: u32,
    tail: u32,
}

impl Queue {
    /// A queue without requests.
    pub const EMPTY: Queue = Queue { head: NONE, tail: NONE };

    /// Whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.head == NONE
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
        match queue.tail {
            NONE => queue.head = index,
            tail => self.entries[tail as usize].1 = index,
        }
        queue.tail = index;
    }

    /// Takes the first request out of `queue`.
    pub fn pop(&mut self, queue: &mut Queue) -> Option<BlockRequest> {
        let index = (queue.head != NONE).then_some(queue.head)?;
        let (request, next) = &mut self.entries[index as usize];
        queue.head = *next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        self.free.push(index);
        request.take()
    }

    /// The first request of `queue`.
    pub fn front(&self, queue: &Queue) -> Option<&BlockRequest> {
        self.entries.get(queue.head as usize)?.0.as_ref()
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
                    prop_assert_eq!(queues.front(&heads[queue]).map(|r| r.id.0), oracle[queue].front().copied());
                    prop_assert_eq!(queues.pop(&mut heads[queue]).map(|r| r.id.0), oracle[queue].pop_front());
                }
                prop_assert_eq!(heads[queue].is_empty(), oracle[queue].is_empty());
            }
        }
    }
}
