//! The fixed places of ext2, ext3 and ext4 (kernel documentation, "ext4 Data Structures and Algorithms").
//!
//! ```text
//!   group 0:  | superblock | group descriptors | reserved ones | bitmaps | inode table | ... journal (inode 8) ...
//!   group 1:  | backups of both |  its bitmaps and inode table, or those of 16 groups together (flex_bg) in group 0
//! ```

use super::{BITMAP, GROUP_DESCRIPTOR, INODE_TABLE, LayoutError, Reading, SUPERBLOCK, check, check_size};
use plimsoll_core::Class;

const SUPERBLOCK_OFFSET: u64 = 1024;
const SUPERBLOCK_BYTES: u64 = 1024;
const MAGIC: u16 = 0xEF53;
const COMPATIBLE_JOURNAL: u32 = 0x4;
const COMPATIBLE_SPARSE_2: u32 = 0x200;
const INCOMPATIBLE_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPATIBLE_META_GROUPS: u32 = 0x10;
const INCOMPATIBLE_64_BIT: u32 = 0x80;
const READ_ONLY_SPARSE: u32 = 0x1;
/// Flag of an inode with its blocks in extents.
const EXTENTS: u32 = 0x80000;
const EXTENT_MAGIC: u16 = 0xF30A;
const EXTENT_DEPTH_MAX: u16 = 5;
const EXTENT_BYTES: usize = 12;
/// Bytes of an inode that are looked at, whatever its size.
const INODE_BYTES: u64 = 128;
/// Where an inode has its blocks, 60 bytes: extents, or 12 blocks and three that point to such.
const BLOCKS_OFFSET: usize = 0x28;
const DIRECT_BLOCKS: usize = 12;
/// Blocks of extents, and of numbers of blocks, that are read for one journal.
const MAP_BLOCKS_MAX: u32 = 4096;

struct Geometry {
    block_bytes: u64,
    blocks: u64,
    first_block: u64,
    blocks_per_group: u64,
    groups: u64,
    inodes_per_group: u64,
    inode_bytes: u64,
    descriptor_bytes: u64,
    reserved_descriptor_blocks: u64,
    meta_groups_from: Option<u64>,
    is_sparse: bool,
    /// With sparse_super2: the only groups with backups.
    backups: Option<[u64; 2]>,
    journal: Option<u64>,
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads the layout; false if there is no such file system.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<bool, LayoutError> {
    let superblock = reading.read("the superblock", SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES)?;
    if half(&superblock, 0x38) != MAGIC {
        return Ok(false);
    }
    let geometry = Geometry::parse(&superblock, reading.size_bytes)?;
    let descriptors = geometry.read_descriptors(reading)?;
    geometry.add_superblocks(reading)?;
    geometry.add_groups(reading, &descriptors)?;
    if let Some(inode) = geometry.journal {
        geometry.add_journal(reading, &descriptors, inode)?;
    }
    Ok(true)
}

impl Geometry {
    fn parse(superblock: &[u8], size_bytes: u64) -> Result<Geometry, LayoutError> {
        let number = |at| u64::from(word(superblock, at));
        let (compatible, incompatible, read_only) =
            (word(superblock, 0x5C), word(superblock, 0x60), word(superblock, 0x64));
        let block_bytes = 1024 << check("the block size's logarithm", number(0x18), 0..=6)?;
        let is_wide = incompatible & INCOMPATIBLE_64_BIT != 0;
        let blocks_high = if is_wide { number(0x150) } else { 0 };
        let blocks = check("the number of blocks", blocks_high << 32 | number(0x04), 1..=size_bytes / block_bytes)?;
        let first_block = check("the first block", number(0x14), 0..=1)?;
        let blocks_per_group = check("blocks of a group", number(0x20), 1..=u64::from(u32::MAX))?;
        let inodes_per_group = check("inodes of a group", number(0x28), 1..=8 * block_bytes)?;
        let is_old = word(superblock, 0x4C) == 0;
        let inode_bytes = if is_old { 128 } else { u64::from(half(superblock, 0x58)) };
        check_size("the inode size", inode_bytes, INODE_BYTES..=block_bytes)?;
        let descriptor_bytes = if is_wide { u64::from(half(superblock, 0xFE)) } else { 32 };
        check_size("the descriptor size", descriptor_bytes, 32..=1024)?;
        let groups = blocks.saturating_sub(first_block).div_ceil(blocks_per_group);
        let has_journal = compatible & COMPATIBLE_JOURNAL != 0 && incompatible & INCOMPATIBLE_JOURNAL_DEVICE == 0;
        let has_meta_groups = incompatible & INCOMPATIBLE_META_GROUPS != 0;
        let has_two_backups = compatible & COMPATIBLE_SPARSE_2 != 0;
        Ok(Geometry {
            block_bytes,
            blocks,
            first_block,
            blocks_per_group,
            groups,
            inodes_per_group,
            inode_bytes,
            descriptor_bytes,
            reserved_descriptor_blocks: check(
                "reserved descriptors",
                u64::from(half(superblock, 0xCE)),
                0..=block_bytes,
            )?,
            meta_groups_from: has_meta_groups.then(|| number(0x104)),
            is_sparse: read_only & READ_ONLY_SPARSE != 0,
            backups: has_two_backups.then(|| [number(0x24C), number(0x250)]),
            journal: has_journal.then(|| number(0xE0)).filter(|&inode| inode != 0),
        })
    }

