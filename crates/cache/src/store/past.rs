//! Writes that no unit takes: the device cannot write some of its units, or no unit is left. As long as the store is well, nobody hears of it.
//!
//! A unit that cannot be written is *bad*: it holds nothing, and no block gets one until the next start, which tries it again. The write goes to
//! another unit, and when that is bad, too, past the cache. A block that is in the cache goes there like a trim: what is clean is
//! forgotten before, what is dirty when the store has something newer, durably. So a crash leaves one version or the other.

use super::layout::BLOCK_BYTES;
use super::machine::CacheStore;
use crate::units::UnitId;

/// Units that a write tries.
const TRIES_MAX: u8 = 2;

impl CacheStore {
    /// The unit in limbo could not be written: the block gets another one, or goes past the cache.
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

    /// A block that only the cache has is going to be forgotten, when the store has something newer.
    pub(super) fn begin_to_forget(&mut self, unit: UnitId) {
        // A copy of it that waits for a flush must not be recorded as clean when the store has lost it.
        if self.cache.is_being_cleaned(unit) {
            let block = self.cache.describe(unit).block;
            self.cache.clean_failed(unit);
            self.copy_no_more(block, true);
        }
        self.cleaner.forget(unit);
    }
}
