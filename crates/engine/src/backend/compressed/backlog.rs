//! Pages that were acknowledged uncompressed and are compressed later: how many may wait, and which threads compress
//! them.
//!
//! **Rule.** A write keeps its page as it is and puts the page's number here. A [`Compressing`], which a service thread
//! runs in the maintenance queue, takes numbers one after the other. So a write takes a copy and a checksum, as long as
//! a service thread has time for the rest. **Complication.** None may have: then it fills up. Where a 64th of it is
//! left, a growing part of the writes *pays*: each compresses its own page at once. In a full backlog, all writes
//! compress their own page. So its memory is bounded, no write waits for another one, and as many pages come in as go
//! out before it is full.
//!
//! **Why so late.** A write that pays is a long request before others, and does what could have been done when no
//! client waited. And the more is left here, the more pages are written again before they are compressed, which is then
//! done once. So where the same pages are written again and again it fills up until there is no more to do than there
//! is time for. The less of it is used, the more there is to do. `docs/executor.md` has figures. The last 64th is 256
//! pages, which a thread compresses in some 20 ms.
//!
//! **A page keeps its place until it is compressed.** If that fails the page comes back to its place, at the end, and
//! the [`Compressing`] that tried ends. The next write that is answered begins another one. So no page is tried again
//! and again, and the bound holds whatever fails.
//!
//! **Why no page is forgotten.** A write that has put one looks afterwards whether a [`Compressing`] runs. A
//! [`Compressing`] that has found nothing more says that it goes, and looks once more afterwards. All four are
//! sequentially consistent, so one of the two sees the other.

use super::{CompressedMemory, CompressionStep};
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Weak};

/// Pages at the most: 64 MiB. What one service thread compresses in some 0.3 seconds at level 1.
const PAGES_MAX: u64 = 16_384;
/// And at most this part of the volume.
const VOLUME_PART_MAX: u64 = 8;
/// Writes compress their own pages when less than this part of it is free.
const FREE_PART: u64 = 64;
/// For each of them one request compresses, if there are as many service threads.
const PAGES_EACH: usize = 512;
/// 2^32 over the golden ratio: multiples of it, modulo 2^32, spread evenly, also a few of them.
const SPREAD: u32 = 0x9e37_79b9;

pub(super) struct Backlog {
    pages: ArrayQueue<u64>,
    /// Of its places, those of pages that are in it or are being compressed.
    places_taken: AtomicUsize,
    /// Writes that came to it.
    writes: AtomicU32,
    /// Requests that compress.
    compressing: AtomicUsize,
}

impl Backlog {
    /// Of a volume of so many pages.
    pub(super) fn new(volume_pages: u64) -> Backlog {
        let pages_max = (volume_pages / VOLUME_PART_MAX).clamp(1, PAGES_MAX);
        Backlog {
            pages: ArrayQueue::new(pages_max as usize),
            places_taken: AtomicUsize::new(0),
            writes: AtomicU32::new(0),
            compressing: AtomicUsize::new(0),
        }
    }

    /// Whether a new write compresses its own page: none does where a 64th of the backlog is free, all where it is
    /// full. O(1).
    pub(super) fn pays(&self) -> bool {
        let (pages, pages_max) = (self.pages.len() as u64, self.pages.capacity() as u64);
        let part = ((FREE_PART * pages).saturating_sub((FREE_PART - 1) * pages_max) << 32) / pages_max;
        u64::from(self.writes.fetch_add(1, Relaxed).wrapping_mul(SPREAD)) < part
    }

    /// Puts a page that is not in it; says whether there was room. O(1).
    pub(super) fn put(&self, page: u64) -> bool {
        let places = self.pages.capacity();
        let has_place =
            self.places_taken.fetch_update(AcqRel, Acquire, |taken| (taken < places).then_some(taken + 1)).is_ok();
        if has_place {
            self.put_back(page);
        }
        has_place
    }

    /// Puts a page back that was taken and has its place still. O(1).
    pub(super) fn put_back(&self, page: u64) {
        self.pages.push(page).expect("it has a place");
    }

