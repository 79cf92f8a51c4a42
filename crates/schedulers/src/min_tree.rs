//! Finds the owner of the smallest of many keys that change all the time.
//!
//! Keys sit in numbered slots, five to a cache line, each with its owner beside it. Above them, again five to a line,
//! stands the smallest key of each line with its owner, up to one line at the top. A slot never moves, so there is no
//! position index to keep, as a heap would need. The lines that a change may touch follow from the slot alone, so the
//! processor loads them side by side.
//!
//! ```text
//!   first      (3, d)
//!   top        [ 3d 5k . . . ]
//!                /   \
//!   slots   [ 7c 3d 9e ..]  [ 8h 5k ..]
//! ```
//!
//! No search walks down: each key has its owner beside it all the way up, so the top names the first owner.
//!
//! A slot has several keys, each with a tree of its own. So a change of one of them waits for one line a level, and an
//! owner without one of them waits for none. The lines of a slot's keys lie side by side, because they are mostly
//! changed together.
//!
//! `set` is O(log5 slots), and most changes stop at the first level where the smallest key stays the same; `first` is
//! O(1). Growing by an eighth builds the lines above anew. That is often enough that little memory lies idle, and
//! seldom enough that a slot pays for a handful of lines.

/// The key of a slot that takes no part.
pub const ABSENT: u64 = u64::MAX;

/// How many keys a slot has.
pub const KEYS: usize = 3;

/// Keys in a cache line of 64 bytes: eight bytes each, with owners of four.
const LINE_KEYS: usize = 5;

/// Slots are added by this part of those that there are.
const GROWTH_PART: usize = 8;

/// The smallest key, and its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct First {
    /// [`ABSENT`] if no owner takes part; then the owner means nothing.
    pub key: u64,
    /// The number that its slot was given.
    pub owner: u32,
}

/// One of the keys of five slots, or what stands first in each of five lines below.
#[derive(Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct KeyLine {
    keys: [u64; LINE_KEYS],
    owners: [u32; LINE_KEYS],
}

const _: () = assert!(size_of::<KeyLine>() == 64);

impl KeyLine {
    const EMPTY: KeyLine = KeyLine { keys: [ABSENT; LINE_KEYS], owners: [0; LINE_KEYS] };

    /// The smallest key and its owner, in the lowest place on a tie. A knock-out without a branch to mispredict.
    fn first(&self) -> First {
        let lower = |a: (u64, usize), b: (u64, usize)| if b.0 < a.0 { b } else { a };
        let pair = |place: usize| lower((self.keys[place], place), (self.keys[place + 1], place + 1));
        let (key, place) = lower(lower(pair(0), pair(2)), (self.keys[4], 4));
        First { key, owner: self.owners[place % LINE_KEYS] }
    }
}

/// Slots 0, 1, 2, … with [`KEYS`] keys each; see the module's text.
pub struct MinTree {
    firsts: [First; KEYS],
    /// The lines of the slots, then level by level the lines above them, with one entry for each line below.
    lines: Vec<[KeyLine; KEYS]>,
    /// How many of them are of slots.
    slot_lines: usize,
}

impl Default for MinTree {
    fn default() -> Self {
        MinTree { firsts: [First { key: ABSENT, owner: 0 }; KEYS], lines: Vec::new(), slot_lines: 0 }
    }
}

impl MinTree {
    /// The owner of the smallest of the keys numbered `which` (in the lowest slot on a tie). O(1).
    pub fn first(&self, which: usize) -> First {
        self.firsts[which]
    }

    /// Gives `slot`, which takes no part, to `owner`. No two slots that take part may have the same owner.
    pub fn assign(&mut self, slot: usize, owner: u32) {
        while slot / LINE_KEYS >= self.slot_lines {
            self.grow();
        }
        self.lines[slot / LINE_KEYS].iter_mut().for_each(|line| line.owners[slot % LINE_KEYS] = owner);
    }

    /// The lines that [`set_one`](MinTree::set_one) reads for `slot`, for a caller that can load them in advance.
    pub(crate) fn lines_of(&self, slot: usize, which: usize) -> impl Iterator<Item = &KeyLine> {
        let (mut line, mut level_start, mut level_lines) = (slot / LINE_KEYS, 0, self.slot_lines);
        std::iter::from_fn(move || {
            let here = self.lines.get(level_start + line);
            level_start += level_lines;
            level_lines = level_lines.div_ceil(LINE_KEYS);
            line /= LINE_KEYS;
            here.map(|lines| &lines[which])
        })
    }

    /// Gives an assigned slot its keys; [`ABSENT`] takes it out of that key's order.
    pub fn set(&mut self, slot: usize, keys: [u64; KEYS]) {
        self.set_one::<0>(slot, keys[0]);
        self.set_one::<1>(slot, keys[1]);
        self.set_one::<2>(slot, keys[2]);
    }

