//! The page cache: pages of files in memory, each clean, dirty, being read or being written. Each dirty page has the
//! set of accounts that dirtied it.
//!
//! ```text
//!   absent --insert--> locked --end_read--> clean --dirty--> dirty --begin_writeback--> writeback
//!     ^                                     | ^                ^------ dirty again -------+   |
//!     +----- evicted: memory is short ------+ +---------------- end_writeback ----------------+
//! ```
//!
//! [`Cache`] is the state, without tasks or time. [`crate::calls`] and [`crate::writeback`] read, write and throttle. A
//! page may be dirty and being written at once: it was dirtied again after its writing began.
//!
//! Flow is conserved: every page that became dirty was cleaned (its writing began), freed, or is dirty still.

pub mod causes;
pub mod frames;
pub mod mapping;

#[cfg(test)]
mod tests;

use causes::{CauseId, CauseSets};
use frames::{DIRTY, Frames, LOCKED, PINNED, READ_AHEAD, WRITEBACK};
use mapping::Mapping;
use plimsoll_core::{CauseSet, prefetch};

/// Bytes of a page (x86-64).
pub const PAGE_BYTES: u64 = 4096;
/// Pages given up at once when memory is short (Linux `SWAP_CLUSTER_MAX`).
const RECLAIM_PAGES: u64 = 32;

/// A file by number; the host's [`plimsoll_core::FileId`] is the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeNumber(pub u32);

impl InodeNumber {
    /// The device itself: its pages are the file system's metadata blocks, by place on the device.
    pub const DEVICE: InodeNumber = InodeNumber(0);
    /// The directory that everything is in.
    pub const ROOT: InodeNumber = InodeNumber(1);

    /// As schedulers see it.
    pub fn file(self) -> plimsoll_core::FileId {
        plimsoll_core::FileId(u64::from(self.0))
    }
}

/// Pages of a file that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageRange {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl PageRange {
    /// The pages that the bytes from `offset` lie in.
    pub fn of_bytes(offset: u64, length: u64) -> PageRange {
        let first = offset / PAGE_BYTES;
        PageRange { first, count: (offset + length).div_ceil(PAGE_BYTES) - first }
    }

    /// The page after the last.
    pub fn end(self) -> u64 {
        self.first + self.count
    }
}

/// Pages of a file that one bio carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSpan {
    /// The file.
    pub inode: InodeNumber,
    /// The pages.
    pub pages: PageRange,
    /// The causes that dirtied them; empty for reads.
    pub causes: CauseSet,
}

/// A stretch of pages with the same earlier causes, as they were dirtied or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageChange {
    /// The pages.
    pub pages: PageRange,
    /// The causes that had dirtied them before; none if they were clean.
    pub previous: CauseId,
}

/// How many pages went through which state since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pages that became dirty (dirty ones dirtied again not counted).
    pub dirtied: u64,
    /// Dirty pages that began to be written.
    pub cleaned: u64,
    /// Dirty pages dropped unwritten.
    pub freed: u64,
    /// Pages that have been written.
    pub written: u64,
    /// Clean pages given up for lack of memory.
    pub evicted: u64,
    /// Pages used that were in memory, by reads.
    pub hits: u64,
    /// Pages that reads had to wait for.
    pub misses: u64,
}

/// Pages of all files.
pub struct Cache {
    frames: Frames,
    mappings: Vec<Mapping>,
    /// Cause sets by number.
    pub causes: CauseSets,
    dirty: u64,
    writeback: u64,
    dirty_max: u64,
    /// Counts since the start.
    pub totals: Totals,
}

impl Cache {
    /// An empty cache with memory for so many bytes.
    pub fn new(memory_bytes: u64) -> Cache {
        let pages = u32::try_from(memory_bytes / PAGE_BYTES).unwrap_or(u32::MAX - 1);
        Cache {
            frames: Frames::new(pages),
            mappings: Vec::new(),
            causes: CauseSets::default(),
            dirty: 0,
            writeback: 0,
            dirty_max: 0,
            totals: Totals::default(),
        }
    }