    fn start_of_group(&self, group: u64) -> u64 {
        self.first_block + group * self.blocks_per_group
    }

    /// Whether a group begins with a superblock, or a backup of it.
    fn has_superblock(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            std::iter::successors(Some(base), |power| power.checked_mul(base))
                .take_while(|&power| power <= group)
                .any(|power| power == group)
        };
        match self.backups {
            _ if group == 0 => true,
            Some(backups) => backups.contains(&group),
            None => !self.is_sparse || group == 1 || [3, 5, 7].into_iter().any(is_power_of),
        }
    }

    fn descriptors_per_block(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes
    }

    fn descriptor_blocks(&self) -> u64 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// Blocks of descriptors that stand together behind a superblock; the others are in meta groups.
    fn descriptor_blocks_together(&self) -> u64 {
        self.meta_groups_from.map_or(self.descriptor_blocks(), |from| from.min(self.descriptor_blocks()))
    }

    /// Where the `number`th block of descriptors is.
    fn descriptor_block(&self, number: u64) -> u64 {
        if number < self.descriptor_blocks_together() {
            return self.superblock_block() + 1 + number;
        }
        let group = number * self.descriptors_per_block();
        self.start_of_group(group) + u64::from(self.has_superblock(group))
    }

    fn superblock_block(&self) -> u64 {
        SUPERBLOCK_OFFSET / self.block_bytes
    }

    fn read_descriptors(&self, reading: &mut Reading<'_>) -> Result<Vec<u8>, LayoutError> {
        let mut descriptors = Vec::new();
        for number in 0..self.descriptor_blocks() {
            let offset = self.descriptor_block(number).saturating_mul(self.block_bytes);
            descriptors.extend(reading.read("a group descriptor", offset, self.block_bytes)?);
        }
        Ok(descriptors)
    }

    /// The blocks of a group's block bitmap, inode bitmap and inode table.
    fn places(&self, descriptors: &[u8], group: u64) -> [u64; 3] {
        let at = (group * self.descriptor_bytes) as usize;
        let high =
            |offset: usize| if self.descriptor_bytes >= 64 { u64::from(word(descriptors, at + offset)) } else { 0 };
        [(0x00, 0x20), (0x04, 0x24), (0x08, 0x28)]
            .map(|(low, upper)| high(upper) << 32 | u64::from(word(descriptors, at + low)))
    }

    fn add(
        &self,
        reading: &mut Reading<'_>,
        what: &'static str,
        block: u64,
        blocks: u64,
        class: Class,
    ) -> Result<(), LayoutError> {
        check(what, block, 0..self.blocks)?;
        reading.add(what, block, blocks.min(self.blocks - block), self.block_bytes, class)
    }

    fn add_superblocks(&self, reading: &mut Reading<'_>) -> Result<(), LayoutError> {
        for group in (0..self.groups).filter(|&group| self.has_superblock(group)) {
            let start = if group == 0 { self.superblock_block() } else { self.start_of_group(group) };
            self.add(reading, "a superblock", start, 1, SUPERBLOCK)?;
            let together = self.descriptor_blocks_together() + self.reserved_descriptor_blocks;
            if start + 1 < self.blocks {
                self.add(reading, "group descriptors", start + 1, together, GROUP_DESCRIPTOR)?;
            }
        }
        for number in self.descriptor_blocks_together()..self.descriptor_blocks() {
            let (first, per_block) = (number * self.descriptors_per_block(), self.descriptors_per_block());
            // In the first, the second and the last group of those that it describes.
            for group in [first, first + 1, first + per_block - 1].into_iter().filter(|&group| group < self.groups) {
                let block = self.start_of_group(group) + u64::from(self.has_superblock(group));
                if block < self.blocks {
                    self.add(reading, "group descriptors", block, 1, GROUP_DESCRIPTOR)?;
                }
            }
        }
        Ok(())
    }

