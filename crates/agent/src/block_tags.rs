//! The causes of a volume's blocks, for its engine: [`TagTable`] with the bits translated.
//!
//! A tag describes the newest I/O of a block at its entry into the block layer above. The engine receives that very I/O
//! a few microseconds later. A tag of the other direction belongs to an unknown I/O. The table had no room for it, or a
//! read and a write of one block overlap. Such a block belongs to no account.
//!
//! A block of a file of which an application said the class ([`FileClasses`]) has that class, unless it was said with
//! the I/O itself.

use crate::classified::FileClasses;
use crate::members::Members;
use plimsoll_core::{Class, FileId, Operation};
use plimsoll_engine::{BlockTag, BlockTags};
use plimsoll_tags::{BLOCK_BYTES, TagTable};
use std::sync::Arc;

/// The tags of one volume that is the disk of a mounted file system.
pub struct VolumeTags {
    table: TagTable,
    members: Members,
    classes: Arc<FileClasses>,
}

impl VolumeTags {
    /// The table, which accounts its bits are, and what applications say of their files.
    pub fn new(table: TagTable, members: Members, classes: Arc<FileClasses>) -> VolumeTags {
        VolumeTags { table, members, classes }
    }
}

/// The file of a block, by its tag: that of an inode, or the device for metadata.
pub fn file_of_block(class: Class, inode: u64) -> Option<FileId> {
    let is_metadata = inode == 0 && class.number() != 0;
    if inode != 0 { Some(FileId(inode)) } else { is_metadata.then_some(FileId::DEVICE) }
}

impl BlockTags for VolumeTags {
    fn tag(&self, operation: Operation, offset: u64) -> BlockTag {
        let tag = self.table.tag(offset / BLOCK_BYTES);
        if tag.is_write != operation.is_write() {
            return BlockTag::default();
        }
        // An application's word goes before the file system's (Differentiated Storage Services, section 3.4).
        let said = if tag.inode == 0 || tag.is_class_said { None } else { self.classes.class(tag.inode) };
        BlockTag {
            causes: self.members.causes(tag.causes_mask),
            class: said.unwrap_or(tag.class),
            file: file_of_block(tag.class, tag.inode),
            is_sync: tag.is_sync,
        }
    }
}
