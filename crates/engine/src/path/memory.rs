//! Front ends that found no memory for a buffer.

use crate::buffer_memory::BufferMemory;
use crate::seat::Seat;
use plimsoll_core::{Span, Time};

/// When a front end tries again that found no memory for a buffer: others, also of other engines, give it back when they like.
const TRY_AGAIN: Span = Span::from_millis(10);

/// What the buffers of all connections are taken from, and the front ends that wait for some of it.
pub(crate) struct Memory {
    buffers: BufferMemory,
    waiting: Vec<u32>,
    try_again: Option<Time>,
}

impl Memory {
    pub(crate) fn new(buffers: BufferMemory) -> Memory {
        Memory { buffers, waiting: Vec::new(), try_again: None }
    }

    /// What the buffers of another volume's connections are taken from.
    pub(crate) fn of_another_volume(&self) -> BufferMemory {
        self.buffers.of_another()
    }

    /// Remembers that a front end found no memory for a buffer.
    pub(crate) fn wait(&mut self, now: Time, seat: &mut Seat) {
        if !std::mem::replace(&mut seat.waits_for_memory, true) {
            self.waiting.push(seat.index);
            self.try_again.get_or_insert(now + TRY_AGAIN);
        }
    }

    /// When front ends try again.
    pub(crate) fn try_again(&self) -> Option<Time> {
        self.try_again
    }

    /// Whether it is time for them to do so. They are [taken](Self::take_waiting) then.
    pub(crate) fn is_time(&mut self, now: Time) -> bool {
        self.try_again.take_if(|at| *at <= now).is_some()
    }

    /// Takes the front ends that wait.
    pub(crate) fn take_waiting(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.waiting)
    }
}
