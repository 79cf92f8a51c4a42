//! The three queues, shared by threads without a lock on the fast path.
//!
//! A queue is bounded by how many requests there may be at all, so that its memory is taken once. Requests with a
//! deadline have a lock: they alone are ordered, and few.
//!
//! The rule is that of [`Queues`], with one exception. Threads that take at the same moment do not see each other. With
//! N of them up to N - 1 more requests with a deadline may go one after the other.

use crate::queues::{Queues, URGENT_IN_A_ROW_MAX, Waiting};
use crate::{QUEUES, Queue};
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use plimsoll_core::Time;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

pub(super) struct Lines<T> {
    lines: [ArrayQueue<Waiting<T>>; QUEUES],
    /// Those of the high queue that have a deadline.
    urgent: Mutex<Queues<T>>,
    urgent_count: CachePadded<AtomicU32>,
    /// Of these, taken one after the other; with several threads about so many.
    urgent_in_a_row: CachePadded<AtomicU32>,
    depths: [CachePadded<AtomicU32>; QUEUES],
}

impl<T> Lines<T> {
    /// For so many requests at once.
    pub(super) fn new(requests_max: usize) -> Lines<T> {
        Lines {
            lines: std::array::from_fn(|_| ArrayQueue::new(requests_max)),
            urgent: Mutex::default(),
            urgent_count: CachePadded::default(),
            urgent_in_a_row: CachePadded::default(),
            depths: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// O(1); in the high queue, with a deadline, O(log those).
    pub(super) fn put(&self, queue: Queue, request: T, deadline: Option<Time>, since: Time) {
        let waiting = Waiting { request, deadline, since };
        if queue == Queue::High && deadline.is_some() {
            self.urgent.lock().unwrap_or_else(PoisonError::into_inner).put(queue, waiting);
            self.urgent_count.fetch_add(1, SeqCst);
        } else if self.lines[queue.index()].push(waiting).is_err() {
            unreachable!("a queue has a place for each request that there is");
        }
        self.depths[queue.index()].fetch_add(1, SeqCst);
    }

    /// Like [`put`](Self::put).
    pub(super) fn take(&self, queue: Queue) -> Option<Waiting<T>> {
        let taken = match queue {
            Queue::High if self.urgent_count.load(Relaxed) > 0 => self.take_among_urgent(),
            Queue::High => self.take_in_order(),
            _ => self.lines[queue.index()].pop(),
        }?;
        self.depths[queue.index()].fetch_sub(1, SeqCst);
        Some(taken)
    }

    /// Out of the high queue, by the rule of [`Queues`].
    fn take_among_urgent(&self) -> Option<Waiting<T>> {
        let is_others_turn = self.urgent_in_a_row.load(Relaxed) >= URGENT_IN_A_ROW_MAX;
        let other = if is_others_turn { self.lines[Queue::High.index()].pop() } else { None };
        if other.is_some() {
            self.urgent_in_a_row.store(0, Relaxed);
            return other;
        }
        self.take_urgent().or_else(|| self.take_in_order())
    }

    /// Takes from the high queue when no request has a deadline, or none is there: a row of those with one ends.
    fn take_in_order(&self) -> Option<Waiting<T>> {
        // Mostly no request ever has one: then threads only read it.
        if self.urgent_in_a_row.load(Relaxed) != 0 {
            self.urgent_in_a_row.store(0, Relaxed);
        }
        self.lines[Queue::High.index()].pop()
    }

    fn take_urgent(&self) -> Option<Waiting<T>> {
        let taken = self.urgent.lock().unwrap_or_else(PoisonError::into_inner).take(Queue::High)?;
        self.urgent_count.fetch_sub(1, SeqCst);
        self.urgent_in_a_row.fetch_add(1, Relaxed);
        Some(taken)
    }

    /// How many wait in each. A request is counted after it can be taken and until it is. So a depth may be one too low
    /// for a moment, and no waiting request is overlooked for ever.
    pub(super) fn depths(&self) -> [u32; QUEUES] {
        // A taker may be faster than the count: then it is below zero for a moment, which is none.
        std::array::from_fn(|at| {
            let depth = self.depths[at].load(SeqCst);
            if depth > u32::MAX / 2 { 0 } else { depth }
        })
    }
}
