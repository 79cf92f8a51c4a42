//! A second commit of the journal while the disk is there.
//!
//! **Intuition.** When a commit is done, a waiting call writes again and has changed its inode again, long before its
//! data can be written. Its pages lie far away, and the head is at the journal. A commit that goes at once costs two
//! revolutions; one that goes after the data has cost the way there and back as well. So the next calls are committed
//! *ahead* of their data. When these are written, the calls are over, and their processes can write once more before
//! the head leaves.
//!
//! ```text
//!   one commit a round:  data, ------> commit, <------
//!   two:                 data, data, ------> commit, commit, <------
//! ```
//!
//! **Rule.** When a batch of fsyncs with a commit is back, another commit is wished for ([`Wish::Commit`]) before the
//! next batch goes. While that batch writes its data, the dirty pages of the next calls are written, too
//! ([`Wish::StartWriteback`]). That is done for no more files than the batch has calls. A drive that can choose is
//! quicker.
//!
//! **Complication.** It may be of no use. Calls that allocate join a transaction when their data are written, and still
//! need a commit after it. A host may also not grant the wish. Then it is not tried for two batches, then for four, and
//! so on.
//!
//! All is O(1), but for the files, each of which is named once.

use crate::joined_calls::writes_journal;
use plimsoll_core::{BlockRequest, FileId, RequestId, Span, Time, Wish};

/// A commit that has not begun by then is not granted: one that is takes some microseconds to begin.
const GRANT_MAX: Span = Span::from_millis(5);
/// One that has begun is waited for so long: a batch's length.
const COMMIT_MAX: Span = Span::from_millis(500);
/// The time that released calls are given to begin their own writes, before others' are begun for them.
const HEAD_START: Span = Span::from_micros(100);
/// Of each file, bytes that are written early: what one small transaction changes.
const EARLY_BYTES_MAX: u64 = 16 << 10;
/// Files that wait to be written early, at the most.
const EARLY_FILES_MAX: usize = 256;
/// After this many failures in a row the pauses, in batches, double no more.
const FAILURES_MAX: u32 = 6;

/// Where the commits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None has ended since the batch began.
    None,
    /// One has.
    One,
    /// Another is wished for, and waited for until then.
    Wished(Time),
    /// Two commits: the last block of the second is on its way.
    Two,
}

/// See the module's text.
pub struct SecondCommit {
    has_head: bool,
    state: State,
    must_wish: bool,
    /// The last block of a commit that no call asked for.
    record: Option<RequestId>,
    /// The batch under way was committed before it began.
    is_ahead: bool,
    /// Files to be written meanwhile, not before this time, and how many more there may be.
    early: Vec<FileId>,
    early_at: Time,
    early_left: usize,
    failures: u32,
    /// Batches that go before it is tried again.
    pause: u32,
}

impl SecondCommit {
    /// For a device; one without a head has nothing to gain.
    pub fn new(has_head: bool) -> SecondCommit {
        SecondCommit {
            has_head,
            state: State::None,
            must_wish: false,
            record: None,
            is_ahead: false,
            early: Vec::new(),
            early_at: Time::ZERO,
            early_left: 0,
            failures: 0,
            pause: 0,
        }
    }

    /// An fsync of a file came.
    pub fn fsync_came(&mut self, file: FileId) {
        if self.is_ahead {
            if self.early_left > 0 {
                self.early_left -= 1;
                self.early.push(file);
            }
        } else if self.has_head && self.early.len() < EARLY_FILES_MAX {
            self.early.push(file);
        }
    }

    /// A request came. A forced write to the journal ends a commit.
    pub fn request_added(&mut self, now: Time, request: &BlockRequest) {
        if !self.has_head || !writes_journal(request) {
            return;
        }
        match (self.state, request.is_forced) {
            (State::Wished(_), false) => self.state = State::Wished(now + COMMIT_MAX),
            (State::Wished(_), true) => self.state = State::Two,
            (_, true) => self.record = Some(request.id),
            _ => {}
        }
    }

