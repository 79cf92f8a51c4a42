//! What is known of 4 KiB of a device.

use plimsoll_core::{CauseSet, Class};

/// Bytes that one tag stands for.
pub const BLOCK_BYTES: u64 = 4096;

/// What is known of the last I/O of one block of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Bit n: account n is one of the causes; 0: none is known. Bits 0 to 61.
    pub causes_mask: u64,
    /// Time at which the I/O entered the block layer, nanoseconds of CLOCK_MONOTONIC; 0: none since the tags were
    /// loaded.
    pub time_ns: u64,
    /// Number of the file's inode; 0 for what belongs to no file.
    pub inode: u64,
    /// Class of the block, in the numbers of `classes/ext4.toml`: metadata 1 to 6, journal 7, files by size 8 to 18.
    pub class: Class,
    /// Whether the class was said with the I/O itself, in the hint of its priority.
    pub is_class_said: bool,
    /// Whether it was a write.
    pub is_write: bool,
    /// Whether a process waits for it, by the kernel's flag: fsync, direct I/O, the journal; not writeback that cleans
    /// memory.
    pub is_sync: bool,
    /// Counts the I/Os of the table's slot, in steps of two, with overflow.
    pub sequence: u32,
}

impl Tag {
    /// The causes as schedulers have them.
    pub fn causes(&self) -> CauseSet {
        CauseSet::from_mask(self.causes_mask)
    }
}
