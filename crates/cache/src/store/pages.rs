//! The valid slot of each page of the map, and the pages that have changed since.

use super::layout::Layout;
use super::map::ENTRIES;
use super::superblock::{Superblock, page_digest};
use crate::units::UnitId;
use plimsoll_core::prefetch;

#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    generation: u64,
    slot: u8,
    is_changed: bool,
}

/// All pages.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pages: Vec<PageState>,
    digest: u64,
    changed: u32,
}

impl Pages {
    /// The pages of a cache before any of them is read.
    pub fn new(superblock: &Superblock) -> Pages {
        let pages = vec![PageState::default(); superblock.layout.map_pages() as usize];
        Pages { pages, digest: 0, changed: 0 }
    }

    /// What the superblock says when these are the generations.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Pages that have changed.
    pub fn changed(&self) -> u32 {
        self.changed
    }

    /// The page of a unit.
    #[inline]
    pub fn of_unit(unit: UnitId) -> u32 {
        unit.0 / ENTRIES as u32
    }

    /// `slot` holds, with that generation.
    pub fn set_valid(&mut self, page: u32, generation: u64, slot: usize) {
        let entry = &mut self.pages[page as usize];
        let old = if entry.generation == 0 { 0 } else { page_digest(page, entry.generation) };
        self.digest ^= old ^ page_digest(page, generation);
        (entry.generation, entry.slot) = (generation, slot as u8);
    }

    /// Starts loading what is known of `page`.
    #[inline]
    pub fn prefetch(&self, page: u32) {
        prefetch(&self.pages[page as usize]);
    }

    /// What a unit of it holds has changed.
    #[inline]
    pub fn set_changed(&mut self, page: u32) {
        let entry = &mut self.pages[page as usize];
        self.changed += u32::from(!entry.is_changed);
        entry.is_changed = true;
    }

    /// The first page from `from` on that has changed; it counts as unchanged then.
    pub fn take_changed(&mut self, from: u32) -> Option<u32> {
        let at = self.pages[from as usize..].iter().position(|page| page.is_changed)? + from as usize;
        self.pages[at].is_changed = false;
        self.changed -= 1;
        Some(at as u32)
    }

    /// Block of the next version of `page`: that of the slot that is not valid.
    pub fn next_block(&self, layout: &Layout, page: u32) -> u64 {
        layout.map_block(self.next_slot(page), page)
    }

    /// The slot that does not hold.
    pub fn next_slot(&self, page: u32) -> usize {
        1 - usize::from(self.pages[page as usize].slot)
    }
}
