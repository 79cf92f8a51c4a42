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
//! A slot may have several keys, each with a tree of its own; their lines lie side by side, because who changes one key
//! of a slot mostly changes the others too.
//!
//! `set` and `min` are O(log8 slots); most changes stop at the first level whose smallest key stays the same. Growing
//! copies the tree and is amortised by doubling.

/// The key of a slot that takes no part.
pub const ABSENT: u64 = u64::MAX;

const LINE_KEYS: usize = 8;
/// Levels of a tree with 2^24 slots, more than there are account numbers in use.
const LEVELS_MAX: usize = 8;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_KEYS]);

impl Line {
    /// Pairs first: four comparisons at once, then two, then one.
    fn min(&self) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    }

    /// The first place whose key is `key`, which stands in the line. Without a branch that could be mispredicted.
    fn place_of(&self, key: u64) -> usize {
        let equal = self.0.iter().enumerate().fold(0u32, |mask, (place, &k)| mask | u32::from(k == key) << place);
        equal.trailing_zeros() as usize % LINE_KEYS
    }
}

/// Slots 0, 1, 2, … with `KEYS` keys each; see the module's text.
pub struct MinTree<const KEYS: usize> {
    /// All levels, the leaves first.
    lines: Vec<[Line; KEYS]>,
    /// Where each level starts in `lines`.
    starts: [u32; LEVELS_MAX],
    levels: usize,
    /// The smallest key of all.
    smallest: [u64; KEYS],
}

impl<const KEYS: usize> Default for MinTree<KEYS> {
    fn default() -> Self {
        MinTree { lines: vec![Self::EMPTY], starts: [0; LEVELS_MAX], levels: 1, smallest: [ABSENT; KEYS] }
    }
}

impl<const KEYS: usize> MinTree<KEYS> {
    const EMPTY: [Line; KEYS] = [Line([ABSENT; LINE_KEYS]); KEYS];

    /// Gives `slot` its keys; [`ABSENT`] takes it out of that key's order. Slots exist as soon as they are set.
    pub fn set(&mut self, slot: usize, keys: [u64; KEYS]) {
        if slot >= self.leaf_lines() * LINE_KEYS {
            self.grow(slot + 1);
        }
        for (which, key) in keys.into_iter().enumerate() {
            self.set_one(which, slot, key);
        }
    }

    fn set_one(&mut self, which: usize, slot: usize, key: u64) {
        let (mut place, mut key) = (slot, key);
        for level in 0..self.levels {
            let line = &mut self.lines[self.starts[level] as usize + place / LINE_KEYS][which];
            let before = std::mem::replace(&mut line.0[place % LINE_KEYS], key);
            if before == key {
                return;
            }
            let smallest = self.smallest_above(which, level, place / LINE_KEYS);
            if key > smallest {
                if before != smallest {
                    return;
                }
                key = self.lines[self.starts[level] as usize + place / LINE_KEYS][which].min();
            }
            place /= LINE_KEYS;
        }
        self.smallest[which] = key;
    }

    /// What the level above `level` says is the smallest key of its line number `line`.
    fn smallest_above(&self, which: usize, level: usize, line: usize) -> u64 {
        if level + 1 == self.levels {
            return self.smallest[which];
        }
        self.lines[self.starts[level + 1] as usize + line / LINE_KEYS][which].0[line % LINE_KEYS]
    }

    fn leaf_lines(&self) -> usize {
        if self.levels == 1 { 1 } else { self.starts[1] as usize }
    }

    /// The smallest of the keys numbered `which`, [`ABSENT`] if there is none. O(1).
    pub fn min_key(&self, which: usize) -> u64 {
        self.smallest[which]
    }

    /// The slot with the smallest key numbered `which` (the lowest of them on a tie) and that key; `None` if all are
    /// absent.
    pub fn min(&self, which: usize) -> Option<(usize, u64)> {
        let key = self.min_key(which);
        if key == ABSENT {
            return None;
        }
        let slot = (0..self.levels).rev().fold(0, |place, level| {
            let line = &self.lines[self.starts[level] as usize + place][which];
            place * LINE_KEYS + line.place_of(key)
        });
        Some((slot, key))
    }

    /// Makes room for at least `slots` slots.
    fn grow(&mut self, slots: usize) {
        let mut below = 0..slots.next_power_of_two().div_ceil(LINE_KEYS);
        self.lines.truncate(self.leaf_lines());
        self.lines.resize(below.end, Self::EMPTY);
        self.levels = 1;
        while below.len() > 1 {
            let start = self.lines.len();
            self.starts[self.levels] = start as u32;
            self.levels += 1;
            self.lines.resize(start + below.len().div_ceil(LINE_KEYS), Self::EMPTY);
            for (place, index) in below.enumerate() {
                for which in 0..KEYS {
                    let key = self.lines[index][which].min();
                    self.lines[start + place / LINE_KEYS][which].0[place % LINE_KEYS] = key;
                }
            }
            below = start..self.lines.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_scan(steps in proptest::collection::vec((0usize..700, 0u64..50, 0u64..50), 1..300)) {
            let (mut tree, mut oracle) = (MinTree::<2>::default(), vec![[ABSENT; 2]; 700]);
            for (slot, first, second) in steps {
                let keys = [first, second].map(|key| if key > 40 { ABSENT } else { key });
                tree.set(slot, keys);
                oracle[slot] = keys;
                for which in 0..2 {
                    let smallest = oracle.iter().map(|keys| keys[which]).min().unwrap();
                    let expected = (smallest != ABSENT)
                        .then(|| (oracle.iter().position(|keys| keys[which] == smallest).unwrap(), smallest));
                    prop_assert_eq!(tree.min(which), expected);
                    prop_assert_eq!(tree.min_key(which), smallest);
                }
            }
        }
    }
}
