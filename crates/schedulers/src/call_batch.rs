//! Calls that go together, in one batch after the other.
//!
//! **Intuition.** A journal's commit costs the same for one fsync and for twenty, so twenty that go at once share it.
//! **Rule.** The next batch begins when the last is back, and a moment later: the same processes will have their next
//! call ready then. The moment is a small part of what the last batch took. **Complication.** A straggler: after a
//! bound the next batch goes without it. And the journal may commit once more before the next one goes
//! ([`SecondCommit`]).

use crate::second_commit::SecondCommit;
use plimsoll_core::{BlockRequest, FileId, RequestId, Span, Time, Wish};

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
    second_commit: SecondCommit,
}

impl CallBatch {
    /// Nothing is under way. The next batch waits for stragglers for so long after one began. `has_head` says whether
    /// the device has one, which a second commit saves a way.
    pub fn new(waits_max: Span, has_head: bool) -> CallBatch {
        let second_commit = SecondCommit::new(has_head);
        CallBatch { waits_max, began: Time::ZERO, inside: 0, gathered: Time::ZERO, second_commit }
    }

    /// When the next may begin: if the last is not back, at the latest.
    pub fn next_at(&self) -> Time {
        if self.inside > 0 { self.began + self.waits_max } else { self.gathered }
    }

    /// Whether the next batch, which could begin now, waits until there was a second commit.
    pub fn waits_for_commit(&mut self, now: Time) -> bool {
        self.second_commit.must_wait(now)
    }

    /// A batch began: so many calls [entered](Self::entered) now. None is no batch.
    pub fn begin(&mut self, now: Time, calls: usize) {
        if calls > 0 {
            self.began = now;
            self.second_commit.batch_began(now, calls);
        }
    }

    /// A call came, for a file.
    pub fn came(&mut self, file: FileId) {
        self.second_commit.fsync_came(file);
    }

    /// A call goes: in the batch under way, or as one of its own.
    pub fn entered(&mut self, now: Time) {
        if self.inside == 0 {
            self.began = now;
        }
        self.inside += 1;
    }

    /// A call is back.
    pub fn left(&mut self, now: Time) {
        self.inside -= 1;
        let took = now.since(self.began).as_nanos();
        self.gathered = now + Span::from_nanos(took / GATHER_PART).min(GATHER_MAX);
    }

    /// A request came to the device's queue.
    pub fn request_added(&mut self, now: Time, request: &BlockRequest) {
        self.second_commit.request_added(now, request);
    }

    /// The device is done with a request.
    pub fn request_completed(&mut self, id: RequestId) {
        self.second_commit.completed(id, self.inside > 0);
    }

    /// What the host should do for the sake of the batches.
    pub fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        self.second_commit.wishes(now, wishes);
    }
}

#[cfg(test)]
mod tests {
    //! Planted: the next batch begins as soon as the last is back; stragglers are waited for for ever.

    use super::*;

    #[test]
    fn the_next_batch_begins_a_moment_after_the_last_is_back() {
        let at = |microseconds| Time::ZERO + Span::from_micros(microseconds);
        let mut batch = CallBatch::new(Span::from_millis(100), false);
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
        batch.entered(at(250_000));
        batch.begin(at(250_000), 1);
        assert_eq!(batch.next_at(), at(350_000), "of the batch that goes without the straggler");
    }
}
