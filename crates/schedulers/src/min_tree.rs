//! The smallest of many keys that change all the time.
//!
//! Keys sit in numbered slots, eight to a cache line; above each line stands the smallest of it, again eight to a line,
//! up to a single line at the top. Changing a key rewrites one number in each level, so a hundred thousand keys are six
//! levels deep, and there is no position index to keep, as a heap would need: a slot never moves.
//!
//! ```text
//!   top        [ 3 5 . . . . . . ]
//!                /  \
//!   leaves  [ 7 3 9 ..]  [ 8 5 ..]      min() = (slot 1, key 3)
//! ```
//!
//! `set` and `min` are O(log8 slots); growing copies the tree and is amortised by doubling.

/// The key of a slot that takes no part.
pub const ABSENT: u64 = u64::MAX;

const LINE_KEYS: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_KEYS]);

const EMPTY_LINE: Line = Line([ABSENT; LINE_KEYS]);

impl Line {
    fn min(&self) -> u64 {
        self.0.iter().copied().fold(ABSENT, u64::min)
    }

    /// The first place whose key is `key`, which stands in the line.
    fn place_of(&self, key: u64) -> usize {
        self.0.iter().position(|&candidate| candidate == key).unwrap_or(0)
    }
}

/// Keys in slots 0, 1, 2, …; see the module's text.
pub struct MinTree {
    /// Leaves first; the last level is one line.
    levels: Vec<Vec<Line>>,
}

impl Default for MinTree {
    fn default() -> Self {
        MinTree { levels: vec![vec![EMPTY_LINE]] }
    }
}

impl MinTree {
    /// Gives `slot` the key `key`; [`ABSENT`] takes it out. Slots exist as soon as they are set.
    pub fn set(&mut self, slot: usize, key: u64) {
        if slot >= self.levels[0].len() * LINE_KEYS {
            self.grow(slot + 1);
        }
        let (mut place, mut key) = (slot, key);
        for level in &mut self.levels {
            let line = &mut level[place / LINE_KEYS];
            if line.0[place % LINE_KEYS] == key {
                return;
            }
            line.0[place % LINE_KEYS] = key;
            key = line.min();
            place /= LINE_KEYS;
        }
    }

    /// The smallest key, [`ABSENT`] if there is none. O(1).
    pub fn min_key(&self) -> u64 {
        self.levels[self.levels.len() - 1][0].min()
    }

    /// The slot with the smallest key (the lowest of them on a tie) and that key; `None` if all are absent.
    pub fn min(&self) -> Option<(usize, u64)> {
        let key = self.min_key();
        if key == ABSENT {
            return None;
        }
        let slot = self.levels.iter().rev().fold(0, |place, level| place * LINE_KEYS + level[place].place_of(key));
        Some((slot, key))
    }

    fn grow(&mut self, slots: usize) {
        let mut lines = slots.next_power_of_two().div_ceil(LINE_KEYS);
        self.levels.truncate(1);
        self.levels[0].resize(lines, EMPTY_LINE);
        while lines > 1 {
            let below = &self.levels[self.levels.len() - 1];
            let mut level = vec![EMPTY_LINE; lines.div_ceil(LINE_KEYS)];
            for (place, line) in below.iter().enumerate() {
                level[place / LINE_KEYS].0[place % LINE_KEYS] = line.min();
            }
            lines = level.len();
            self.levels.push(level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_scan(steps in proptest::collection::vec((0usize..700, 0u64..50), 1..300)) {
            let (mut tree, mut oracle) = (MinTree::default(), vec![ABSENT; 700]);
            for (slot, key) in steps {
                let key = if key > 40 { ABSENT } else { key };
                tree.set(slot, key);
                oracle[slot] = key;
                let smallest = *oracle.iter().min().unwrap();
                let expected = (smallest != ABSENT).then(|| (oracle.iter().position(|&k| k == smallest).unwrap(), smallest));
                prop_assert_eq!(tree.min(), expected);
                prop_assert_eq!(tree.min_key(), smallest);
            }
        }
    }
}
