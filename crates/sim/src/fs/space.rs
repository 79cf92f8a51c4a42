//! Free space of one stretch of the device (a block group, an allocation group): which blocks are free.
//!
//! Kept as free runs by place, as the buddy bitmaps of mballoc and the by-place tree of XFS are in effect.

use std::collections::BTreeMap;

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Blocks {
    /// The block after the last.
    pub fn end(self) -> u64 {
        self.first + self.count
    }
}

/// Free runs by place; no two touch.
#[derive(Clone, Debug, Default)]
pub struct Space {
    runs: BTreeMap<u64, u64>,
    free: u64,
}

impl Space {
    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Free runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Whether `block` is free.
    pub fn is_free(&self, block: u64) -> bool {
        self.runs.range(..=block).next_back().is_some_and(|(&first, &count)| first + count > block)
    }

    /// Gives blocks back.
    ///
    /// # Panics
    /// If one of them is free already.
    pub fn release(&mut self, blocks: Blocks) {
        let Blocks { mut first, mut count } = blocks;
        let next = self.runs.range(first..).next().map(|(&first, &count)| (first, count));
        let previous = self.runs.range(..first).next_back().map(|(&first, &count)| (first, count));
        assert!(next.is_none_or(|(next, _)| next >= blocks.end()), "block {first} or one of {count} is freed twice");
        assert!(previous.is_none_or(|(at, count)| at + count <= first), "block {first} is freed twice");
        self.free += count;
        if let Some((at, length)) = next.filter(|&(at, _)| at == blocks.end()) {
            self.runs.remove(&at);
            count += length;
        }
        if let Some((at, length)) = previous.filter(|&(at, length)| at + length == first) {
            (first, count) = (at, count + length);
        }
        self.runs.insert(first, count);
    }

    /// Takes up to `count_max` blocks from `goal` on, if `goal` is free.
    pub fn take_at(&mut self, goal: u64, count_max: u64) -> Option<Blocks> {
        let (&first, &count) = self.runs.range(..=goal).next_back()?;
        if first + count <= goal {
            return None;
        }
        let taken = Blocks { first: goal, count: count_max.min(first + count - goal) };
        self.runs.remove(&first);
        if first < goal {
            self.runs.insert(first, goal - first);
        }
        if taken.end() < first + count {
            self.runs.insert(taken.end(), first + count - taken.end());
        }
        self.free -= taken.count;
        Some(taken)
    }

    /// Takes `count` blocks in one piece, at `goal` or at the first place after it, then before it; `None` if no run is
    /// that long.
    pub fn take_near(&mut self, goal: u64, count: u64) -> Option<Blocks> {
        if self.free < count {
            return None;
        }
        let fits_at = |first: u64, length: u64| (first + length).saturating_sub(first.max(goal)) >= count;
        let here =
            self.runs.range(..=goal).next_back().filter(|&(&first, &length)| fits_at(first, length)).map(|_| goal);
        let after = || self.runs.range(goal..).find(|&(_, &length)| length >= count).map(|(&first, _)| first);
        let before = || self.runs.range(..goal).find(|&(_, &length)| length >= count).map(|(&first, _)| first);
        let place = here.or_else(after).or_else(before)?;
        self.take_at(place, count)
    }

    /// Takes the longest run, or `count_max` blocks of it.
    pub fn take_longest(&mut self, count_max: u64) -> Option<Blocks> {
        let (&first, _) = self.runs.iter().max_by_key(|&(&first, &count)| (count, std::cmp::Reverse(first)))?;
        self.take_at(first, count_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: u64 = 64;

    fn longest(bitmap: &[bool]) -> u64 {
        bitmap.split(|&is_free| !is_free).map(<[bool]>::len).max().unwrap_or(0) as u64
    }

    proptest! {
        #[test]
        fn gives_each_block_once_and_takes_it_back(
            steps in proptest::collection::vec((0u8..4, 0..BLOCKS, 1..12u64), 0..80),
        ) {
            let mut space = Space::default();
            space.release(Blocks { first: 0, count: BLOCKS });
            let mut bitmap = vec![true; BLOCKS as usize];
            let mut given: Vec<Blocks> = Vec::new();
            for (kind, goal, count) in steps {
                let fits = longest(&bitmap) >= count;
                let taken = match kind {
                    0 => space.take_at(goal, count),
                    1 => space.take_near(goal, count),
                    2 => space.take_longest(count),
                    _ => {
                        if !given.is_empty() {
                            let blocks = given.swap_remove(goal as usize % given.len());
                            space.release(blocks);
                            bitmap[blocks.first as usize..blocks.end() as usize].fill(true);
                        }
                        None
                    }
                };
                match (kind, taken) {
                    (0, taken) => prop_assert_eq!(taken.map(|t| t.first), bitmap[goal as usize].then_some(goal)),
                    (1, taken) => prop_assert_eq!(taken.map(|t| t.count), fits.then_some(count)),
                    (2, taken) => prop_assert_eq!(taken.map_or(0, |t| t.count), longest(&bitmap).min(count)),
                    _ => {}
                }
                if let Some(taken) = taken {
                    let range = taken.first as usize..taken.end() as usize;
                    prop_assert!(bitmap[range.clone()].iter().all(|&is_free| is_free), "{taken:?} was given twice");
                    bitmap[range].fill(false);
                    given.push(taken);
                }
                prop_assert_eq!(space.free(), bitmap.iter().filter(|&&is_free| is_free).count() as u64);
                for block in 0..BLOCKS {
                    prop_assert_eq!(space.is_free(block), bitmap[block as usize]);
                }
            }
            given.into_iter().for_each(|blocks| space.release(blocks));
            prop_assert_eq!((space.free(), space.runs()), (BLOCKS, 1), "all is one piece again");
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_block_is_not_freed_twice() {
        let mut space = Space::default();
        space.release(Blocks { first: 4, count: 4 });
        space.release(Blocks { first: 7, count: 1 });
    }
}