    /// Pages of memory.
    pub fn capacity(&self) -> u64 {
        self.frames.capacity()
    }

    /// Pages dirty and not being written yet.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// The most pages that were dirty at once.
    pub fn dirty_max(&self) -> u64 {
        self.dirty_max
    }

    /// Pages being written.
    pub fn writeback(&self) -> u64 {
        self.writeback
    }

    /// The pages of a file.
    pub fn mapping(&self, inode: InodeNumber) -> Option<&Mapping> {
        self.mappings.get(inode.0 as usize)
    }

    fn mapping_mut(&mut self, inode: InodeNumber) -> &mut Mapping {
        let index = inode.0 as usize;
        if self.mappings.len() <= index {
            self.mappings.resize_with(index + 1, Mapping::default);
        }
        &mut self.mappings[index]
    }

    fn frame_id(&self, inode: InodeNumber, page: u64) -> Option<frames::FrameId> {
        self.mapping(inode)?.frame(page)
    }

    /// A call is going to use a page: starts loading what says where it is. The call lets other tasks run first, so
    /// that it does not wait for this machine's memory. Without effect on any result.
    pub fn expect_place(&self, inode: InodeNumber, page: u64) {
        if let Some(mapping) = self.mapping(inode) {
            mapping.prefetch(page);
        }
    }

    /// The next step after [`expect_place`](Self::expect_place): starts loading the page's frame.
    pub fn expect_frame(&self, inode: InodeNumber, page: u64) {
        if let Some(frame) = self.frame_id(inode, page) {
            prefetch(self.frames.get(frame));
        }
    }

    /// Flags of a page in memory ([`frames`]).
    pub fn flags(&self, inode: InodeNumber, page: u64) -> Option<u8> {
        self.frame_id(inode, page).map(|frame| self.frames.get(frame).flags)
    }

    /// The causes that dirtied a page; none if it is clean or absent.
    pub fn causes_of(&self, inode: InodeNumber, page: u64) -> CauseId {
        self.frame_id(inode, page).map_or(CauseId::NONE, |frame| self.frames.get(frame).causes)
    }

    /// Makes room for `count` pages; answers whether there is.
    pub fn make_room(&mut self, count: u64) -> bool {
        while self.frames.free() < count {
            for _ in 0..RECLAIM_PAGES.max(count) {
                let Some(victim) = self.frames.victim() else { break };
                let frame = *self.frames.get(victim);
                self.mappings[frame.inode as usize].remove(u64::from(frame.page));
                self.frames.release(victim);
                self.totals.evicted += 1;
                if self.frames.free() >= count.max(RECLAIM_PAGES) {
                    break;
                }
            }
            if self.frames.free() < count {
                return false;
            }
        }
        true
    }

    /// Gives up every page that is clean and not in use (`/proc/sys/vm/drop_caches`).
    pub fn evict_clean(&mut self) {
        for number in 0..self.mappings.len() {
            let inode = InodeNumber(number as u32);
            let mut from = 0;
            while let Some(page) = self.mappings[number].next_resident(from, u64::MAX) {
                from = page + 1;
                let id = self.frame_id(inode, page).expect("just found");
                if self.frames.get(id).flags & (DIRTY | LOCKED | WRITEBACK | PINNED) == 0 {
                    self.mappings[number].remove(page);
                    self.frames.release(id);
                    self.totals.evicted += 1;
                }
            }
        }
    }

    /// Puts an absent page in; there must be room. `flags` are `LOCKED` for a page that is going to be read.
    pub fn insert(&mut self, inode: InodeNumber, page: u64, flags: u8) {
        let frame = self.frames.allocate(inode.0, page as u32).expect("the caller made room");
        self.frames.get_mut(frame).flags |= flags;
        self.mapping_mut(inode).insert(page, frame);
    }

