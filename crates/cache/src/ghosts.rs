//! Who left a short while ago, in two bytes each.
//!
//! A set of eight places for each eight ghosts; a new one takes the place of the oldest of its set. A ghost is sixteen bits of its
//! block's hash, so one in eight thousand strangers is taken for one: that does no harm, because ghosts only teach.

/// Ghosts of a set.
const WAYS: usize = 8;
/// No ghost.
const NOBODY: u16 = 0;

/// A hash of `block`, another one for each `seed`: one round of SplitMix64's finalizer.
#[inline]
pub(crate) fn hash(block: u64, seed: u64) -> u64 {
    let mut hash = (block ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^ (hash >> 31)
}

/// The last blocks that left.
#[derive(Clone, Debug)]
pub struct Ghosts {
    /// Of each set, the newest first.
    sets: Vec<[u16; WAYS]>,
    seed: u64,
}

impl Ghosts {
    /// Remembers about `count` blocks.
    pub fn new(count: u32, seed: u64) -> Ghosts {
        Ghosts { sets: vec![[NOBODY; WAYS]; (count as usize).div_ceil(WAYS).max(1)], seed }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[u16; WAYS]>()
    }

    fn place(&self, block: u64) -> (usize, u16) {
        let hash = hash(block, self.seed);
        let set = ((hash >> 32) * self.sets.len() as u64) >> 32;
        (set as usize, (hash as u16).max(1))
    }

    /// `block` left.
    pub fn push(&mut self, block: u64) {
        let (set, name) = self.place(block);
        self.sets[set].copy_within(..WAYS - 1, 1);
        self.sets[set][0] = name;
    }

    /// Whether `block` left a short while ago; it is forgotten then.
    pub fn take(&mut self, block: u64) -> bool {
        let (set, name) = self.place(block);
        let set = &mut self.sets[set];
        let Some(at) = set.iter().position(|&ghost| ghost == name) else { return false };
        set.copy_within(at + 1.., at);
        set[WAYS - 1] = NOBODY;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn one_set_is_a_queue_of_eight(steps in prop::collection::vec((0u64..20, any::<bool>()), 0..200), seed in any::<u64>()) {
            let (mut ghosts, mut slow) = (Ghosts::new(8, seed), VecDeque::new());
            for (block, is_pushed) in steps {
                let name = ghosts.place(block).1;
                if is_pushed {
                    ghosts.push(block);
                    slow.push_front(name);
                    slow.truncate(WAYS);
                } else {
                    let at = slow.iter().position(|&other| other == name);
                    prop_assert_eq!(ghosts.take(block), at.is_some());
                    at.map(|at| slow.remove(at));
                }
            }
        }
    }

    #[test]
    fn the_last_that_left_are_known_and_strangers_seldom_are() {
        let mut ghosts = Ghosts::new(8192, 7);
        (0..8192).for_each(|block| ghosts.push(block));
        let known = (4096..8192).filter(|&block| ghosts.take(block)).count();
        assert!(known > 3900, "{known} of the younger half");
        let strangers = (1 << 20..(1 << 20) + 100_000).filter(|&block| ghosts.take(block)).count();
        assert!(strangers < 50, "{strangers} of 100,000");
    }
}
