//! The layout of ext4 by mke2fs: block groups of 128 MiB, with the bitmaps and inode tables of sixteen of them together
//! (flex_bg). Copies of the superblock and the descriptors are in few groups (sparse_super), each with spare blocks for
//! more descriptors (resize_inode). The journal is in the emptiest group around the middle.

use crate::fs::class;
use crate::fs::space::Blocks;
use plimsoll_core::Class;

/// Blocks of a group: as many as a block has bits (mke2fs with blocks of 4 KiB).
pub const GROUP_BLOCKS: u64 = 32768;
/// Groups with bitmaps and inode tables that lie together (mke2fs.conf `flex_bg`, `-G 16`).
pub const FLEX_GROUPS: u64 = 16;
/// Inodes of a group: one for each 16 KiB (mke2fs.conf `inode_ratio = 16384`).
pub const GROUP_INODES: u64 = 8192;
/// Inodes in a block: 256 bytes each (mke2fs.conf `inode_size`).
const BLOCK_INODES: u64 = 16;
/// Descriptors in a block: 64 bytes each (feature `64bit`).
const BLOCK_DESCRIPTORS: u64 = 64;
/// Descriptors are kept room for until the device has grown by this factor (`calc_reserved_gdt_blocks`).
const GROWTH_FACTOR: u64 = 1024;
/// Blocks of a device at the most with descriptors that resize_inode knows (`calc_reserved_gdt_blocks`: 32 bits).
const GROWN_BLOCKS_MAX: u64 = u32::MAX as u64;
/// Blocks kept for more descriptors at the most: the numbers in a block (`EXT2_ADDR_PER_BLOCK`).
const GROWTH_BLOCKS_MAX: u64 = 1024;
/// The first inode that is not reserved (`EXT4_GOOD_OLD_FIRST_INO`).
pub const FIRST_SLOT: u64 = 11;
/// The root directory's inode (`EXT4_ROOT_INO`).
pub const ROOT_SLOT: u64 = 2;
/// Journal blocks by blocks of the device: up to the first, the second (`ext2fs_default_journal_size`).
const JOURNAL_BLOCKS: [(u64, u64); 7] = [
    (32768, 1024),
    (256 * 1024, 4096),
    (512 * 1024, 8192),
    (4096 * 1024, 16384),
    (8192 * 1024, 32768),
    (16384 * 1024, 65536),
    (32768 * 1024, 131_072),
];
/// Journal blocks of a larger device: 1 GiB.
const JOURNAL_BLOCKS_MAX: u64 = 262_144;

/// The layout of a device.
#[derive(Clone, Debug)]
pub struct Ext4Layout {
    /// Block groups.
    pub groups: u64,
    descriptor_blocks: u64,
    /// Kept behind the descriptors for more of them.
    growth_blocks: u64,
    /// The journal; its first block is its superblock.
    pub journal: Blocks,
}

impl Ext4Layout {
    /// Of a device of so many blocks; the journal gets `journal_blocks`, or what mke2fs gives it.
    ///
    /// # Panics
    /// If the device is smaller than two groups, or the journal does not fit.
    pub fn new(blocks: u64, journal_blocks: Option<u64>) -> Ext4Layout {
        let groups = blocks / GROUP_BLOCKS;
        assert!(groups >= 2, "ext4 on {blocks} blocks of 4 KiB: allowed are at least {}", 2 * GROUP_BLOCKS);
        let by_size = JOURNAL_BLOCKS.iter().find(|&&(limit, _)| blocks < limit);
        let count = journal_blocks.unwrap_or(by_size.map_or(JOURNAL_BLOCKS_MAX, |&(_, count)| count));
        let descriptor_blocks = groups.div_ceil(BLOCK_DESCRIPTORS);
        let grown_groups = (blocks * GROWTH_FACTOR).min(GROWN_BLOCKS_MAX).div_ceil(GROUP_BLOCKS);
        let growth_blocks = (grown_groups.div_ceil(BLOCK_DESCRIPTORS) - descriptor_blocks).min(GROWTH_BLOCKS_MAX);
        let mut layout = Ext4Layout { groups, descriptor_blocks, growth_blocks, journal: Blocks { first: 0, count } };
        let group = layout.emptiest_in_the_middle(blocks / 2 / GROUP_BLOCKS);
        layout.journal.first = group * GROUP_BLOCKS + layout.used_at_start(group);
        assert!(layout.journal.end() <= groups * GROUP_BLOCKS, "a journal of {count} blocks on {blocks}");
        layout
    }