    /// The page is used. Answers with its flags as they were, the mark of read-ahead taken off; `None` if it is absent.
    pub fn touch(&mut self, inode: InodeNumber, page: u64) -> Option<u8> {
        let frame = self.frame_id(inode, page)?;
        let flags = self.frames.get(frame).flags;
        self.frames.get_mut(frame).flags &= !READ_AHEAD;
        self.frames.touch(frame);
        Some(flags)
    }

    /// The pages have been read.
    pub fn end_read(&mut self, inode: InodeNumber, pages: PageRange) {
        for page in pages.first..pages.end() {
            let frame = self.frame_id(inode, page).expect("a locked page stays");
            let flags = &mut self.frames.get_mut(frame).flags;
            debug_assert!(*flags & LOCKED != 0);
            *flags &= !LOCKED;
        }
    }

    /// Pages in memory become dirty by `causes`, or are dirtied again. Appends what they were before.
    pub fn dirty_pages(
        &mut self,
        inode: InodeNumber,
        pages: PageRange,
        causes: CauseId,
        changes: &mut Vec<PageChange>,
    ) {
        for page in pages.first..pages.end() {
            let id = self.frame_id(inode, page).expect("a page is in memory before it is dirtied");
            let frame = self.frames.get_mut(id);
            let (previous, was_dirty) = (frame.causes, frame.flags & DIRTY != 0);
            frame.causes = self.causes.union(previous, causes);
            frame.flags |= DIRTY;
            self.frames.touch(id);
            if !was_dirty {
                self.mappings[inode.0 as usize].set_dirty(page, true);
                self.dirty += 1;
                self.totals.dirtied += 1;
            }
            push(changes, page, previous);
        }
        self.dirty_max = self.dirty_max.max(self.dirty);
    }

    /// The next dirty pages of a file at or after `from` and before `end`: at most `count_max` neighbours, none of
    /// which is being written already.
    pub fn next_dirty_run(&self, inode: InodeNumber, from: u64, end: u64, count_max: u64) -> Option<PageRange> {
        let mapping = self.mapping(inode)?;
        let is_free = |page: u64| mapping.is_dirty(page) && !mapping.is_writeback(page);
        let mut first = mapping.next_dirty(from)?;
        while !is_free(first) {
            first = mapping.next_dirty(first + 1)?;
        }
        let limit = end.min(first.saturating_add(count_max));
        let mut after = first;
        while after < limit && is_free(after) {
            after += 1;
        }
        (after > first).then_some(PageRange { first, count: after - first })
    }

    /// The union of the causes of dirty pages.
    pub fn causes_in(&mut self, inode: InodeNumber, pages: PageRange) -> CauseSet {
        let mut union = CauseId::NONE;
        for page in pages.first..pages.end() {
            union = self.causes.union(union, self.causes_of(inode, page));
        }
        self.causes.set(union).clone()
    }

    /// The writing of dirty pages begins; answers with the union of their causes, which they lose.
    pub fn begin_writeback(&mut self, inode: InodeNumber, pages: PageRange) -> CauseSet {
        let mut union = CauseId::NONE;
        for page in pages.first..pages.end() {
            let id = self.frame_id(inode, page).expect("a dirty page stays");
            let frame = self.frames.get_mut(id);
            debug_assert_eq!(frame.flags & (DIRTY | WRITEBACK), DIRTY);
            frame.flags ^= DIRTY | WRITEBACK;
            union = self.causes.union(union, std::mem::take(&mut frame.causes));
            let mapping = &mut self.mappings[inode.0 as usize];
            mapping.set_dirty(page, false);
            mapping.set_writeback(page, true);
        }
        self.dirty -= pages.count;
        self.writeback += pages.count;
        self.totals.cleaned += pages.count;
        self.causes.set(union).clone()
    }

