//! Blocks that the store does not take, and blocks that the cache's device has damaged.
//!
//! As a rule that is a bad region of a disk, and no reason to stop. A unit that the policy gave up is set aside, still
//! readable, and others leave in its place. A pass that copies everything goes on with the next unit and says at the
//! end what is missing. Now and then, when others were copied, one of those aside is tried again: the store may have
//! been away for a moment only.
//!
//! A damaged unit is met again by each read and by each pass that copies everything. A bit for each unit says that it
//! counts already; the bits take memory when the first unit is damaged. Every change of a unit's mark clears its bit.

use super::machine::CacheStore;
use crate::units::UnitId;
use std::collections::VecDeque;
use std::ops::Range;

/// Copies of victims one behind the other that fail until it is the store that has failed, and not a region of it.
const IN_A_ROW_MAX: u32 = 1024;
/// Units aside that are remembered, to be tried again.
const AGAIN_MAX: usize = 1024;
/// Units that are copied between two that are tried again.
const AGAIN_AFTER: u64 = 64;
/// Blocks that are named of those that could not be copied.
const NAMED_MAX: usize = 1024;

/// What could not be copied.
pub(super) struct Refused {
    in_a_row: u32,
    again: VecDeque<u64>,
    /// The number of copied units from which on the next refused unit is tried again.
    again_at: u64,
    blocks: u64,
    named: Vec<u64>,
    /// What the owner has heard of, and whether there was a pass since.
    told: NotCopied,
    is_due: bool,
}

/// What is not copied to the store: it refuses it, or the cache's device has damaged it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotCopied {
    /// How many blocks.
    pub blocks: u64,
    /// A thousand of them at most, as ranges of neighbours in order.
    pub ranges: Vec<Range<u64>>,
}

impl NotCopied {
    fn new(blocks: u64, mut named: Vec<u64>) -> NotCopied {
        named.sort_unstable();
        named.dedup();
        let runs = named.chunk_by(|block, next| block + 1 == *next);
        NotCopied { blocks, ranges: runs.map(|run| run[0]..run[run.len() - 1] + 1).collect() }
    }
}

/// Units that only the cache has and that are damaged.
#[derive(Default)]
pub(super) struct Damaged {
    /// A bit for each unit, from the first damaged one on.
    bits: Vec<u64>,
    /// Blocks that were met since the owner asked last, and the first of them.
    news: u64,
    named: Vec<u64>,
    /// A pass has met some of these.
    pub is_due: bool,
}

impl Damaged {
    /// Takes note of a unit of `units`, and says whether it is a new one.
    fn insert(&mut self, unit: UnitId, units: u32, block: u64) -> bool {
        self.bits.resize(units.div_ceil(u64::BITS) as usize, 0);
        let (word, bit) = (&mut self.bits[(unit.0 / u64::BITS) as usize], 1 << (unit.0 % u64::BITS));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.news += u64::from(is_new);
        if is_new && self.named.len() < NAMED_MAX {
            self.named.push(block);
        }
        is_new
    }

    /// Something else is in `unit`, or nothing.
    #[inline]
    pub fn forget(&mut self, unit: UnitId) {
        if let Some(word) = self.bits.get_mut((unit.0 / u64::BITS) as usize) {
            *word &= !(1 << (unit.0 % u64::BITS));
        }
    }

    /// O(units / 64).
    fn units(&self) -> impl Iterator<Item = UnitId> {
        let words = (0..).zip(&self.bits).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| UnitId(at * u64::BITS + bit))
        })
    }
}

impl Refused {
    pub fn new() -> Refused {
        let (again, named) = (VecDeque::with_capacity(AGAIN_MAX), Vec::with_capacity(NAMED_MAX));
        Refused { in_a_row: 0, again, again_at: 0, blocks: 0, named, told: NotCopied::default(), is_due: false }
    }

    /// Everything is going to be copied.
    pub fn begin(&mut self) {
        (self.blocks, self.is_due) = (0, true);
        self.named.clear();
    }

    /// A unit was copied.
    pub fn copied(&mut self) {
        self.in_a_row = 0;
    }

    /// The block of a victim was not. False if so many were not that it is the store.
    pub fn victim(&mut self, block: u64) -> bool {
        self.in_a_row += 1;
        self.try_again(block);
        self.in_a_row <= IN_A_ROW_MAX
    }

    /// Another block was not.
    pub fn in_place(&mut self, block: u64, is_aside: bool) {
        if is_aside {
            self.try_again(block);
        }
        self.blocks += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(block);
        }
    }

    fn try_again(&mut self, block: u64) {
        if self.again.len() < AGAIN_MAX {
            self.again.push_back(block);
        }
    }

    /// A block to be tried again, when so many were copied.
    pub fn next(&mut self, copied: u64) -> Option<u64> {
        if copied < self.again_at {
            return None;
        }
        let block = self.again.pop_front()?;
        self.again_at = copied + AGAIN_AFTER;
        Some(block)
    }
}

impl CacheStore {
    /// What the store refused since [`CacheStore::clean_all`] was asked for last: it is in the cache, dirty.
    pub fn not_copied(&self) -> NotCopied {
        NotCopied::new(self.cleaner.refused.blocks, self.cleaner.refused.named.clone())
    }

    /// What only the cache has and its device has damaged, so far as a read or a pass has met it. O(units / 64) if
    /// there is any.
    pub fn damaged(&self) -> NotCopied {
        let (mut blocks, mut named) = (0, Vec::new());
        let dirty = self.cleaner.damaged.units().filter(|&unit| self.marks.get(&self.cache.units, unit).is_dirty);
        for unit in dirty {
            blocks += 1;
            if named.len() < NAMED_MAX {
                named.push(self.cache.describe(unit).block);
            }
        }
        NotCopied::new(blocks, named)
    }

    /// The damaged units that are new since the owner asked last, for its log. `None` while everything is being
    /// copied. For units that reads meet, each time when there is an eighth more: so a device that rots fills no log.
    pub fn take_newly_damaged(&mut self) -> Option<NotCopied> {
        let (all, is_cleaning) = (self.counters.damaged_dirty, self.is_cleaning_all());
        let damaged = &mut self.cleaner.damaged;
        if damaged.news == 0 || is_cleaning || !damaged.is_due && damaged.news * 8 < all {
            return None;
        }
        damaged.is_due = false;
        Some(NotCopied::new(std::mem::take(&mut damaged.news), std::mem::take(&mut damaged.named)))
    }

    /// What the store refused in the last pass, for the owner's log; `None` while there is a pass, and for what the
    /// owner has heard already.
    pub fn take_newly_refused(&mut self) -> Option<NotCopied> {
        if self.is_cleaning_all() || !std::mem::take(&mut self.cleaner.refused.is_due) {
            return None;
        }
        let refused = self.not_copied();
        let is_new = refused.blocks > 0 && refused != self.cleaner.refused.told;
        self.cleaner.refused.told = refused.clone();
        is_new.then_some(refused)
    }

    /// The unit of a block that the store lacks is damaged: it counts once.
    pub(super) fn note_damaged(&mut self, unit: UnitId, block: u64) {
        let is_new = self.cleaner.damaged.insert(unit, self.superblock.layout.units, block);
        self.counters.damaged_dirty += u64::from(is_new);
    }

    /// Units that the device cannot write: they hold nothing, and are tried again at the next start.
    pub fn bad_units(&self) -> u32 {
        self.cache.bad_units()
    }
}
