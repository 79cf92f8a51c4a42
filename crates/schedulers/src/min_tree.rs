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

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_KEYS]);

impl Line {
    /// Pairs first: four comparisons at once, then two, then one.
    fn min(&self) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    }

    /// The first place whose key is `key`, which stands in the line. Looks at all, without a branch to mispredict.
    fn place_of(&self, key: u64) -> usize {
        (0..LINE_KEYS).rev().fold(0, |found, place| if self.0[place] == key { place } else { found })
    }
}

/// Slots 0, 1, 2, … with `KEYS` keys each; see the module's text.
pub struct MinTree<const KEYS: usize> {
    /// The top first, then level by level: the lines below line n are 8n+1 to 8n+8. The last level has only the lines that
    /// are in use.
    lines: Vec<[Line; KEYS]>,
    /// Number of the first line of the last level.
    leaves: usize,
    /// The smallest key of all.
    smallest: [u64; KEYS],
}

impl<const KEYS: usize> Default for MinTree<KEYS> {
    fn default() -> Self {
        MinTree { lines: vec![Self::EMPTY], leaves: 0, smallest: [ABSENT; KEYS] }
    }
}

impl<const KEYS: usize> MinTree<KEYS> {
    const EMPTY: [Line; KEYS] = [Line([ABSENT; LINE_KEYS]); KEYS];

    /// Gives `slot` its keys; [`ABSENT`] takes it out of that key's order. Slots exist as soon as they are set.
    pub fn set(&mut self, slot: usize, keys: [u64; KEYS]) {
        if self.leaves + slot / LINE_KEYS >= self.lines.len() {
            self.grow(slot);
        }
        for (which, key) in keys.into_iter().enumerate() {
            self.set_one(which, slot, key);
        }
    }

    fn set_one(&mut self, which: usize, slot: usize, mut key: u64) {
        let (mut line, mut place) = (self.leaves + slot / LINE_KEYS, slot % LINE_KEYS);
        loop {
            let before = std::mem::replace(&mut self.lines[line][which].0[place], key);
            if before == key {
                return;
            }
            let (above, place_above) = ((line.wrapping_sub(1)) / LINE_KEYS, line.wrapping_sub(1) % LINE_KEYS);
            let smallest = if line == 0 { self.smallest[which] } else { self.lines[above][which].0[place_above] };
            if key > smallest {
                if before != smallest {
                    return;
                }
                key = self.lines[line][which].min();
            }
            if line == 0 {
                self.smallest[which] = key;
                return;
            }
            (line, place) = (above, place_above);
        }
    }

    /// The smallest of the keys numbered `which`, [`ABSENT`] if there is none. O(1).
    pub fn min_key(&self, which: usize) -> u64 {
        self.smallest[which]
    }

    /// The slot with the smallest key numbered `which` (the lowest of them on a tie) and that key; `None` if all are
    /// absent.
    pub fn min(&self, which: usize) -> Option<(usize, u64)> {
        let key = self.smallest[which];
        if key == ABSENT {
            return None;
        }
        let mut line = 0;
        while line < self.leaves {
            line = line * LINE_KEYS + 1 + self.lines[line][which].place_of(key);
        }
        Some(((line - self.leaves) * LINE_KEYS + self.lines[line][which].place_of(key), key))
    }

    /// Makes room for `slot`: twice the lines, or more levels, under which the old tree's leaves become the first ones.
    fn grow(&mut self, slot: usize) {
        let line = slot / LINE_KEYS;
        let mut leaves = self.leaves;
        while line > leaves * (LINE_KEYS - 1) {
            leaves = leaves * LINE_KEYS + 1;
        }
        let old_leaves = self.lines.split_off(self.leaves);
        let used = (line + 1).max(2 * old_leaves.len()).min(leaves * (LINE_KEYS - 1) + 1);
        self.lines.clear();
        self.lines.resize(leaves, Self::EMPTY);
        self.lines.extend(old_leaves);
        self.lines.resize(leaves + used, Self::EMPTY);
        self.leaves = leaves;
        for line in (1..self.lines.len()).rev() {
            for which in 0..KEYS {
                let key = self.lines[line][which].min();
                self.lines[(line - 1) / LINE_KEYS][which].0[(line - 1) % LINE_KEYS] = key;
            }
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
