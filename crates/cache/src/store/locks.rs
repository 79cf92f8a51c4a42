//! Blocks that slots have: at most one a slot, and each block once.
//!
//! Each request asks whether its block is locked, and hardly any is. So locked blocks are counted by the last bits of
//! their numbers. Only a block with the bits of a locked one is looked for in the list.

/// The slot has no block.
const NONE: u64 = u64::MAX;
/// Counters; a power of two, and more than there are slots in most caches.
const COUNTERS: usize = 256;

/// The block that each slot has. To set and to take are O(1); to look a block up is O(slots) where a locked one has the
/// same last bits, otherwise O(1).
pub(super) struct Locks {
    blocks: Vec<u64>,
    /// How many locked blocks have these last bits.
    counts: [u16; COUNTERS],
}

fn counter_of(block: u64) -> usize {
    block as usize % COUNTERS
}

impl Locks {
    pub fn new(slots: usize) -> Locks {
        Locks { blocks: vec![NONE; slots], counts: [0; COUNTERS] }
    }

    /// The slot's block.
    #[inline]
    pub fn of(&self, at: usize) -> Option<u64> {
        Some(self.blocks[at]).filter(|&block| block != NONE)
    }

    /// Gives a block to a slot that has none. No slot has the block.
    #[inline]
    pub fn set(&mut self, at: usize, block: u64) {
        debug_assert!(self.blocks[at] == NONE, "slot {at} has block {}", self.blocks[at]);
        self.blocks[at] = block;
        self.counts[counter_of(block)] += 1;
    }

    /// Takes the slot's block from it.
    #[inline]
    pub fn take(&mut self, at: usize) -> Option<u64> {
        let block = self.of(at)?;
        self.blocks[at] = NONE;
        self.counts[counter_of(block)] -= 1;
        Some(block)
    }

    /// Whether a slot has `block`.
    #[inline]
    pub fn contains(&self, block: u64) -> bool {
        self.counts[counter_of(block)] > 0 && self.blocks.contains(&block)
    }

    /// All blocks that slots have. O(slots).
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().copied().filter(|&block| block != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside a plain list. Planted breaks, each red: `set` does not count; `contains` looks at the counters only.
        #[test]
        fn a_block_is_locked_as_long_as_a_slot_has_it(steps in prop::collection::vec((0usize..9, 0u64..3, 0u64..3), 1..99)) {
            let (mut locks, mut list) = (Locks::new(9), [None; 9]);
            for (at, low, high) in steps {
                let block = high * COUNTERS as u64 + low;
                if list.contains(&Some(block)) || list[at].is_some() {
                    prop_assert_eq!(locks.take(at), list[at].take());
                } else {
                    locks.set(at, block);
                    list[at] = Some(block);
                }
                prop_assert_eq!(locks.of(at), list[at]);
                prop_assert_eq!(locks.iter().collect::<Vec<_>>(), list.iter().flatten().copied().collect::<Vec<_>>());
                for block in (0..3).flat_map(|high| (0..3).map(move |low| high * COUNTERS as u64 + low)) {
                    prop_assert_eq!(locks.contains(block), list.contains(&Some(block)));
                }
            }
        }
    }
}
