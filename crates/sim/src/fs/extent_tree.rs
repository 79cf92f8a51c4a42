//! A file's extents and the metadata blocks that hold them when they are too many for the inode.
//!
//! Records are packed: block n of the leaves holds the n-th so many records. (Real trees split full blocks in halves.)

use super::extents::ExtentMap;

/// How many records fit where.
#[derive(Clone, Copy, Debug)]
pub struct TreeShape {
    /// In the inode.
    pub inode_records: usize,
    /// In a block.
    pub block_records: usize,
    /// Pages of an extent at the most.
    pub extent_pages_max: u64,
}

/// Extents and their blocks.
pub struct ExtentTree {
    /// Where the pages lie.
    pub extents: ExtentMap,
    leaves: Vec<u64>,
    /// Blocks that only refer to leaves.
    indexes: Vec<u64>,
    shape: TreeShape,
}

impl ExtentTree {
    /// Of an empty file.
    pub fn new(shape: TreeShape) -> ExtentTree {
        let extents = ExtentMap::new(shape.extent_pages_max);
        ExtentTree { extents, leaves: Vec::new(), indexes: Vec::new(), shape }
    }

    /// The block with the record that speaks of `page`, if records are not in the inode.
    pub fn leaf(&self, page: u64) -> Option<u64> {
        let record = self.extents.index_of(page + 1).saturating_sub(1);
        self.leaves.get(record / self.shape.block_records).copied()
    }

    /// Blocks that hold records or refer to those.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.leaves.iter().chain(&self.indexes).copied()
    }

    /// Takes in as many blocks as the records need by now, and answers with those that they need no longer.
    pub fn fit(&mut self, mut take: impl FnMut() -> u64) -> Vec<u64> {
        let TreeShape { inode_records, block_records, .. } = self.shape;
        let needed = |records: usize| if records <= inode_records { 0 } else { records.div_ceil(block_records) };
        let leaves = needed(self.extents.len());
        let mut surplus = Vec::new();
        for (blocks, wanted) in [(&mut self.leaves, leaves), (&mut self.indexes, needed(leaves))] {
            while blocks.len() < wanted {
                blocks.push(take());
            }
            surplus.extend(blocks.drain(wanted..));
        }
        surplus
    }
}
