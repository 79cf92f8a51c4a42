//! The reads of e2fsck (e2fsprogs 1.4x, `e2fsck -f`), in its order. Pass 1 has the inodes in use and the blocks of
//! their extents, pass 2 directories by their place, pass 5 bitmaps. Passes 3 and 4 read nothing new.

use super::Ext4;
use super::layout::{Ext4Layout, GROUP_BLOCKS, GROUP_INODES};
use super::node::Ext4State;
use crate::cache::PageRange;
use std::collections::BTreeMap;

/// Blocks of an inode table that are read at once: the kernel's read-ahead of a device read in order, 128 KiB.
const TABLE_BLOCKS: u64 = 32;

impl Ext4 {
    /// The blocks, those of one range read at once.
    pub(super) fn blocks_to_check(&self) -> Vec<PageRange> {
        let state = self.state.borrow();
        let mut order = vec![one(Ext4Layout::SUPERBLOCK)];
        let groups = state.layout.groups;
        let descriptors = state.layout.descriptor(groups - 1);
        order.extend(in_pieces(1, descriptors));
        order.extend(tables_and_trees(&state));
        let mut directories: Vec<u64> = state.directory_blocks().collect();
        directories.sort_unstable();
        order.extend(directories.into_iter().map(one));
        let in_use = |group: &u64| state.allocator.free_blocks_of(*group) < GROUP_BLOCKS;
        let bitmaps: Vec<u64> = (0..groups).filter(in_use).map(|group| state.layout.block_bitmap(group)).collect();
        order.extend(bitmaps.into_iter().map(one));
        let with_inodes = (0..groups).filter(|&group| state.allocator.inodes_used_of(group) > 0);
        order.extend(with_inodes.map(|group| one(state.layout.inode_bitmap(group))));
        order
    }
}

/// Inode tables as far as they were ever used, a piece at a time. After each piece come the blocks of extents of its
/// files.
fn tables_and_trees(state: &Ext4State) -> Vec<PageRange> {
    let mut trees: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for node in state.nodes.values() {
        let block = state.layout.inode_block(node.slot);
        let of_tree = node.tree.blocks().collect::<Vec<u64>>();
        if !of_tree.is_empty() {
            trees.entry(block).or_default().extend(of_tree);
        }
    }
    let mut order = Vec::new();
    for group in 0..state.layout.groups {
        let used = state.allocator.inodes_used_of(group);
        if used == 0 {
            continue;
        }
        let first = state.layout.inode_block(group * GROUP_INODES);
        for piece in in_pieces(first, state.layout.inode_block(group * GROUP_INODES + used - 1)) {
            order.push(piece);
            let within = trees.range(piece.first..piece.end()).flat_map(|(_, blocks)| blocks.iter().copied());
            order.extend(within.map(one));
        }
    }
    order
}

fn one(block: u64) -> PageRange {
    PageRange { first: block, count: 1 }
}

/// The blocks from `first` to `last`, so many at a time.
fn in_pieces(first: u64, last: u64) -> impl Iterator<Item = PageRange> {
    let starts = (first..=last).step_by(TABLE_BLOCKS as usize);
    starts.map(move |start| PageRange { first: start, count: TABLE_BLOCKS.min(last + 1 - start) })
}
