//! Requests that go past the cache. First, writes that no unit takes: the device cannot write some of its units, or no
//! unit is left. As long as the store is well, no client notices.
//!
//! A unit that cannot be written is *bad*: it holds nothing, and no block gets one until the next start, which tries it
//! again. The write goes to another unit, and when that is bad, too, past the cache. A block that is in the cache goes
//! there like a trim. A clean block is forgotten before, a dirty one when the store durably has a newer version. So a
//! crash leaves one version or the other.
//!
//! **Writes through the cache** go there always, and are acknowledged when the store has them. The cache forgets its
//! version of the block in the same way. The new version then comes into a unit as if it had been read: clean, and
//! recorded after a flush of the store.
//!
//! **A range that is trimmed** and of which the cache has nothing is one request of the store. It has one place here
//! and locks all of its blocks, so any other request for one of them waits until it is over. It ends before the
//! first block that is in the cache, or that another request has.

use super::CacheStore;
use crate::cache::Outcome;
use crate::store::bytes::BLOCK_BYTES;
use crate::store::operation::{Action, Semantics};
use crate::store::slots::{Step, TaskKind};
use crate::units::UnitId;
use plimsoll_core::Class;
use std::ops::Range;

/// Units that a write tries.
const TRIES_MAX: u8 = 2;
/// Most blocks of one range: 32 MiB. Looking each of them up takes a thread a millisecond.
const RANGE_BLOCKS_MAX: u64 = 8192;

impl CacheStore {
    /// The unit in limbo could not be written: the block gets another unit, or bypasses the cache.
    pub(super) fn write_again(&mut self, at: usize) {
        let slot = &mut self.slots.slots[at];
        self.cache.set_bad(slot.unit);
        slot.tries += 1;
        let (may_try, is_relocated) = (slot.tries < TRIES_MAX, slot.is_relocated);
        self.counters.writes_taken -= u64::from(!is_relocated);
        match (is_relocated, may_try) {
            (true, true) => self.write_elsewhere(at),
            (false, true) => self.write_new(at),
            (_, false) => self.write_past(at),
        }
    }

    /// Writes a whole block to the store. If the cache has it, it forgets it.
    pub(super) fn write_past(&mut self, at: usize) {
        self.counters.writes_around += 1;
        let slot = &mut self.slots.slots[at];
        // What was a part of a block has been merged with the rest.
        (slot.from, slot.to, slot.is_relocated) = (0, BLOCK_BYTES as u16, false);
        let block = slot.block;
        match self.is_cached(block) {
            Some(unit) if self.marks.get(&self.cache.units, unit).is_dirty => self.begin_to_forget(unit),
            Some(_) => self.forget(block),
            None => {}
        }
        self.around(at);
    }

    /// A dirty block is going to be forgotten, when the store has a newer version.
    pub(super) fn begin_to_forget(&mut self, unit: UnitId) {
        // A copy of it that waits for a flush must not be recorded as clean when the store has lost it.
        if self.cache.is_being_cleaned(unit) {
            let block = self.cache.describe(unit).block;
            self.cache.clean_failed(unit);
            self.copy_no_more(block, true);
        }
        self.cleaner.forget(unit);
    }

    /// Writes to the store a block that the cache may have in `cached`.
    pub(super) fn write_through(&mut self, at: usize, cached: Option<UnitId>) {
        let slot = self.slots.slots[at];
        let is_whole = slot.from == 0 && usize::from(slot.to) == BLOCK_BYTES;
        match cached {
            Some(unit) if self.marks.get(&self.cache.units, unit).is_dirty => {
                self.begin_to_forget(unit);
                if !is_whole {
                    return self.unit_operation(at, Step::Merge, Action::Read, unit);
                }
            }
            Some(_) => self.forget(slot.block),
            None => {}
        }
        self.around(at);
    }

    /// The rest of a dirty block was read: all of it goes to the store.
    pub(super) fn merged_through(&mut self, at: usize) {
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to) = (0, BLOCK_BYTES as u16);
        self.around(at);
    }

    /// The store has a write or a trim that the cache has nothing of. A whole block that is written comes into a unit,
    /// if policy and class want it there and there is one.
    pub(super) fn finish_through(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let is_whole = slot.from == 0 && usize::from(slot.to) == BLOCK_BYTES;
        let is_through = self.semantics == Semantics::WriteThrough && slot.kind == TaskKind::Write;
        if !is_through || !is_whole || slot.block >= self.superblock.store_blocks || self.has_failed || self.is_closing
        {
            return self.finish(at, None);
        }
        match self.enter_clean(&self.access(at, true)) {
            Outcome::Taken(unit) => {
                self.counters.writes_taken += 1;
                self.answer(at, None);
                self.unit_operation(at, Step::Promote, Action::Write, unit);
            }
            _ => self.finish(at, None),
        }
    }

    /// Number of `blocks`, from the first on, that neither the cache nor a request has; at most 8192 (32 MiB). O(blocks
    /// + places).
    pub fn free_run(&self, blocks: Range<u64>) -> u32 {
        let end = blocks.end.min(blocks.start + RANGE_BLOCKS_MAX);
        let is_alone = !self.slots.is_any_locked(&(blocks.start..end));
        let is_free = |&block: &u64| self.is_cached(block).is_none() && (is_alone || !self.slots.is_locked(block));
        (blocks.start..end).take_while(is_free).count() as u32
    }

    /// Takes a trim of `count` whole blocks from `block` on, [none of which](Self::free_run) the cache has. It is
    /// answered as one request, and the operation on the store is one. False if there is no room.
    pub fn submit_trim(&mut self, token: u64, block: u64, count: u32, class: Class) -> bool {
        self.turns.submitted();
        let Some(at) = self.slots.take(TaskKind::Trim, token, block) else { return false };
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to, slot.class) = (0, BLOCK_BYTES as u16, class);
        self.slots.lock_range(at, count);
        self.runnable.push_back(at as u32);
        self.cleaner.resume();
        self.drive();
        true
    }
}