    /// The group of the journal in mke2fs is the first with the most free blocks (`get_midpoint_journal_block`). The
    /// candidates are the groups around the `middle` one, or the first two of its flex group if there is one before it.
    fn emptiest_in_the_middle(&self, middle: u64) -> u64 {
        let is_small = middle <= FLEX_GROUPS;
        let first = if is_small { middle.saturating_sub(1) } else { middle / FLEX_GROUPS * FLEX_GROUPS };
        let last = (if is_small { middle } else { first } + 1).min(self.groups - 1);
        (first..=last).min_by_key(|&group| self.used_at_start(group)).expect("there is the middle itself")
    }

    /// Blocks at a group's start that are not for files, but for the journal.
    fn used_at_start(&self, group: u64) -> u64 {
        let copy = if Ext4Layout::has_copy(group) { self.copy_blocks() } else { 0 };
        let flex = group / FLEX_GROUPS;
        let tables = if group == flex * FLEX_GROUPS { self.tables(flex).count } else { 0 };
        copy + tables
    }

    /// A superblock, the descriptors and what is kept for more.
    fn copy_blocks(&self) -> u64 {
        1 + self.descriptor_blocks + self.growth_blocks
    }

    /// The superblock.
    pub const SUPERBLOCK: u64 = 0;

    /// The block with a group's descriptor.
    pub fn descriptor(&self, group: u64) -> u64 {
        1 + group / BLOCK_DESCRIPTORS
    }

    /// A group's block bitmap.
    pub fn block_bitmap(&self, group: u64) -> u64 {
        self.tables(group / FLEX_GROUPS).first + group % FLEX_GROUPS
    }

    /// A group's inode bitmap.
    pub fn inode_bitmap(&self, group: u64) -> u64 {
        let flex = group / FLEX_GROUPS;
        self.tables(flex).first + self.flex_groups(flex) + group % FLEX_GROUPS
    }

    /// The block of the inode table with inode `slot`.
    pub fn inode_block(&self, slot: u64) -> u64 {
        let (group, within) = (slot / GROUP_INODES, slot % GROUP_INODES);
        let flex = group / FLEX_GROUPS;
        let table = (group % FLEX_GROUPS) * (GROUP_INODES / BLOCK_INODES);
        self.tables(flex).first + 2 * self.flex_groups(flex) + table + within / BLOCK_INODES
    }

    fn flex_groups(&self, flex: u64) -> u64 {
        FLEX_GROUPS.min(self.groups - flex * FLEX_GROUPS)
    }

    /// Bitmaps and inode tables of a flex group.
    fn tables(&self, flex: u64) -> Blocks {
        let start = flex * FLEX_GROUPS * GROUP_BLOCKS;
        let before = if flex == 0 { self.copy_blocks() } else { 0 };
        let count = self.flex_groups(flex) * (2 + GROUP_INODES / BLOCK_INODES);
        Blocks { first: start + before, count }
    }

    /// Whether a group begins with a copy of the superblock and the descriptors (`ext4_bg_has_super`).
    fn has_copy(group: u64) -> bool {
        let is_power_of = |base: u64| std::iter::successors(Some(base), |&p| Some(p * base)).any_within(group);
        group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
    }

    /// Everything that is not for files.
    pub fn reserved(&self) -> Vec<Blocks> {
        let copies = (0..self.groups).filter(|&group| Ext4Layout::has_copy(group));
        let copies = copies.map(|group| Blocks { first: group * GROUP_BLOCKS, count: self.copy_blocks() });
        let is_outside_journal = |b: &Blocks| b.end() <= self.journal.first || b.first >= self.journal.end();
        let flexes = self.groups.div_ceil(FLEX_GROUPS);
        let tables = (0..flexes).map(|flex| self.tables(flex));
        copies.filter(is_outside_journal).chain(tables).chain([self.journal]).collect()
    }