    /// The device is done with a request; `is_batch_inside` says whether calls of the batch are under way.
    pub fn completed(&mut self, id: RequestId, is_batch_inside: bool) {
        if self.record != Some(id) {
            return;
        }
        self.record = None;
        if self.is_ahead && is_batch_inside {
            self.failed();
        }
        if self.state == State::None {
            self.state = State::One;
        }
    }

    /// Whether a batch that could go now has to wait for a commit.
    pub fn must_wait(&mut self, now: Time) -> bool {
        match self.state {
            State::One if self.pause == 0 => {
                self.state = State::Wished(now + GRANT_MAX);
                self.must_wish = true;
            }
            State::Wished(until) if until <= now => {
                self.failed();
                self.state = State::None;
            }
            _ => {}
        }
        matches!(self.state, State::Wished(_))
    }

    /// A batch of so many calls goes.
    pub fn batch_began(&mut self, now: Time, calls: usize) {
        if self.is_ahead {
            self.failures = 0;
        }
        self.is_ahead = self.state == State::Two;
        self.state = State::None;
        self.pause = self.pause.saturating_sub(1);
        self.early_left = calls;
        self.early_at = now + HEAD_START;
        self.early.truncate(if self.is_ahead { calls } else { 0 });
    }

    fn failed(&mut self) {
        self.is_ahead = false;
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.pause = 1 << self.failures;
    }

