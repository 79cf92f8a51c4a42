//! Front ends that found no memory for a buffer.

use crate::buffer_memory::BufferMemory;
use crate::seat::Seat;
use plimsoll_core::{Span, Time};

/// Time of the next try of a front end without memory for a buffer. Other engines, too, may give memory back at any
/// time.
const TRY_AGAIN: Span = Span::from_millis(10);

/// Memory for the buffers of all connections, and the front ends that wait for some.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferClass;
    use crate::buffer::Arena;
    use crate::path::samples::{ground, memory_seat};

    fn seat(index: u32) -> Seat {
        let volume = memory_seat().volume;
        let arena = Arena::new(&[BufferClass { bytes: 4096, count: 1 }], None).unwrap();
        let (info, session) = (volume.info().clone(), ground().1);
        Seat {
            index,
            volume: 0,
            info,
            session,
            reader: None,
            arena,
            operations: 0,
            requests: 0,
            is_touched: false,
            waits_for_memory: false,
            _memory: None,
        }
    }

    /// Planted breaks: a front end that waits comes twice; the time is that of the last one.
    #[test]
    fn front_ends_that_found_no_memory_try_again_once_and_together() {
        let (mut memory, mut seats) = (Memory::new(BufferMemory::default()), [seat(3), seat(4)]);
        let (begin, later) = (Time::ZERO, Time::ZERO + Span::from_millis(6));
        memory.wait(begin, &mut seats[0]);
        seats.iter_mut().for_each(|seat| memory.wait(later, seat));
        assert_eq!(memory.try_again(), Some(begin + TRY_AGAIN));
        assert_eq!([later, begin + TRY_AGAIN, later + TRY_AGAIN].map(|now| memory.is_time(now)), [false, true, false]);
        assert_eq!((memory.take_waiting(), memory.take_waiting()), (vec![3, 4], vec![]));
    }
}
