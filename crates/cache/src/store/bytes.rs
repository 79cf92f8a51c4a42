//! Numbers in blocks, least significant byte first, and the checksums of blocks.

use plimsoll_core::{crc32c, crc32c_append};

/// Bytes of a block of the journal, of a page of the map, or of a unit.
pub const BLOCK_BYTES: usize = 4096;

/// A block of the device.
pub type Block = [u8; BLOCK_BYTES];

/// Where a block's own checksum is: in its last four bytes.
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;

/// The kinds of blocks: the checksum of one kind is never right for another.
#[derive(Clone, Copy, Debug)]
pub enum BlockKind {
    /// A superblock.
    Superblock = 1,
    /// A block of the journal.
    Journal = 2,
    /// A page of the map.
    Map = 3,
}

pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes")
}

pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Writes the checksum into a block that is complete but for it, and answers what it is.
pub fn seal(block: &mut Block, kind: BlockKind) -> u32 {
    let checksum = crc32c_append(kind as u32, &block[..CHECKSUM_AT]);
    put(block, CHECKSUM_AT, &checksum.to_le_bytes());
    checksum
}

/// The checksum of a block, if it is right.
pub(super) fn sealed(block: &Block, kind: BlockKind) -> Option<u32> {
    let checksum = get_u32(block, CHECKSUM_AT);
    (crc32c_append(kind as u32, &block[..CHECKSUM_AT]) == checksum).then_some(checksum)
}

/// The checksum of what a unit holds, 24 bits of CRC-32C. It depends on the cache and on the block, so that what
/// belongs elsewhere is not taken for it.
pub fn data_checksum(uuid: &[u8; 16], block: u64, data: &Block) -> u32 {
    let mut whose = [0; 24];
    put(&mut whose, 0, uuid);
    put(&mut whose, 16, &block.to_le_bytes());
    crc32c_append(crc32c(&whose), data) & 0x00ff_ffff
}
