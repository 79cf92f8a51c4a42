//! Which pages of one file are in memory, dirty, or being written (Linux: the file's `address_space`).
//!
//! Pages stand in chunks of 64. So "which of these are dirty" is one word, and a file costs memory only where it has
//! pages. Chunks with dirty pages, and those with pages being written, are listed apart, in order. So a search for the
//! next such page does not visit the others between.

use super::frames::FrameId;
use plimsoll_core::prefetch;
use std::collections::BTreeSet;

/// Pages in a chunk: as many as a word has bits.
const CHUNK_PAGES: u64 = u64::BITS as u64;

struct Chunk {
    frames: [FrameId; CHUNK_PAGES as usize],
    dirty: u64,
    writeback: u64,
    resident: u32,
}

/// The pages of one file.
#[derive(Default)]
pub struct Mapping {
    chunks: Vec<Option<Box<Chunk>>>,
    dirty_chunks: BTreeSet<u32>,
    writeback_chunks: BTreeSet<u32>,
    /// Pages in memory.
    pub resident: u64,
    /// Pages dirty.
    pub dirty: u64,
    /// Pages being written.
    pub writeback: u64,
}

/// Keeps a list of the chunks that have some of these pages.
fn list(chunks: &mut BTreeSet<u32>, index: usize, before: u64, after: u64) {
    if before == 0 {
        chunks.insert(index as u32);
    } else if after == 0 {
        chunks.remove(&(index as u32));
    }
}

fn split(page: u64) -> (usize, u32) {
    ((page / CHUNK_PAGES) as usize, (page % CHUNK_PAGES) as u32)
}

impl Mapping {
    fn chunk(&self, index: usize) -> Option<&Chunk> {
        self.chunks.get(index)?.as_deref()
    }

    fn chunk_mut(&mut self, index: usize) -> &mut Chunk {
        self.chunks[index].as_mut().expect("the page is in memory")
    }

    /// The frame that holds `page`.
    #[inline]
    pub fn frame(&self, page: u64) -> Option<FrameId> {
        let (chunk, bit) = split(page);
        let frame = self.chunk(chunk)?.frames[bit as usize];
        (frame != FrameId::NONE).then_some(frame)
    }

    /// Starts loading what [`frame`](Self::frame) and the marks of `page` need.
    #[inline]
    pub fn prefetch(&self, page: u64) {
        let (index, bit) = split(page);
        if let Some(chunk) = self.chunk(index) {
            prefetch(&chunk.frames[bit as usize]);
            prefetch(&chunk.dirty);
        }
    }

    /// Puts a page in.
    pub fn insert(&mut self, page: u64, frame: FrameId) {
        let (index, bit) = split(page);
        if self.chunks.len() <= index {
            self.chunks.resize_with(index + 1, || None);
        }
        let empty =
            || Box::new(Chunk { frames: [FrameId::NONE; CHUNK_PAGES as usize], dirty: 0, writeback: 0, resident: 0 });
        let chunk = self.chunks[index].get_or_insert_with(empty);
        debug_assert_eq!(chunk.frames[bit as usize], FrameId::NONE);
        chunk.frames[bit as usize] = frame;
        chunk.resident += 1;
        self.resident += 1;
    }

    /// Takes a page out that is neither dirty nor being written.
    pub fn remove(&mut self, page: u64) {
        let (index, bit) = split(page);
        let chunk = self.chunk_mut(index);
        debug_assert_eq!((chunk.dirty | chunk.writeback) & 1 << bit, 0);
        chunk.frames[bit as usize] = FrameId::NONE;
        chunk.resident -= 1;
        if chunk.resident == 0 {
            self.chunks[index] = None;
        }
        self.resident -= 1;
    }

    /// Marks a page dirty or not; it was not so before.
    pub fn set_dirty(&mut self, page: u64, is_dirty: bool) {
        let (index, bit) = split(page);
        let chunk = self.chunk_mut(index);
        debug_assert_eq!(chunk.dirty >> bit & 1, u64::from(!is_dirty));
        let before = chunk.dirty;
        chunk.dirty ^= 1 << bit;
        let after = chunk.dirty;
        list(&mut self.dirty_chunks, index, before, after);
        if is_dirty { self.dirty += 1 } else { self.dirty -= 1 }
    }

    /// Marks a page as being written or not; it was not so before.
    pub fn set_writeback(&mut self, page: u64, is_writeback: bool) {
        let (index, bit) = split(page);
        let chunk = self.chunk_mut(index);
        debug_assert_eq!(chunk.writeback >> bit & 1, u64::from(!is_writeback));
        let before = chunk.writeback;
        chunk.writeback ^= 1 << bit;
        let after = chunk.writeback;
        list(&mut self.writeback_chunks, index, before, after);
        if is_writeback { self.writeback += 1 } else { self.writeback -= 1 }
    }

    /// The first dirty page at or after `page`.
    pub fn next_dirty(&self, page: u64) -> Option<u64> {
        self.next_listed(page, &self.dirty_chunks, |chunk| chunk.dirty)
    }

    /// The first page at or after `page` that is being written.
    pub fn next_writeback(&self, page: u64) -> Option<u64> {
        self.next_listed(page, &self.writeback_chunks, |chunk| chunk.writeback)
    }

    fn next_listed(&self, page: u64, listed: &BTreeSet<u32>, bits: impl Fn(&Chunk) -> u64) -> Option<u64> {
        let (index, bit) = split(page);
        let here = self.chunk(index).map_or(0, |chunk| bits(chunk) & u64::MAX << bit);
        if here != 0 {
            return Some(index as u64 * CHUNK_PAGES + u64::from(here.trailing_zeros()));
        }
        let &next = listed.range(u32::try_from(index + 1).ok()?..).next()?;
        let found = bits(self.chunk(next as usize).expect("a listed chunk has such pages"));
        Some(u64::from(next) * CHUNK_PAGES + u64::from(found.trailing_zeros()))
    }

    /// The first page at or after `page` and before `end` that is in memory.
    pub fn next_resident(&self, page: u64, end: u64) -> Option<u64> {
        let mut at = page;
        while at < end {
            let (index, bit) = split(at);
            if let Some(chunk) = self.chunk(index)
                && chunk.frames[bit as usize] != FrameId::NONE
            {
                return Some(at);
            }
            at = if self.chunk(index).is_none() { (index as u64 + 1) * CHUNK_PAGES } else { at + 1 };
            if index >= self.chunks.len() {
                return None;
            }
        }
        None
    }

    /// Whether the page is dirty.
    pub fn is_dirty(&self, page: u64) -> bool {
        let (index, bit) = split(page);
        self.chunk(index).is_some_and(|chunk| chunk.dirty >> bit & 1 == 1)
    }

    /// Whether the page is being written.
    pub fn is_writeback(&self, page: u64) -> bool {
        let (index, bit) = split(page);
        self.chunk(index).is_some_and(|chunk| chunk.writeback >> bit & 1 == 1)
    }
}