    fn add_groups(&self, reading: &mut Reading<'_>, descriptors: &[u8]) -> Result<(), LayoutError> {
        let table_blocks = (self.inodes_per_group * self.inode_bytes).div_ceil(self.block_bytes);
        // One kind after the other: with flex_bg those of several groups follow each other.
        for (kind, what, blocks, class) in [
            (0, "a block bitmap", 1, BITMAP),
            (1, "an inode bitmap", 1, BITMAP),
            (2, "an inode table", table_blocks, INODE_TABLE),
        ] {
            for group in 0..self.groups {
                let block = self.places(descriptors, group)[kind];
                check(what, block, self.superblock_block() + 1..self.blocks)?;
                self.add(reading, what, block, blocks, class)?;
            }
        }
        Ok(())
    }

    fn add_journal(&self, reading: &mut Reading<'_>, descriptors: &[u8], inode: u64) -> Result<(), LayoutError> {
        let number = check("the journal's inode", inode, 1..=self.groups * self.inodes_per_group)? - 1;
        let table = self.places(descriptors, number / self.inodes_per_group)[2];
        let offset = table * self.block_bytes + number % self.inodes_per_group * self.inode_bytes;
        let inode = reading.read("the journal's inode", offset, INODE_BYTES)?;
        let map = &inode[BLOCKS_OFFSET..BLOCKS_OFFSET + 60];
        let mut journal = Journal { geometry: self, reading, left_blocks: MAP_BLOCKS_MAX };
        match word(&inode, 0x20) & EXTENTS {
            0 => journal.add_pointers(map),
            _ => journal.add_extents(map, EXTENT_DEPTH_MAX),
        }
    }
}

/// A journal during the search for its blocks.
struct Journal<'reading, 'volume> {
    geometry: &'reading Geometry,
    reading: &'reading mut Reading<'volume>,
    /// Blocks of its map that may still be read.
    left_blocks: u32,
}

impl Journal<'_, '_> {
    fn map_block(&mut self, block: u64) -> Result<Vec<u8>, LayoutError> {
        let Some(left_blocks) = self.left_blocks.checked_sub(1) else {
            return Err(LayoutError::TooMuch { what: "blocks of the journal's map", max: MAP_BLOCKS_MAX.into() });
        };
        self.left_blocks = left_blocks;
        check("a block of the journal's map", block, 1..self.geometry.blocks)?;
        self.add(block, 1)?;
        self.reading.read("the journal's map", block * self.geometry.block_bytes, self.geometry.block_bytes)
    }

    fn add(&mut self, block: u64, blocks: u64) -> Result<(), LayoutError> {
        self.geometry.add(self.reading, "a block of the journal", block, blocks, Class::JOURNAL)
    }

    /// A node of a tree of extents, at most `depth_max` above the leaves.
    fn add_extents(&mut self, node: &[u8], depth_max: u16) -> Result<(), LayoutError> {
        check("the mark of extents", half(node, 0).into(), u64::from(EXTENT_MAGIC)..=u64::from(EXTENT_MAGIC))?;
        let room = node.len() / EXTENT_BYTES - 1;
        let entries = check("extents of a node", half(node, 2).into(), 0..=room as u64)? as usize;
        let depth = check("the depth of extents", half(node, 6).into(), 0..=u64::from(depth_max))? as u16;
        for entry in node[EXTENT_BYTES..].chunks_exact(EXTENT_BYTES).take(entries) {
            if depth > 0 {
                let child = u64::from(half(entry, 8)) << 32 | u64::from(word(entry, 4));
                let child = self.map_block(child)?;
                self.add_extents(&child, depth - 1)?;
            } else {
                // Above 32,768: that many less, and not yet written.
                let length = u64::from(half(entry, 4));
                let length = if length > 32768 { length - 32768 } else { length };
                self.add(u64::from(half(entry, 6)) << 32 | u64::from(word(entry, 8)), length)?;
            }
        }
        Ok(())
    }

    /// The blocks of ext2 and ext3: 12, and three that point to such, once, twice and three times.
    fn add_pointers(&mut self, map: &[u8]) -> Result<(), LayoutError> {
        for (number, pointer) in map.chunks_exact(4).enumerate() {
            let levels = (number + 1).saturating_sub(DIRECT_BLOCKS) as u32;
            self.add_pointed(word(pointer, 0).into(), levels)?;
        }
        Ok(())
    }

    fn add_pointed(&mut self, block: u64, levels: u32) -> Result<(), LayoutError> {
        if block == 0 {
            return Ok(());
        }
        if levels == 0 {
            return self.add(block, 1);
        }
        let pointers = self.map_block(block)?;
        pointers.chunks_exact(4).try_for_each(|pointer| self.add_pointed(word(pointer, 0).into(), levels - 1))
    }
}
