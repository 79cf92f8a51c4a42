//! Blocks that left a short while ago, in two bytes each.
//!
//! A set of eight places for each eight ghosts; a new one takes the place of the oldest of its set. A ghost is sixteen
//! bits of its block's hash, so one in eight thousand other blocks is taken for it. That does no harm, because ghosts
//! only teach.

use crate::memory::table;
use plimsoll_core::prefetch;

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

/// Of each kind the newest first; within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Set([[u16; WAYS]; 2]);

/// The last blocks that left, of two kinds. What is known of a block of either kind lies side by side: one look at
/// memory.
#[derive(Clone, Debug)]
pub struct Ghosts {
    sets: Vec<Set>,
    seed: u64,
}

impl Ghosts {
    /// Remembers about `count` blocks of each kind.
    pub fn new(count: u32, seed: u64) -> Ghosts {
        Ghosts { sets: table(Set([[NOBODY; WAYS]; 2]), (count as usize).div_ceil(WAYS).max(1)), seed }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>()
    }

    #[inline]
    fn place(&self, block: u64) -> (usize, u16) {
        let hash = hash(block, self.seed);
        let set = ((hash >> 32) * self.sets.len() as u64) >> 32;
        (set as usize, (hash as u16).max(1))
    }

    /// Starts loading what [`Ghosts::push`] and [`Ghosts::take`] will look at.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        prefetch(&self.sets[self.place(block).0]);
    }

    /// `block` left; it was of the second kind or not.
    #[inline]
    pub fn push(&mut self, block: u64, is_second: bool) {
        let (set, name) = self.place(block);
        let set = &mut self.sets[set].0[usize::from(is_second)];
        set.copy_within(..WAYS - 1, 1);
        set[0] = name;
    }

    /// The kind of `block`, if it left a short while ago; it is forgotten then.
    #[inline]
    pub fn take(&mut self, block: u64) -> Option<bool> {
        let (set, name) = self.place(block);
        let Set(both) = &mut self.sets[set];
        let of_either = both.as_flattened().iter().fold(false, |found, &ghost| found | (ghost == name));
        if !of_either {
            return None;
        }
        for (set, is_second) in both.iter_mut().zip([false, true]) {
            if let Some(at) = set.iter().position(|&ghost| ghost == name) {
                set.copy_within(at + 1.., at);
                set[WAYS - 1] = NOBODY;
                return Some(is_second);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn one_set_is_a_queue_of_eight(
            steps in prop::collection::vec((0u64..20, any::<bool>()), 0..200), seed in any::<u64>(), is_second in any::<bool>(),
        ) {
            let (mut ghosts, mut slow) = (Ghosts::new(8, seed), VecDeque::new());
            for (block, is_pushed) in steps {
                let name = ghosts.place(block).1;
                if is_pushed {
                    ghosts.push(block, is_second);
                    slow.push_front(name);
                    slow.truncate(WAYS);
                } else {
                    let at = slow.iter().position(|&other| other == name);
                    prop_assert_eq!(ghosts.take(block), at.map(|_| is_second));
                    at.map(|at| slow.remove(at));
                }
            }
        }
    }

    #[test]
    fn the_last_that_left_are_known_and_strangers_seldom_are() {
        let mut ghosts = Ghosts::new(8192, 7);
        (0..8192).for_each(|block| ghosts.push(block, block % 2 == 1));
        let known = (4096..8192).filter(|&block| ghosts.take(block) == Some(block % 2 == 1)).count();
        assert!(known > 3900, "{known} of the younger half");
        let strangers = (1 << 20..(1 << 20) + 100_000).filter(|&block| ghosts.take(block).is_some()).count();
        assert!(strangers < 50, "{strangers} of 100,000");
    }
}
