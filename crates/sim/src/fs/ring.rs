//! A journal's room: a ring of blocks. Transactions take theirs at the head; the tail moves on when the oldest one's
//! blocks are all in place.

use super::space::Blocks;
use std::collections::{BTreeMap, BTreeSet};

/// A committed transaction with its part of the ring in use.
struct Committed {
    length: u64,
    /// Blocks not known to be in place.
    blocks: BTreeSet<u64>,
}

/// The ring.
pub struct Ring {
    area: Blocks,
    /// Where the next transaction's part begins, counted from the ring's first block.
    head: u64,
    free: u64,
    /// Given back by transactions that are all in place, and usable when that is durable.
    reclaimed: u64,
    committed: BTreeMap<u64, Committed>,
    /// The last committed transaction that has a block.
    holders: BTreeMap<u64, u64>,
    /// Taken by the transaction that is being committed.
    taken: u64,
}

impl Ring {
    /// Of these blocks, all free.
    pub fn new(area: Blocks) -> Ring {
        Ring {
            area,
            head: 0,
            free: area.count,
            reclaimed: 0,
            committed: BTreeMap::new(),
            holders: BTreeMap::new(),
            taken: 0,
        }
    }

    /// Blocks of the ring.
    pub fn blocks(&self) -> u64 {
        self.area.count
    }

    /// Blocks that may be taken.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Blocks that are free once it is durable that the tail has moved, or that what they held is in place.
    pub fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    /// The next `count` places.
    ///
    /// # Panics
    /// If they are not free.
    pub fn take(&mut self, count: u64) -> Vec<u64> {
        assert!(count <= self.free, "a transaction of {count} blocks in a journal with {} free", self.free);
        let places = (0..count).map(|at| self.area.first + (self.head + at) % self.area.count).collect();
        self.head = (self.head + count) % self.area.count;
        self.free -= count;
        self.taken = count;
        places
    }

    /// What was taken holds transaction `id` and its blocks; those that an older one had as well are this one's now.
    pub fn commit(&mut self, id: u64, blocks: BTreeSet<u64>) {
        for &block in &blocks {
            self.forget(block);
            self.holders.insert(block, id);
        }
        let length = std::mem::take(&mut self.taken);
        self.committed.insert(id, Committed { length, blocks });
    }

    /// A block is metadata no longer.
    pub fn forget(&mut self, block: u64) {
        if let Some(holder) = self.holders.remove(&block) {
            self.committed.get_mut(&holder).expect("it has the block").blocks.remove(&block);
        }
    }

    /// The oldest transaction.
    pub fn oldest_id(&self) -> Option<u64> {
        self.committed.keys().next().copied()
    }

    /// Blocks of the oldest transaction that are not in place.
    pub fn oldest(&self) -> Vec<u64> {
        self.committed.values().next().map_or(Vec::new(), |oldest| oldest.blocks.iter().copied().collect())
    }

    /// Takes out what is in place; whole transactions at the tail are reclaimed.
    pub fn clean(&mut self, is_in_place: impl Fn(u64) -> bool) {
        while let Some(mut oldest) = self.committed.first_entry() {
            oldest.get_mut().blocks.retain(|&block| {
                let is_left = !is_in_place(block);
                if !is_left {
                    self.holders.remove(&block);
                }
                is_left
            });
            if !oldest.get().blocks.is_empty() {
                break;
            }
            self.reclaimed += oldest.remove().length;
        }
    }

    /// So many of the reclaimed blocks are free.
    pub fn release(&mut self, blocks: u64) {
        self.reclaimed -= blocks;
        self.free += blocks;
    }

    /// # Panics
    /// If blocks were lost or doubled.
    pub fn assert_conserved(&self) {
        let used: u64 = self.committed.values().map(|committed| committed.length).sum();
        let sum = self.free + used + self.reclaimed + self.taken;
        assert_eq!(self.area.count, sum, "journal = free + in use + reclaimed + being written");
    }
}
