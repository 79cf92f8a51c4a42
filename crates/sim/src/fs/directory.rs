//! Which block of a directory holds which entry.
//!
//! Names are the machine's business; here is only how many entries a block takes. A new entry goes into the first block
//! with room, as in a directory without an index.

use crate::cache::{InodeNumber, PAGE_BYTES};
use std::collections::BTreeMap;

/// Bytes of an entry: eight and a name of 16 bytes (ext4 `ext4_dir_entry_2`; XFS takes as much with its tag).
const ENTRY_BYTES: u64 = 24;
/// Entries that a block takes.
pub const ENTRIES_PER_BLOCK: u32 = (PAGE_BYTES / ENTRY_BYTES) as u32;

/// A directory's entries.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    used: Vec<u32>,
    places: BTreeMap<InodeNumber, usize>,
}

impl Directory {
    /// Blocks that the directory has.
    pub fn blocks(&self) -> usize {
        self.used.len()
    }

    /// Adds an entry; answers with its block, counted from 0, which is new if it was not below
    /// [`blocks`](Self::blocks).
    pub fn add(&mut self, inode: InodeNumber) -> usize {
        let room = self.used.iter().position(|&used| used < ENTRIES_PER_BLOCK);
        let index = room.unwrap_or(self.used.len());
        if index == self.used.len() {
            self.used.push(0);
        }
        self.used[index] += 1;
        let before = self.places.insert(inode, index);
        assert!(before.is_none(), "{inode:?} has one name in a directory");
        index
    }

    /// Takes an entry out; answers with its block. Blocks stay.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, inode: InodeNumber) -> usize {
        let index = self.places.remove(&inode).expect("the entry exists");
        self.used[index] -= 1;
        index
    }

    /// The block with an entry.
    pub fn find(&self, inode: InodeNumber) -> Option<usize> {
        self.places.get(&inode).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_one_after_the_other_and_gaps_are_used_again() {
        let mut directory = Directory::default();
        let full = ENTRIES_PER_BLOCK;
        for number in 0..full + 1 {
            assert_eq!(directory.add(InodeNumber(number)), usize::from(number == full));
        }
        assert_eq!((directory.blocks(), directory.remove(InodeNumber(3))), (2, 0));
        assert_eq!((directory.find(InodeNumber(3)), directory.add(InodeNumber(full + 7))), (None, 0));
    }
}
