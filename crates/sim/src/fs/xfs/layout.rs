//! The layout of XFS by mkfs.xfs: few large allocation groups, with the log in the middle one. Each has its headers and
//! the roots of its trees in front.

use crate::fs::class;
use crate::fs::space::Blocks;
use plimsoll_core::Class;

/// Allocation groups of a single disk up to 4 TiB (mkfs.xfs `calc_default_ag_geometry`).
const GROUPS: u64 = 4;
/// Blocks of an allocation group at the most: 1 TiB.
const GROUP_BLOCKS_MAX: u64 = 1 << 28;
/// Blocks in front of a group: headers, four roots, four that the free list keeps (`XFS_PREALLOC_BLOCKS` and the list's
/// minimum).
const FRONT_BLOCKS: u64 = 9;
/// Blocks of the device for one of the log (mkfs.xfs since 5.15: a 2048th).
const BLOCKS_PER_LOG_BLOCK: u64 = 2048;
/// Blocks of the log at least and at most: 64 MiB, 2 GiB.
const LOG_BLOCKS_MIN: u64 = (64 << 20) / 4096;
const LOG_BLOCKS_MAX: u64 = (2 << 30) / 4096;

/// The layout of a device.
#[derive(Clone, Debug)]
pub struct XfsLayout {
    /// Allocation groups.
    pub groups: u64,
    /// Blocks of each.
    pub group_blocks: u64,
    /// The log.
    pub log: Blocks,
}

impl XfsLayout {
    /// Of a device of so many blocks; the log gets `log_blocks`, or what mkfs.xfs gives it.
    ///
    /// # Panics
    /// If the device is too small for the log.
    pub fn new(blocks: u64, log_blocks: Option<u64>) -> XfsLayout {
        let groups = GROUPS.max(blocks.div_ceil(GROUP_BLOCKS_MAX));
        let group_blocks = blocks / groups;
        let by_size = (blocks / BLOCKS_PER_LOG_BLOCK).clamp(LOG_BLOCKS_MIN, LOG_BLOCKS_MAX);
        let count = log_blocks.unwrap_or(by_size);
        assert!(FRONT_BLOCKS + count < group_blocks, "a log of {count} blocks in a group of {group_blocks}");
        let first = groups / 2 * group_blocks + FRONT_BLOCKS;
        XfsLayout { groups, group_blocks, log: Blocks { first, count } }
    }

    /// The group of a block.
    pub fn group_of(&self, block: u64) -> u64 {
        (block / self.group_blocks).min(self.groups - 1)
    }

    /// A group's first block.
    pub fn start(&self, group: u64) -> u64 {
        group * self.group_blocks
    }

    /// The blocks that change with a group's free space: AGF, the tree by place, the tree by length.
    pub fn space_blocks(&self, group: u64) -> [u64; 3] {
        [0, 1, 2].map(|at| self.start(group) + at)
    }

    /// The blocks that change with a group's inodes: AGI, the tree of inodes, the tree of free inodes.
    pub fn inode_blocks(&self, group: u64) -> [u64; 3] {
        [0, 3, 4].map(|at| self.start(group) + at)
    }

    /// What of a group is for files: pieces, in order.
    pub fn free(&self, group: u64) -> Vec<Blocks> {
        let (first, end) = (self.start(group) + FRONT_BLOCKS, self.start(group + 1));
        if self.group_of(self.log.first) == group {
            return vec![Blocks { first: self.log.end(), count: end - self.log.end() }];
        }
        vec![Blocks { first, count: end - first }]
    }

    /// The class of a block with a fixed place; `None` for others.
    pub fn class_of(&self, block: u64) -> Option<Class> {
        if (self.log.first..self.log.end()).contains(&block) {
            return Some(class::JOURNAL);
        }
        match block - self.start(self.group_of(block)) {
            0 => Some(class::GROUP_DESCRIPTOR),
            1..FRONT_BLOCKS => Some(class::BITMAP),
            _ => None,
        }
    }
}
