//! A hash of everything that happened in a run: two runs with the same hash took the same course.
//!
//! Each event is folded in as a few 64-bit words. Each word is XORed in, multiplied by an odd constant and shifted
//! down, in wrapping arithmetic. So the hash is the same on every machine.

use plimsoll_core::Time;
use std::cell::Cell;

/// 2^64 divided by the golden ratio, made odd: the usual multiplier of Fibonacci hashing (Knuth, volume 3, section
/// 6.4).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Event {
    /// A process entered a system call.
    CallEntered = 1,
    /// A call returned.
    CallReturned,
    /// Pages became dirty.
    Dirtied,
    /// Dirty pages were dropped.
    Freed,
    /// A request reached the scheduler.
    Added,
    /// A request went to the device.
    Dispatched,
    /// The device finished a request.
    Completed,
}

/// `hash` with `word` folded in.
#[inline]
pub(crate) fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 32
}

/// The running hash of a machine.
#[derive(Default)]
pub struct Trace {
    hash: Cell<u64>,
    events: Cell<u64>,
}

impl Trace {
    /// Folds an event in: what, when, to which account, and how much.
    #[inline]
    pub fn record(&self, event: Event, now: Time, subject: u64, amount: u64) {
        let mut hash = self.hash.get();
        for word in [event as u64, now.as_nanos(), subject, amount] {
            hash = mixed(hash, word);
        }
        self.hash.set(hash);
        self.events.set(self.events.get() + 1);
    }

    /// The number that stands for the run so far.
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Events recorded.
    pub fn events(&self) -> u64 {
        self.events.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand with wrapping arithmetic of any language: the number is defined, not an accident.
    #[test]
    fn the_hash_is_the_same_on_every_machine() {
        let trace = Trace::default();
        trace.record(Event::CallEntered, Time::from_nanos(2), 3, 4);
        let mut hash = 0u128;
        for word in [1u128, 2, 3, 4] {
            hash = ((hash ^ word) * 0x9E37_79B9_7F4A_7C15) & u128::from(u64::MAX);
            hash ^= hash >> 32;
        }
        assert_eq!(u128::from(trace.hash()), hash);
    }

    #[test]
    fn order_and_time_count() {
        let of = |events: &[(Event, u64)]| {
            let trace = Trace::default();
            events.iter().for_each(|&(event, at)| trace.record(event, Time::from_nanos(at), 0, 0));
            trace.hash()
        };
        let (added, freed) = (Event::Added, Event::Freed);
        assert_ne!(of(&[(added, 1), (freed, 1)]), of(&[(freed, 1), (added, 1)]));
        assert_ne!(of(&[(added, 1)]), of(&[(added, 2)]));
    }
}
