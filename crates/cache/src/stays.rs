//! Whether blocks of a class are used before they leave, or are taken in in vain.
//!
//! **The intuition.** A block that is taken in costs the fast device a write and sends another one away. If it is
//! dirty, it is read again and written to the store after all. All that is for nothing if it leaves before a request
//! uses it.
//!
//! **The rule.** In each class, blocks taken in and uses of blocks that are there are counted. What was taken in and is
//! not there any more has left. A class is taken in *in vain* if there was less than one use for each hundred blocks
//! that left. So leaving it out gives up less than a hundredth of its accesses.
//!
//! **The complication.** A class that stays says nothing of its worth: it may be used next year (metadata, when the
//! file system is checked). Only a block that left was there in vain. So as long as less than a quarter of a cache has
//! left of a class, nothing is known of it. What is older than two turnovers of the class counts for half at the most.

use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;

/// Blocks that left for each use, above which they were taken in for nothing.
const LEFT_FOR_A_USE: u32 = 100;
/// A class of which less has left is not known, in parts of the cache.
const KNOWN_PARTS: u32 = 4;
/// Blocks taken in after which what was counted counts half, in sizes of the cache.
const SIZES_REMEMBERED: u32 = 2;

/// Blocks of a class that were taken in, used and held.
#[derive(Clone, Copy, Debug, Default)]
struct ClassTurnover {
    taken: u32,
    used: u32,
    /// In the cache when last looked at.
    held: u32,
}

/// What became of the blocks of each class.
#[derive(Clone, Debug)]
pub struct Stays {
    classes: [ClassTurnover; CLASSES],
    units: u32,
}

impl Stays {
    /// For a cache of `units`.
    pub fn new(units: u32) -> Stays {
        Stays { classes: [ClassTurnover::default(); CLASSES], units }
    }

    /// A block of `class` was used in the cache (`is_hit`), or taken in. The class has `held` units now.
    pub fn observed(&mut self, class: Class, is_hit: bool, held: u32) {
        let counts = &mut self.classes[usize::from(class.number())];
        counts.held = held;
        if is_hit {
            counts.used = counts.used.saturating_add(1);
            return;
        }
        counts.taken += 1;
        if counts.taken >= SIZES_REMEMBERED.saturating_mul(self.units) {
            (counts.taken, counts.used) = (counts.taken / 2, counts.used / 2);
        }
    }

    /// Whether blocks of `class` leave without having been used.
    pub fn are_in_vain(&self, class: Class) -> bool {
        let ClassTurnover { taken, used, held } = self.classes[usize::from(class.number())];
        let left = taken.saturating_sub(held);
        left >= (self.units / KNOWN_PARTS).max(1) && u64::from(used) * u64::from(LEFT_FOR_A_USE) < u64::from(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u32 = 1000;
    const CLASS: Class = Class::UNCLASSIFIED;

    /// Of a class that has `held` units, so many blocks were taken in and so many used.
    fn stays(taken: u32, used: u32, held: u32) -> Stays {
        let mut stays = Stays::new(UNITS);
        (0..taken).for_each(|_| stays.observed(CLASS, false, held));
        (0..used).for_each(|_| stays.observed(CLASS, true, held));
        stays
    }

    /// Promise: cache-unused-class.
    #[test]
    fn a_block_that_leaves_without_a_use_was_there_in_vain() {
        assert!(stays(310, 0, 10).are_in_vain(CLASS));
        assert!(stays(310, 2, 10).are_in_vain(CLASS));
        assert!(!stays(310, 3, 10).are_in_vain(CLASS), "one in a hundred");
        assert!(!stays(310, 0, 10).are_in_vain(Class::new(1).unwrap()), "another class");
    }

    /// Promise: cache-unused-class.
    #[test]
    fn a_block_that_stays_or_is_not_known_was_not_there_in_vain() {
        assert!(!stays(249, 0, 0).are_in_vain(CLASS));
        assert!(stays(250, 0, 0).are_in_vain(CLASS));
        assert!(!stays(900, 0, 900).are_in_vain(CLASS), "never used, but there");
    }

    /// Promise: cache-unused-class.
    #[test]
    fn a_class_that_is_used_from_now_on_is_worth_it_again_and_the_other_way_round() {
        let mut stays = stays(1_000_000, 0, 10);
        assert!(stays.are_in_vain(CLASS));
        (0..20).for_each(|_| stays.observed(CLASS, true, 10));
        assert!(!stays.are_in_vain(CLASS));
        (0..3000).for_each(|_| stays.observed(CLASS, false, 10));
        assert!(stays.are_in_vain(CLASS));
    }
}
