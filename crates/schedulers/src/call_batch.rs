//! Calls that go together, in one batch after the other.
//!
//! **Intuition.** A journal's commit costs the same for one fsync and for twenty, so twenty that go at once share it.
//! **Rule.** The next batch begins when the last is back, and a moment later: the same processes will have their next call
//! ready then. The moment is a small part of what the last batch took. **Complication.** A straggler: after a bound the
//! next batch goes without it.

use plimsoll_core::{Span, Time};

/// How long a batch is gathered at the most: a process is back within some microseconds.
pub const GATHER_MAX: Span = Span::from_micros(500);
/// And at the most this part of the time that the last batch took.
const GATHER_PART: u64 = 16;

/// See the module's text. All is O(1).
pub struct CallBatch {
    waits_max: Span,
    began: Time,
    /// Calls under way.
    inside: u32,
    /// When the next may begin, if all are back.
    gathered: Time,
}

impl CallBatch {
    /// Nothing is under way. The next batch waits for stragglers for so long after one began.
    pub fn new(waits_max: Span) -> CallBatch {
        CallBatch { waits_max, began: Time::ZERO, inside: 0, gathered: Time::ZERO }
    }

    /// When the next may begin: if the last is not back, at the latest.
    pub fn next_at(&self) -> Time {
        if self.inside > 0 { self.began + self.waits_max } else { self.gathered }
    }

    /// A batch begins.
    pub fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// A call goes on: in the batch under way, or as one of its own.
    pub fn entered(&mut self, now: Time) {
        if self.inside == 0 {
            self.begin(now);
        }
        self.inside += 1;
    }

    /// A call is back.
    pub fn left(&mut self, now: Time) {
        self.inside -= 1;
        let took = now.since(self.began).as_nanos();
        self.gathered = now + Span::from_nanos(took / GATHER_PART).min(GATHER_MAX);
    }
}

#[cfg(test)]
mod tests {
    //! Planted: the next batch begins as soon as the last is back; stragglers are waited for for ever.

    use super::*;

    #[test]
    fn the_next_batch_begins_a_moment_after_the_last_is_back() {
        let at = |microseconds| Time::ZERO + Span::from_micros(microseconds);
        let mut batch = CallBatch::new(Span::from_millis(100));
        assert_eq!(batch.next_at(), Time::ZERO);
        batch.entered(at(1000));
        batch.entered(at(1100));
        assert_eq!(batch.next_at(), at(101_000), "a straggler");
        batch.left(at(1400));
        assert_eq!(batch.next_at(), at(101_000));
        batch.left(at(2600));
        assert_eq!(batch.next_at(), at(2700), "a sixteenth of 1600");
        batch.entered(at(10_000));
        batch.left(at(90_000));
        assert_eq!(batch.next_at(), at(90_500), "not more than the bound");
        batch.entered(at(100_000));
        batch.begin(at(250_000));
        batch.entered(at(250_000));
        assert_eq!(batch.next_at(), at(350_000), "of the batch that goes without the straggler");
    }
}