    /// What the host should do.
    pub fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        if std::mem::take(&mut self.must_wish) {
            wishes.push(Wish::Commit);
        }
        if let State::Wished(until) = self.state
            && until > now
        {
            wishes.push(Wish::WakeAt(until));
        }
        if self.is_ahead && !self.early.is_empty() {
            if now < self.early_at {
                wishes.push(Wish::WakeAt(self.early_at));
            } else {
                let bytes_max = EARLY_BYTES_MAX;
                wishes.extend(self.early.drain(..).map(|file| Wish::StartWriteback { file, bytes_max }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted: there is no second commit; a third follows; nothing is written early; everything is, however much it
    //! is; what fails is tried again at once; what failed is never forgotten; a call without a granted commit waits for
    //! it; a device without a head is asked for two; files are remembered without end.

    use super::*;
    use plimsoll_core::{AccountId, Class, Operation};

    fn at(microseconds: u64) -> Time {
        Time::ZERO + Span::from_micros(microseconds)
    }

    fn journal_write(id: u64, is_forced: bool) -> BlockRequest {
        let request = BlockRequest::new(RequestId(id), AccountId(1), Operation::Write, 0, 4096, Time::ZERO);
        BlockRequest { class: Class::JOURNAL, is_forced, ..request }
    }

    fn wishes(commits: &mut SecondCommit, now: Time) -> Vec<Wish> {
        let mut wishes = Vec::new();
        commits.wishes(now, &mut wishes);
        wishes
    }

    /// A batch of three calls goes, and a commit with it.
    fn batch_with_commit(commits: &mut SecondCommit, now: Time) {
        commits.batch_began(now, 3);
        commits.request_added(now, &journal_write(1, false));
        commits.completed(RequestId(1), true);
        commits.request_added(now, &journal_write(2, true));
        commits.completed(RequestId(2), true);
    }

    /// Promise: afq-fsync-cost.
    #[test]
    fn every_other_batch_is_committed_before_it_goes() {
        let mut commits = SecondCommit::new(true);
        for start in [0, 1_000_000, 2_000_000] {
            batch_with_commit(&mut commits, at(start));
            (0..5).for_each(|file| commits.fsync_came(FileId(file)));
            assert!(commits.must_wait(at(start + 100)));
            assert!(commits.must_wait(at(start + 200)));
            assert_eq!(wishes(&mut commits, at(start + 200)), [Wish::Commit, Wish::WakeAt(at(start + 5100))]);
            assert_eq!(wishes(&mut commits, at(start + 200)), [Wish::WakeAt(at(start + 5100))], "once");
            commits.request_added(at(start + 300), &journal_write(3, false));
            assert!(commits.must_wait(at(start + 20_000)), "it is on its way");
            commits.request_added(at(start + 20_000), &journal_write(4, true));
            assert!(!commits.must_wait(at(start + 20_000)), "its last block is");

            commits.batch_began(at(start + 20_000), 3);
            assert_eq!(wishes(&mut commits, at(start + 20_050)), [Wish::WakeAt(at(start + 20_100))]);
            commits.completed(RequestId(4), true);
            let early = |file| Wish::StartWriteback { file: FileId(file), bytes_max: EARLY_BYTES_MAX };
            assert_eq!(wishes(&mut commits, at(start + 20_100)), [0, 1, 2].map(early), "as many as went");
            (5..9).for_each(|file| commits.fsync_came(FileId(file)));
            assert_eq!(wishes(&mut commits, at(start + 30_000)), [5, 6, 7].map(early), "as many as may come back");
            assert!(!commits.must_wait(at(start + 40_000)), "nothing was committed since");
        }
    }

    #[test]
    fn what_is_of_no_use_is_tried_less_and_less() {
        let mut commits = SecondCommit::new(true);
        let (mut tried, mut now) = (Vec::new(), 0);
        for batch in 0..1000 {
            batch_with_commit(&mut commits, at(now));
            if commits.must_wait(at(now)) {
                tried.push(batch);
                commits.request_added(at(now), &journal_write(3, true));
            }
            now += 100_000;
        }
        let pauses: Vec<_> = tried.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(pauses[..7], [3, 5, 9, 17, 33, 65, 65]);
        // Then it is: the batch's calls come back without a commit.
        let is_tried = |commits: &mut SecondCommit, now| {
            batch_with_commit(commits, now);
            let is_tried = commits.must_wait(now);
            commits.request_added(now, &journal_write(3, true));
            is_tried
        };
        while !is_tried(&mut commits, at(now)) {}
        commits.batch_began(at(now), 3);
        assert!(is_tried(&mut commits, at(now)));
        let batches = (1..).find(|_| is_tried(&mut commits, at(now)));
        assert_eq!(batches, Some(3), "what failed long ago is forgotten");
    }

    /// Promise: afq-commit-wish.
    #[test]
    fn a_wish_that_is_not_granted_holds_no_call_for_long() {
        let mut commits = SecondCommit::new(true);
        batch_with_commit(&mut commits, at(0));
        assert!(commits.must_wait(at(0)));
        assert_eq!(wishes(&mut commits, at(0)), [Wish::Commit, Wish::WakeAt(Time::ZERO + GRANT_MAX)]);
        assert!(!commits.must_wait(Time::ZERO + GRANT_MAX));
        commits.batch_began(at(6000), 3);
        commits.fsync_came(FileId(1));
        assert_eq!(wishes(&mut commits, at(7000)), []);
        let mut stuck = SecondCommit::new(true);
        batch_with_commit(&mut stuck, at(0));
        assert!(stuck.must_wait(at(0)));
        stuck.request_added(at(10), &journal_write(3, false));
        assert!(stuck.must_wait(Time::ZERO + GRANT_MAX));
        assert!(!stuck.must_wait(at(10) + COMMIT_MAX));
    }

    #[test]
    fn a_device_without_a_head_is_left_alone() {
        let mut commits = SecondCommit::new(false);
        batch_with_commit(&mut commits, at(0));
        commits.fsync_came(FileId(1));
        assert!(!commits.must_wait(at(100)));
        assert_eq!(wishes(&mut commits, at(100)), []);
    }

    #[test]
    fn files_of_calls_that_are_never_in_a_batch_are_forgotten() {
        let mut commits = SecondCommit::new(true);
        (0..10_000).for_each(|file| commits.fsync_came(FileId(file)));
        assert_eq!(commits.early.len(), EARLY_FILES_MAX);
        commits.batch_began(at(0), 3);
        assert!(commits.early.is_empty());
    }
}
