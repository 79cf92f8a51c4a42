//! Writes through the cache: acknowledged when the store has them, and the cache has nothing that the store lacks.
//!
//! **The rule.** The store first. What the cache had of the block is forgotten before, and when the store has the new version, that comes
//! into a unit as if it had been read there: clean, and recorded when the store was flushed.
//!
//! **The complication.** What the cache has may be dirty, from before writes went through it. Then it is forgotten behind the store's flush, as
//! with a trim; and of a part of such a block the rest is read first.

use super::layout::BLOCK_BYTES;
use super::machine::{Action, CacheStore};
use super::slots::{Kind, Step};
use crate::cache::Outcome;
use crate::units::UnitId;

impl CacheStore {
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

    /// The store has a write or a trim that the cache has nothing of. A whole block that is written comes into a unit, if policy and
    /// class want it there and there is one.
    pub(super) fn finish_through(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let is_whole = slot.from == 0 && usize::from(slot.to) == BLOCK_BYTES;
        let is_through = self.semantics == super::machine::Semantics::WriteThrough && slot.kind == Kind::Write;
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
}
