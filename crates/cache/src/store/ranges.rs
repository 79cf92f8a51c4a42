//! Trims of many blocks at once.
//!
//! **The rule.** Of a range of which the cache has nothing, nothing has to be forgotten: it is one request of the store. It has one place here
//! and all of its blocks, so whatever else is asked for one of them waits until it is over.
//!
//! **The complication.** What the cache has must be forgotten first, block by block, in the journal's order. So a range ends before the
//! first block that is in the cache, or that another request has.

use super::layout::BLOCK_BYTES;
use super::machine::CacheStore;
use super::slots::Kind;
use plimsoll_core::Class;
use std::ops::Range;

/// Blocks of one range at the most, 32 MiB: each is looked up, which takes a thread a millisecond then.
const RANGE_BLOCKS_MAX: u64 = 8192;

impl CacheStore {
    /// How many of `blocks`, from the first on, the cache has nothing of, nor any request; 8192 (32 MiB) at the most. O(blocks + places).
    pub fn free_run(&self, blocks: Range<u64>) -> u32 {
        let end = blocks.end.min(blocks.start + RANGE_BLOCKS_MAX);
        let is_alone = !self.slots.is_any_locked(&(blocks.start..end));
        let is_free = |&block: &u64| self.is_cached(block).is_none() && (is_alone || !self.slots.is_locked(block));
        (blocks.start..end).take_while(is_free).count() as u32
    }

    /// Takes a trim of `count` whole blocks from `block` on, of which the cache has [nothing](Self::free_run). It is answered as one request, and
    /// the operation on the store is one. False if there is no room.
    pub fn submit_trim(&mut self, token: u64, block: u64, count: u32, class: Class) -> bool {
        (self.wanted_unit, self.refused_for_turn) = (false, false);
        let Some(at) = self.slots.take(Kind::Trim, token, block) else { return false };
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to, slot.class) = (0, BLOCK_BYTES as u16, class);
        self.slots.lock_range(at, count);
        self.runnable.push_back(at as u32);
        self.cleaner.resume();
        self.drive();
        true
    }
}