    /// Gives an assigned slot one of its keys. A function for each, so that where it stands is known when compiling.
    pub(crate) fn set_one<const WHICH: usize>(&mut self, slot: usize, key: u64) {
        let (mut line, place) = (slot / LINE_KEYS, slot % LINE_KEYS);
        let changed = &mut self.lines[line][WHICH];
        if changed.keys[place] == key {
            return;
        }
        changed.keys[place] = key;
        let owner = changed.owners[place];
        let (mut now, mut owner_before) = (First { key, owner }, owner);
        let (mut level_start, mut level_lines) = (0, self.slot_lines);
        loop {
            let here = level_start + line;
            level_start += level_lines;
            level_lines = level_lines.div_ceil(LINE_KEYS);
            let place = line % LINE_KEYS;
            line /= LINE_KEYS;
            let before = match self.lines.get(level_start + line) {
                Some(above) => First { key: above[WHICH].keys[place], owner: above[WHICH].owners[place] },
                None => self.firsts[WHICH],
            };
            if now.key >= before.key {
                if now.key > before.key && before.owner != owner_before {
                    return;
                }
                now = self.lines[here][WHICH].first();
                if now == before {
                    return;
                }
            }
            owner_before = before.owner;
            let Some(above) = self.lines.get_mut(level_start + line) else {
                self.firsts[WHICH] = now;
                return;
            };
            above[WHICH].keys[place] = now.key;
            above[WHICH].owners[place] = now.owner;
        }
    }

    /// An eighth more slots.
    fn grow(&mut self) {
        self.lines.truncate(self.slot_lines);
        self.slot_lines += (self.slot_lines / GROWTH_PART).max(1);
        let levels =
            std::iter::successors(Some(self.slot_lines), |&level| (level > 1).then(|| level.div_ceil(LINE_KEYS)));
        self.lines.reserve_exact(levels.sum::<usize>() - self.lines.len());
        self.lines.resize(self.slot_lines, [KeyLine::EMPTY; KEYS]);
        self.build();
    }

    /// Makes all lines above the slots' own.
    fn build(&mut self) {
        self.lines.truncate(self.slot_lines);
        let mut below = 0..self.slot_lines;
        while below.len() > 1 {
            for first_line in below.clone().step_by(LINE_KEYS) {
                let mut above = [KeyLine::EMPTY; KEYS];
                for line in first_line..below.end.min(first_line + LINE_KEYS) {
                    for (above, of_key) in above.iter_mut().zip(&self.lines[line]) {
                        let First { key, owner } = of_key.first();
                        above.keys[line - first_line] = key;
                        above.owners[line - first_line] = owner;
                    }
                }
                self.lines.push(above);
            }
            below = below.end..self.lines.len();
        }
        for which in 0..KEYS {
            self.firsts[which] = self.lines[below.start][which].first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: usize = 700;

    proptest! {
        #[test]
        fn agrees_with_a_scan(steps in proptest::collection::vec((0..SLOTS, [0u64..50, 0u64..50, 0u64..50]), 1..300)) {
            let (mut tree, mut oracle, mut owners) = (MinTree::default(), vec![[ABSENT; KEYS]; SLOTS], Vec::new());
            let mut fresh_owner = 10_000;
            for (slot, keys) in steps {
                while owners.len() <= slot {
                    owners.push(7000 - owners.len() as u32); // not in the order of slots
                    tree.assign(owners.len() - 1, owners[owners.len() - 1]);
                }
                let keys = keys.map(|key| if key > 30 { ABSENT } else { key });
                tree.set(slot, keys);
                oracle[slot] = keys;
                if keys == [ABSENT; KEYS] {
                    fresh_owner += 1;
                    owners[slot] = fresh_owner;
                    tree.assign(slot, fresh_owner);
                }
                for which in 0..KEYS {
                    let key = oracle.iter().map(|keys| keys[which]).min().unwrap();
                    prop_assert_eq!(tree.first(which).key, key);
                    if key != ABSENT {
                        let slot = oracle.iter().position(|keys| keys[which] == key).unwrap();
                        prop_assert_eq!(tree.first(which).owner, owners[slot]);
                    }
                }
            }
        }

        /// What an account costs that becomes active or idle, counted in lines of memory: one for each factor of five.
        #[test]
        fn a_change_among_50_000_looks_at_seven_lines(slot in 0usize..50_000, key in 0u64..50) {
            let mut tree = MinTree::default();
            tree.assign(49_999, 49_999);
            tree.set(slot, [key; KEYS]);
            prop_assert_eq!(tree.lines_of(slot, 0).count(), 7);
        }

        #[test]
        fn only_the_lines_of_a_slot_change_with_it(steps in proptest::collection::vec((0..SLOTS, 0u64..50), 1..40)) {
            let mut tree = MinTree::default();
            (0..SLOTS).for_each(|slot| tree.assign(slot, slot as u32));
            for (slot, key) in steps {
                let before = tree.lines.clone();
                tree.set(slot, [key; KEYS]);
                for (lines, before) in tree.lines.iter().zip(before) {
                    for which in (0..KEYS).filter(|&which| lines[which] != before[which]) {
                        prop_assert!(tree.lines_of(slot, which).any(|of_slot| std::ptr::eq(of_slot, &lines[which])));
                    }
                }
            }
        }
    }
}
