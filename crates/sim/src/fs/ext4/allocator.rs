//! Which file gets which blocks and inodes: near what belongs together, in one piece if there is one.

use super::layout::{Ext4Layout, FIRST_SLOT, FLEX_GROUPS, GROUP_BLOCKS, GROUP_INODES, ROOT_SLOT};
use crate::fs::space::{Blocks, Space};
use std::collections::BTreeSet;

/// Free blocks and inodes of all groups.
pub struct Allocator {
    spaces: Vec<Space>,
    inodes: Vec<Inodes>,
    /// Directories of each flex group.
    directories: Vec<u64>,
}

/// Inodes of a group.
#[derive(Default)]
struct Inodes {
    /// None was given out from here on.
    next: u64,
    freed: BTreeSet<u64>,
}

impl Inodes {
    fn free(&self) -> u64 {
        GROUP_INODES - self.next + self.freed.len() as u64
    }

    fn take(&mut self) -> Option<u64> {
        if let Some(freed) = self.freed.pop_first() {
            return Some(freed);
        }
        (self.next < GROUP_INODES).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// The group of a block.
pub fn group_of(block: u64) -> u64 {
    block / GROUP_BLOCKS
}

/// Blocks, cut at the borders of groups.
pub fn by_group(blocks: Blocks) -> impl Iterator<Item = Blocks> {
    let mut first = blocks.first;
    std::iter::from_fn(move || {
        let end = blocks.end().min((group_of(first) + 1) * GROUP_BLOCKS);
        let piece = Blocks { first, count: end.checked_sub(first).filter(|&count| count > 0)? };
        first = end;
        Some(piece)
    })
}

impl Allocator {
    /// Everything free that the layout does not need.
    pub fn new(layout: &Ext4Layout) -> Allocator {
        let mut spaces: Vec<Space> = vec![Space::default(); layout.groups as usize];
        for (group, space) in (0..).zip(&mut spaces) {
            space.release(Blocks { first: group * GROUP_BLOCKS, count: GROUP_BLOCKS });
        }
        for piece in layout.reserved().into_iter().flat_map(by_group) {
            let taken = spaces[group_of(piece.first) as usize].take_at(piece.first, piece.count);
            assert_eq!(taken, Some(piece), "what is reserved is reserved once");
        }
        let mut inodes: Vec<Inodes> = Vec::new();
        inodes.resize_with(spaces.len(), Inodes::default);
        inodes[0].next = FIRST_SLOT;
        let directories = vec![0; layout.groups.div_ceil(FLEX_GROUPS) as usize];
        Allocator { spaces, inodes, directories }
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.spaces.iter().map(Space::free).sum()
    }

    /// Free blocks of a group.
    pub fn free_blocks_of(&self, group: u64) -> u64 {
        self.spaces[group as usize].free()
    }

    /// Inodes of a group that were ever given out.
    pub fn inodes_used_of(&self, group: u64) -> u64 {
        self.inodes[group as usize].next
    }

    /// Whether `block` is free.
    #[cfg(test)]
    pub fn is_free(&self, block: u64) -> bool {
        self.spaces[group_of(block) as usize].is_free(block)
    }

    /// Takes at least one and at most `count_max` blocks in one piece: at `goal`, or as near after it as so many are
    /// free. If there are none, it tries half as many, and so on.
    ///
    /// # Panics
    /// If the device is full.
    pub fn take(&mut self, goal: u64, count_max: u64) -> Blocks {
        let groups = self.spaces.len() as u64;
        let goal = goal.min(groups * GROUP_BLOCKS - 1);
        let first_group = group_of(goal);
        let at_goal = self.spaces[first_group as usize].take_at(goal, count_max);
        if let Some(blocks) = at_goal {
            return blocks;
        }
        let mut count = count_max.min(GROUP_BLOCKS);
        while count > 0 {
            for step in 0..groups {
                let group = (first_group + step) % groups;
                if let Some(blocks) = self.spaces[group as usize].take_near(goal, count) {
                    return blocks;
                }
            }
            count /= 2;
        }
        panic!("the device is full: none of {} blocks is free", groups * GROUP_BLOCKS);
    }

    /// Gives blocks back.
    pub fn release(&mut self, blocks: Blocks) {
        for piece in by_group(blocks) {
            self.spaces[group_of(piece.first) as usize].release(piece);
        }
    }

    /// An inode for a file: in its directory's group, or the next with one free (`find_group_other`).
    pub fn take_file_slot(&mut self, directory: u64) -> u64 {
        self.take_slot(directory / GROUP_INODES)
    }

    /// An inode for a directory. In the root: in the flex group with the fewest directories, so that they spread;
    /// below: near its parent (`find_group_orlov`, without its debts).
    pub fn take_directory_slot(&mut self, parent: u64) -> u64 {
        let group = if parent == ROOT_SLOT {
            let flex = (0u64..).zip(&self.directories).min_by_key(|&(flex, &count)| (count, flex));
            flex.expect("there is a flex group").0 * FLEX_GROUPS
        } else {
            parent / GROUP_INODES
        };
        let slot = self.take_slot(group);
        self.directories[(slot / GROUP_INODES / FLEX_GROUPS) as usize] += 1;
        slot
    }

    fn take_slot(&mut self, goal: u64) -> u64 {
        let groups = self.inodes.len() as u64;
        let with_free = (0..groups).map(|step| (goal + step) % groups).find(|&g| self.inodes[g as usize].free() > 0);
        let group = with_free.unwrap_or_else(|| panic!("the device has no free inode of {}", groups * GROUP_INODES));
        let within = self.inodes[group as usize].take().expect("one is free");
        group * GROUP_INODES + within
    }

    /// Gives an inode back.
    pub fn release_slot(&mut self, slot: u64, is_directory: bool) {
        let is_new = self.inodes[(slot / GROUP_INODES) as usize].freed.insert(slot % GROUP_INODES);
        assert!(is_new, "inode {slot} is freed twice");
        if is_directory {
            self.directories[(slot / GROUP_INODES / FLEX_GROUPS) as usize] -= 1;
        }
    }

    /// Where a file's first block should be: the second group of its inode's flex group, so that directories' blocks
    /// stay together in the first (`ext4_inode_to_goal_block`).
    pub fn first_goal(&self, slot: u64, is_directory: bool) -> u64 {
        let flex_start = slot / GROUP_INODES / FLEX_GROUPS * FLEX_GROUPS;
        let group = if is_directory { flex_start } else { flex_start + 1 };
        group.min(self.spaces.len() as u64 - 1) * GROUP_BLOCKS
    }
}