    /// A dirty page is not to be written for now: it is clean, and counts as freed. Answers with the causes that had
    /// dirtied it; none if it was clean or absent.
    pub fn withdraw(&mut self, inode: InodeNumber, page: u64) -> CauseId {
        let Some(id) = self.frame_id(inode, page) else { return CauseId::NONE };
        let frame = self.frames.get_mut(id);
        if frame.flags & DIRTY == 0 {
            return CauseId::NONE;
        }
        frame.flags ^= DIRTY;
        let causes = std::mem::take(&mut frame.causes);
        self.mappings[inode.0 as usize].set_dirty(page, false);
        self.dirty -= 1;
        self.totals.freed += 1;
        causes
    }

    /// The writing of pages ended.
    pub fn end_writeback(&mut self, inode: InodeNumber, pages: PageRange) {
        for page in pages.first..pages.end() {
            let id = self.frame_id(inode, page).expect("a page being written stays");
            self.frames.get_mut(id).flags &= !WRITEBACK;
            self.mappings[inode.0 as usize].set_writeback(page, false);
        }
        self.writeback -= pages.count;
        self.totals.written += pages.count;
    }

    /// Drops a file's pages from `first` to its end, none of which may be locked or being written. Appends the dirty
    /// ones with their causes.
    pub fn truncate(&mut self, inode: InodeNumber, first: u64, freed: &mut Vec<PageChange>) {
        let mut from = first;
        while let Some(page) = self.mapping(inode).and_then(|mapping| mapping.next_resident(from, u64::MAX)) {
            let id = self.frame_id(inode, page).expect("just found");
            let frame = *self.frames.get(id);
            assert_eq!(frame.flags & (LOCKED | WRITEBACK), 0, "the caller waited for page {page}");
            if frame.flags & DIRTY != 0 {
                self.mappings[inode.0 as usize].set_dirty(page, false);
                self.dirty -= 1;
                self.totals.freed += 1;
                push(freed, page, frame.causes);
            }
            self.mappings[inode.0 as usize].remove(page);
            self.frames.release(id);
            from = page + 1;
        }
    }

    /// Keeps a page in memory and from being written, or lets it go again.
    pub fn set_pinned(&mut self, inode: InodeNumber, page: u64, is_pinned: bool) {
        let id = self.frame_id(inode, page).expect("the page is in memory");
        let flags = &mut self.frames.get_mut(id).flags;
        *flags = if is_pinned { *flags | PINNED } else { *flags & !PINNED };
    }

    /// Puts the mark of read-ahead on a page.
    pub fn mark_read_ahead(&mut self, inode: InodeNumber, page: u64) {
        if let Some(id) = self.frame_id(inode, page) {
            self.frames.get_mut(id).flags |= READ_AHEAD;
        }
    }

    /// Bytes that the tags take: four on each dirty page, and the sets of causes.
    pub fn tag_bytes(&self) -> u64 {
        self.dirty * size_of::<CauseId>() as u64 + self.causes.bytes() as u64
    }

    /// The most bytes that the tags took at once.
    pub fn tag_bytes_max(&self) -> u64 {
        // Sets only become more.
        self.dirty_max * size_of::<CauseId>() as u64 + self.causes.bytes() as u64
    }

    /// # Panics
    /// If a page was lost between its states.
    pub fn assert_conserved(&self) {
        let Totals { dirtied, cleaned, freed, written, .. } = self.totals;
        assert_eq!(dirtied, cleaned + freed + self.dirty, "pages dirtied = cleaned + freed + dirty");
        assert_eq!(cleaned, written + self.writeback, "pages cleaned = written + being written");
        assert_eq!(self.dirty, self.mappings.iter().map(|mapping| mapping.dirty).sum::<u64>());
        let resident: u64 = self.mappings.iter().map(|mapping| mapping.resident).sum();
        assert_eq!(resident, self.capacity() - self.frames.free(), "every frame in use holds a page of a file");
    }
}

/// Adds a page to the last change if it goes on there.
fn push(changes: &mut Vec<PageChange>, page: u64, previous: CauseId) {
    match changes.last_mut() {
        Some(last) if last.pages.end() == page && last.previous == previous => last.pages.count += 1,
        _ => changes.push(PageChange { pages: PageRange { first: page, count: 1 }, previous }),
    }
}
