//! The superblock: the cache's identity, its layout, and where recovery starts.
//!
//! There are two, written one after the other, with a flush between. They differ only after a crash between them; then
//! the one with the higher generation is valid.
//!
//! ```text
//!   byte 0 magic, "PLIMCACH"     16 uuid            56 units             72 generation
//!        8 version (4 bytes)     32 store           60 journal blocks    80 first sequence of the journal to be read
//!       12 state (4 bytes)       48 store's blocks  64 starts            88 checksum of the block before it
//!                             96 digest of the map                     4092 checksum
//! ```

use super::bytes::{BLOCK_BYTES, Block, BlockKind, get, get_u32, get_u64, put, seal, sealed};
use super::layout::{JOURNAL_BLOCKS_MIN, Layout};
use crate::index::UNITS_MAX;
use crate::units::BLOCKS_MAX;

const MAGIC: &[u8; 8] = b"PLIMCACH";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// What can be read of a generation or a sequence.
const NUMBER_MAX: u64 = 1 << 63;
/// No count reaches this number, so any number of a cache in use can still be read.
const NUMBER_SPENT: u64 = 1 << 62;
const STATE_EMPTY: u32 = 0;
const STATE_READY: u32 = 1;

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names this cache; chosen anew whenever it is made or given up.
    pub uuid: [u8; 16],
    /// What it is a cache of.
    pub store: [u8; 16],
    /// Blocks of that.
    pub store_blocks: u64,
    /// How the device is divided.
    pub layout: Layout,
    /// Number of starts of the cache. An older copy has a lower number.
    pub starts: u64,
    /// Counts the snapshots.
    pub generation: u64,
    /// The first block of the journal that is newer than the map.
    pub journal_sequence: u64,
    /// The checksum of the block before it.
    pub journal_previous: u32,
    /// The digest of the generations of all pages of the map: see [`page_digest`].
    pub map_digest: u64,
    /// Whether there is a cache; false if it was given up, or making it was not finished.
    pub is_ready: bool,
}

/// What a block is that should be a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A superblock of a known version.
    Superblock(Superblock),
    /// A superblock of a version that this program does not know.
    Version(u32),
    /// The block begins like a superblock but is none.
    Damaged,
    /// Something else.
    Foreign,
}

impl Superblock {
    /// As it is written.
    pub fn encode(&self) -> Block {
        let mut block = [0; BLOCK_BYTES];
        put(&mut block, 0, MAGIC);
        put(&mut block, 8, &VERSION.to_le_bytes());
        put(&mut block, 12, &(if self.is_ready { STATE_READY } else { STATE_EMPTY }).to_le_bytes());
        put(&mut block, 16, &self.uuid);
        put(&mut block, 32, &self.store);
        put(&mut block, 48, &self.store_blocks.to_le_bytes());
        put(&mut block, 56, &self.layout.units.to_le_bytes());
        put(&mut block, 60, &self.layout.journal_blocks.to_le_bytes());
        put(&mut block, 64, &self.starts.to_le_bytes());
        put(&mut block, 72, &self.generation.to_le_bytes());
        put(&mut block, 80, &self.journal_sequence.to_le_bytes());
        put(&mut block, 88, &self.journal_previous.to_le_bytes());
        put(&mut block, 96, &self.map_digest.to_le_bytes());
        seal(&mut block, BlockKind::Superblock);
        block
    }

    /// Whether its numbers leave too little to count on. None that a cache has written is, were it a snapshot each
    /// nanosecond.
    pub fn is_spent(&self) -> bool {
        self.generation >= NUMBER_SPENT || self.journal_sequence >= NUMBER_SPENT
    }

    /// What `block` says.
    pub fn decode(block: &Block) -> Found {
        if block[..8] != *MAGIC {
            return Found::Foreign;
        }
        if sealed(block, BlockKind::Superblock).is_none() {
            return Found::Damaged;
        }
        let version = get_u32(block, 8);
        if version != VERSION {
            return Found::Version(version);
        }
        let layout = Layout { units: get_u32(block, 56), journal_blocks: get_u32(block, 60) };
        let state = get_u32(block, 12);
        let superblock = Superblock {
            uuid: get(block, 16),
            store: get(block, 32),
            store_blocks: get_u64(block, 48),
            layout,
            starts: get_u64(block, 64),
            generation: get_u64(block, 72),
            journal_sequence: get_u64(block, 80),
            journal_previous: get_u32(block, 88),
            map_digest: get_u64(block, 96),
            is_ready: state == STATE_READY,
        };
        let is_sound = (1..=UNITS_MAX).contains(&layout.units)
            && (JOURNAL_BLOCKS_MIN..=1 << 30).contains(&layout.journal_blocks)
            && superblock.store_blocks < BLOCKS_MAX
            && superblock.generation < NUMBER_MAX
            && superblock.journal_sequence < NUMBER_MAX
            && state <= STATE_READY;
        if is_sound { Found::Superblock(superblock) } else { Found::Damaged }
    }
}

/// What a page of a generation adds to the map's digest, by exclusive or. The digest shows that the newer slot of a
/// page has gone bad, and that the older one, though whole, is not valid.
pub fn page_digest(page: u32, generation: u64) -> u64 {
    // The finalizer of SplitMix64.
    let mut hash = generation.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(page).wrapping_mul(0xd1b5_4a32_d192_ed03);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
