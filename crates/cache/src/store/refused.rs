//! Blocks that the store does not take, and blocks that the cache's device has damaged.
//!
//! As a rule that is a bad region of a disk, and no reason to stop. A unit that the policy gave up is set aside, still
//! readable, and others leave in its place. A pass that copies everything continues with the next unit and reports at
//! the end what is missing. Now and then, when others were copied, one of those aside is tried again: the store may
//! have been away for a moment only.
//!
//! A damaged unit is met again by each read and by each pass that copies everything. A bit for each unit says that it
//! counts already; the bits take memory when the first unit is damaged. Every change of a unit's mark clears its bit.

use crate::units::UnitId;
use std::collections::VecDeque;
use std::ops::Range;

/// Consecutive failed copies of victims after which the store counts as failed, and not a region of it.
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

/// Units that were not copied to the store: the store refuses them, or the cache's device has damaged them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotCopied {
    /// How many blocks.
    pub blocks: u64,
    /// A thousand of them at most, as ranges of neighbours in order.
    pub ranges: Vec<Range<u64>>,
}

impl NotCopied {
    /// So many blocks, a thousand of which are `named` at most.
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
    pub fn insert(&mut self, unit: UnitId, units: u32, block: u64) -> bool {
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

    /// What of the damaged units is dirty: `dirty_block` answers the block of a dirty unit. O(units / 64).
    pub fn dirty(&self, dirty_block: impl Fn(UnitId) -> Option<u64>) -> NotCopied {
        let (mut blocks, mut named) = (0, Vec::new());
        for block in self.units().filter_map(dirty_block) {
            blocks += 1;
            if named.len() < NAMED_MAX {
                named.push(block);
            }
        }
        NotCopied::new(blocks, named)
    }

    /// The units that are new since the last call. Outside of a pass only when they are an eighth of `all` so far: a
    /// device that rots fills no log.
    pub fn take_news(&mut self, all: u64) -> Option<NotCopied> {
        if self.news == 0 || !self.is_due && self.news * 8 < all {
            return None;
        }
        self.is_due = false;
        Some(NotCopied::new(std::mem::take(&mut self.news), std::mem::take(&mut self.named)))
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

    /// What the store refused since everything was copied last.
    pub fn not_copied(&self) -> NotCopied {
        NotCopied::new(self.blocks, self.named.clone())
    }

    /// The same after a pass, if the owner has not heard of it.
    pub fn take_news(&mut self) -> Option<NotCopied> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let refused = self.not_copied();
        let is_new = refused.blocks > 0 && refused != self.told;
        self.told = refused.clone();
        is_new.then_some(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges from the first block to the one behind the last.
    fn not_copied(blocks: u64, ranges: &[(u64, u64)]) -> NotCopied {
        NotCopied { blocks, ranges: ranges.iter().map(|&(from, to)| from..to).collect() }
    }

    #[test]
    fn a_thousand_in_a_row_are_a_region_and_one_more_is_the_store() {
        let mut refused = Refused::new();
        assert!((0..1024).all(|block| refused.victim(block)));
        assert!(!refused.victim(1024));
        refused.copied();
        assert!(refused.victim(1025));
    }

    /// Planted break: each refused unit is tried again at once, red.
    #[test]
    fn one_aside_is_tried_again_each_time_when_64_others_were_copied() {
        let mut refused = Refused::new();
        [7, 8, 9].into_iter().for_each(|block| _ = refused.victim(block));
        let tried: Vec<(u64, u64)> =
            (0..300).filter_map(|copied| refused.next(copied).map(|block| (copied, block))).collect();
        assert_eq!(tried, [(0, 7), (64, 8), (128, 9)]);
    }

    #[test]
    fn the_owner_hears_once_of_what_a_pass_could_not_copy() {
        let mut refused = Refused::new();
        for is_new in [true, false] {
            refused.begin();
            [4, 6, 5, 9].into_iter().for_each(|block| refused.in_place(block, false));
            let named = not_copied(4, &[(4, 7), (9, 10)]);
            assert_eq!(refused.not_copied(), named);
            assert_eq!(refused.take_news(), is_new.then_some(named));
            assert_eq!(refused.take_news(), None);
        }
        refused.begin();
        assert_eq!((refused.not_copied(), refused.take_news()), (not_copied(0, &[]), None));
    }

    /// Planted break: a unit that is met again counts again, red.
    #[test]
    fn a_damaged_unit_counts_once_until_something_else_is_in_it() {
        let mut damaged = Damaged::default();
        let met: Vec<bool> = [70, 3, 70].map(|unit| damaged.insert(UnitId(unit), 100, unit.into())).to_vec();
        assert_eq!(met, [true, true, false]);
        let dirty = |unit: UnitId| (unit.0 != 3).then_some(u64::from(unit.0));
        assert_eq!(damaged.dirty(dirty), not_copied(1, &[(70, 71)]));
        assert_eq!(damaged.take_news(2), Some(not_copied(2, &[(3, 4), (70, 71)])));
        damaged.forget(UnitId(70));
        assert!(damaged.insert(UnitId(70), 100, 70));
        assert_eq!(damaged.take_news(9), None, "one of nine is not yet worth a line");
        damaged.is_due = true;
        assert_eq!(damaged.take_news(9), Some(not_copied(1, &[(70, 71)])), "a pass has met it");
    }
}
