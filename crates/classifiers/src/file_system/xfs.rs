//! The fixed places of XFS ("XFS Algorithms & Data Structures"): the heads of its allocation groups, and its internal
//! log. Inodes are allocated as they are needed, and have no fixed place.
//!
//! A superblock with numbers that contradict each other is not believed at all, as in the kernel and `xfs_repair`. A
//! group has at least 64 blocks, the groups are exactly those that the blocks make, and the log lies in one of them.

use super::{GROUP_DESCRIPTOR, LayoutError, Reading, SUPERBLOCK, check, check_size};
use plimsoll_core::Class;

const MAGIC: &[u8] = b"XFSB";
/// Sectors at the head of a group: superblock, free space, inodes, free list.
const HEAD_SECTORS: u64 = 4;
/// Least blocks of a group (`XFS_MIN_AG_BLOCKS`). A head has fewer, so the heads of two groups never touch, and
/// [`RANGES_MAX`](super::RANGES_MAX) bounds the groups that are read.
const GROUP_BLOCKS_MIN: u64 = 64;
const SUPERBLOCK_BYTES: u64 = 512;

/// Reads the layout; false if there is no such file system.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<bool, LayoutError> {
    let superblock = reading.read("the superblock", 0, SUPERBLOCK_BYTES)?;
    if &superblock[..4] != MAGIC {
        return Ok(false);
    }
    let word = |at: usize| u64::from(u32::from_be_bytes(superblock[at..at + 4].try_into().expect("four bytes")));
    let long = |at: usize| u64::from_be_bytes(superblock[at..at + 8].try_into().expect("eight bytes"));
    let block_bytes = check_size("the block size", word(4), 512..=65536)?;
    let blocks = check("the number of blocks", long(8), 1..=reading.size_bytes / block_bytes)?;
    let sector_bytes = u64::from(u16::from_be_bytes([superblock[102], superblock[103]]));
    check_size("the sector size", sector_bytes, 512..=block_bytes.min(32768))?;
    let group_blocks = check("blocks of a group", word(84), GROUP_BLOCKS_MIN..=blocks)?;
    let expected_groups = blocks.div_ceil(group_blocks);
    let groups = check("the number of groups", word(88), expected_groups..=expected_groups)?;
    let expected_shift = u64::from(group_blocks.next_power_of_two().trailing_zeros());
    let shift = check("the logarithm of a group's blocks", superblock[124].into(), expected_shift..=expected_shift)?;
    let head_blocks = (HEAD_SECTORS * sector_bytes).div_ceil(block_bytes);
    for group in 0..groups {
        let start = group * group_blocks;
        let is_first = u64::from(group == 0);
        reading.add("a superblock", start, is_first, block_bytes, SUPERBLOCK)?;
        let head = head_blocks.min(blocks - start).saturating_sub(is_first);
        reading.add("the head of a group", start + is_first, head, block_bytes, GROUP_DESCRIPTOR)?;
    }
    // In bits of the block's number: the group, then the block in it. 0: the log is on another device.
    let (log_start, log_blocks) = (long(48), word(96));
    if log_start != 0 {
        let (group, block) = (log_start >> shift, log_start & ((1 << shift) - 1));
        check("the log's group", group, 0..groups)?;
        let group_start = group * group_blocks;
        let end = group_blocks.min(blocks - group_start);
        check("the log's block", block, head_blocks..end)?;
        check("blocks of the log", log_blocks, 1..=end - block)?;
        reading.add("the log", group_start + block, log_blocks, block_bytes, Class::JOURNAL)?;
    }
    Ok(true)
}
