//! Blocks that the store does not take.
//!
//! As a rule that is a bad region of a disk, and no reason to stop: a unit that the policy gave up is set aside, still readable, and others
//! leave in its place; whoever copies everything goes on with the next one and says at the end what is missing. Now and then, when others were
//! copied, one of those aside is tried again: the store may have been away for a moment only.

use super::machine::CacheStore;
use std::collections::VecDeque;
use std::ops::Range;

/// Copies of victims one behind the other that fail until it is the store that has failed, and not a region of it.
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
    /// Of the units that were copied, the one after which the next is tried again.
    again_at: u64,
    blocks: u64,
    named: Vec<u64>,
}

/// What [`CacheStore::clean_all`] could not copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotCopied {
    /// Blocks that the store refused, since it was asked for last.
    pub blocks: u64,
    /// Of those the first thousand, as ranges of neighbours in order.
    pub ranges: Vec<Range<u64>>,
}

impl Refused {
    pub fn new() -> Refused {
        let (again, named) = (VecDeque::with_capacity(AGAIN_MAX), Vec::with_capacity(NAMED_MAX));
        Refused { in_a_row: 0, again, again_at: 0, blocks: 0, named }
    }

    /// Everything is going to be copied.
    pub fn begin(&mut self) {
        self.blocks = 0;
        self.named.clear();
    }

    /// One was copied.
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
}

impl CacheStore {
    /// What the store refused since [`CacheStore::clean_all`] was asked for last: it is in the cache, dirty.
    pub fn not_copied(&self) -> NotCopied {
        let mut blocks = self.cleaner.refused.named.clone();
        blocks.sort_unstable();
        blocks.dedup();
        let runs = blocks.chunk_by(|block, next| block + 1 == *next);
        let ranges = runs.map(|run| run[0]..run[run.len() - 1] + 1).collect();
        NotCopied { blocks: self.cleaner.refused.blocks, ranges }
    }

    /// Units that the device cannot write: they hold nothing, and are tried again at the next start.
    pub fn bad_units(&self) -> u32 {
        self.cache.bad_units()
    }
}