    /// The class of a block with a fixed place; `None` for others.
    pub fn class_of(&self, block: u64) -> Option<Class> {
        let group = block / GROUP_BLOCKS;
        let within = block % GROUP_BLOCKS;
        let flex = group / FLEX_GROUPS;
        let is_in = |blocks: Blocks| (blocks.first..blocks.end()).contains(&block);
        if is_in(self.journal) {
            return Some(class::JOURNAL);
        }
        if Ext4Layout::has_copy(group) && within < self.copy_blocks() {
            return Some(if within == 0 { class::SUPERBLOCK } else { class::GROUP_DESCRIPTOR });
        }
        let tables = self.tables(flex);
        is_in(tables).then(|| {
            let is_bitmap = block - tables.first < 2 * self.flex_groups(flex);
            if is_bitmap { class::BITMAP } else { class::INODE }
        })
    }
}

/// Whether an ascending series has a number.
trait Ascending {
    fn any_within(self, wanted: u64) -> bool;
}

impl<Series: Iterator<Item = u64>> Ascending for Series {
    fn any_within(self, wanted: u64) -> bool {
        self.take_while(|&number| number <= wanted).last() == Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn nothing_lies_on_anything_else_and_every_block_knows_its_class() {
        for blocks in [2, 3, 10, 18, 33, 100, 3725].map(|groups| groups * GROUP_BLOCKS) {
            let layout = Ext4Layout::new(blocks, None);
            let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
            for reserved in layout.reserved() {
                let previous = taken.range(..reserved.end()).next_back();
                assert!(previous.is_none_or(|(_, &end)| end <= reserved.first), "{reserved:?} on {previous:?}");
                taken.insert(reserved.first, reserved.end());
                assert!(layout.class_of(reserved.first).is_some() && layout.class_of(reserved.end() - 1).is_some());
            }
            let classes = |group: u64| {
                let slot = group * GROUP_INODES + GROUP_INODES - 1;
                [
                    layout.descriptor(group),
                    layout.block_bitmap(group),
                    layout.inode_bitmap(group),
                    layout.inode_block(slot),
                ]
                .map(|block| layout.class_of(block))
            };
            let expected = [class::GROUP_DESCRIPTOR, class::BITMAP, class::BITMAP, class::INODE].map(Some);
            assert!((0..layout.groups).all(|group| classes(group) == expected));
        }
    }

    /// Results of mke2fs 1.47.0 (`-b 4096`, defaults otherwise) on image files, by `dumpe2fs` and
    /// `debugfs -R "stat <8>"`. They are the volume's MiB; the journal's first block and blocks; the first block bitmap
    /// and the first inode bitmap.
    const MEASURED: [(u64, u64, u64, u64, u64); 8] = [
        (256, 32_801, 4096, 33, 35),
        (384, 65_536, 4096, 49, 52),
        (512, 65_536, 4096, 65, 69),
        (1280, 131_072, 8192, 161, 171),
        (2304, 262_144, 16_384, 289, 305),
        (4096, 491_520, 16_384, 513, 529),
        (16_384, 2_129_920, 32_768, 1027, 1043),
        (476_940, 60_850_176, 262_144, 1084, 1100),
    ];

    /// Promise: sim-linux.
    #[test]
    fn journal_and_bitmaps_are_where_mke2fs_puts_them() {
        for (mebibytes, first, count, block_bitmap, inode_bitmap) in MEASURED {
            let layout = Ext4Layout::new(mebibytes << 8, None);
            assert_eq!(layout.journal, Blocks { first, count }, "{mebibytes} MiB");
            assert_eq!(
                (layout.block_bitmap(0), layout.inode_bitmap(0)),
                (block_bitmap, inode_bitmap),
                "{mebibytes} MiB"
            );
        }
    }
}