    /// A page that was taken needs its place no more. O(1).
    pub(super) fn leave_place(&self) {
        self.places_taken.fetch_sub(1, Release);
    }

    /// Takes the page that is in it for longest, which keeps its place. O(1).
    pub(super) fn take(&self) -> Option<u64> {
        self.pages.pop()
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// One more compresses, if there is enough for it and fewer than `most` do so.
    fn begin(&self, most: usize) -> bool {
        let wanted = self.pages().div_ceil(PAGES_EACH).min(most);
        let more = |compressing| (compressing < wanted).then_some(compressing + 1);
        self.compressing.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    fn end(&self) {
        self.compressing.fetch_sub(1, SeqCst);
    }
}

/// Work that compresses pages of a volume's backlog, until that is empty or the volume is gone.
pub(crate) struct Compressing {
    memory: Weak<CompressedMemory>,
    most: usize,
    /// It is counted among the work that compresses.
    is_counted: bool,
}

impl Compressing {
    /// Begins work, if the backlog has more than other work takes already, and fewer than `most` compress. O(1).
    pub(crate) fn begin(memory: &Arc<CompressedMemory>, most: usize) -> Option<Compressing> {
        let begins = memory.backlog.begin(most);
        begins.then(|| Compressing { memory: Arc::downgrade(memory), most, is_counted: true })
    }

    /// Compresses a page. The answer is true if there may be more.
    pub(crate) fn one_page(&mut self) -> bool {
        let Some(memory) = self.memory.upgrade() else { return false };
        match memory.compress_one() {
            CompressionStep::Page => true,
            CompressionStep::Failure => false,
            CompressionStep::Nothing => self.stays(&memory),
        }
    }

    /// It has found nothing: it goes, unless something has come before it has said so.
    pub(super) fn stays(&mut self, memory: &CompressedMemory) -> bool {
        self.is_counted = false;
        memory.backlog.end();
        self.is_counted = memory.backlog.begin(self.most);
        self.is_counted
    }
}

impl Drop for Compressing {
    fn drop(&mut self) {
        if self.is_counted
            && let Some(memory) = self.memory.upgrade()
        {
            memory.backlog.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: the writes that pay come in a row (`writes` modulo 2^32 without being spread).
    /// Promise: compressed-backlog-bound.
    #[test]
    fn the_fuller_it_is_the_more_pay_and_they_are_spread() {
        let backlog = Backlog::new(8 * 6400);
        let of_a_thousand = |backlog: &Backlog| {
            let pays: Vec<bool> = (0..1000).map(|_| backlog.pays()).collect();
            let longest = pays.chunk_by(|one, next| one == next).filter(|row| !row[0]).map(<[bool]>::len).max();
            (pays.iter().filter(|&&pays| pays).count(), longest.unwrap_or(0))
        };
        let mut filled = 0;
        for (fill, expected, free_in_a_row) in
            [(0, 0, 1000), (6300, 0, 1000), (6320, 200, 8), (6350, 500, 3), (6399, 990, 1), (6400, 1000, 0)]
        {
            while filled < fill {
                assert!(backlog.put(filled));
                filled += 1;
            }
            let (paid, longest) = of_a_thousand(&backlog);
            assert!(
                paid.abs_diff(expected) <= 3 && longest <= free_in_a_row,
                "{fill}: {paid} paid, {longest} in a row"
            );
        }
        assert!(!backlog.put(6400), "there is no room");
    }

    #[test]
    fn as_many_compress_as_there_is_work_for() {
        let backlog = Backlog::new(1 << 20);
        assert!(!backlog.begin(2), "nothing to do");
        assert!(backlog.put(0) && backlog.begin(2) && !backlog.begin(2), "work for one");
        (0..PAGES_EACH as u64).for_each(|page| assert!(backlog.put(page)));
        assert!(backlog.begin(2) && !backlog.begin(2), "work for two");
        (0..4 * PAGES_EACH as u64).for_each(|page| assert!(backlog.put(page)));
        assert!(!backlog.begin(2), "not more than there are threads");
        backlog.end();
        assert!(backlog.begin(2));
    }
}
