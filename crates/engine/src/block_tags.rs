//! Causes of blocks: the accounts that caused each block of a volume.
//!
//! **Pieces end where causes change**, so that the account that caused most of a merged request pays for most of it.
//! But they are at least a run long ([`RUN_BYTES_MAX`]); else pages that two tenants wrote in turns would make a
//! request of each page. Within a piece the causes share its cost equally (split-level paper, section 3.2).
//!
//! **A flush** has no blocks. The accounts that caused what was written since the one before, and so is made durable,
//! have caused it. It stands in its sender's queue all the same, for a flush that is held holds a whole file system.
//!
//! **The session of a piece** is its only cause, where there is just one, and otherwise the mount or connection that it
//! came through. So a scheduler that goes by session sees tenants, and one that goes by cause sees all accounts.

use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{AccountId, AccountTree, CauseSet, Class, FileId, Operation};

/// Bytes of a block that has a tag of its own: a page.
pub const TAG_BLOCK_BYTES: u32 = 4096;

/// What is known of a block that is read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTag {
    /// The accounts of the engine that caused it. Empty where none is known.
    pub causes: CauseSet,
    /// What it means to the file system.
    pub class: Class,
    /// The file that it belongs to; [`FileId::DEVICE`] for metadata in its place.
    pub file: Option<FileId>,
    /// A caller waits for it.
    pub is_sync: bool,
}

impl BlockTag {
    /// The tag of a flush. The accounts that caused the writes before it caused the flush.
    pub(super) fn of_flush(unflushed: &mut CauseSet) -> BlockTag {
        BlockTag { causes: std::mem::take(unflushed), ..BlockTag::default() }
    }
}

/// The causes of what reaches a volume, block by block.
pub trait BlockTags: Send {
    /// The tag of the newest `operation` on a block. `offset` is a multiple of [`TAG_BLOCK_BYTES`], in bytes of the
    /// volume. Asked on the engine's thread once for each block that is read or written: it must neither wait nor
    /// allocate.
    fn tag(&self, operation: Operation, offset: u64) -> BlockTag;
}

/// The next piece's tag, and how many bytes of the request it covers: from the volume's byte `begin` on, at most
/// `length_max` bytes. O(blocks).
pub(super) fn tag_piece(
    tags: &dyn BlockTags,
    tree: &AccountTree,
    operation: Operation,
    begin: u64,
    length_max: u32,
) -> (BlockTag, u32) {
    let end = begin + u64::from(length_max);
    let mut at = begin - begin % u64::from(TAG_BLOCK_BYTES);
    let mut tag = tags.tag(operation, at);
    loop {
        at += u64::from(TAG_BLOCK_BYTES);
        if at >= end {
            break;
        }
        let next = tags.tag(operation, at);
        if at - begin >= RUN_BYTES_MAX && (&next.causes, next.file) != (&tag.causes, tag.file) {
            break;
        }
        tag.causes.union_with(&next.causes);
        tag.is_sync |= next.is_sync;
    }
    let closed: Vec<AccountId> = tag.causes.iter().filter(|&cause| tree.get(cause).is_none()).collect();
    closed.into_iter().for_each(|cause| tag.causes.remove(cause));
    (tag, (at.min(end) - begin) as u32)
}

/// The session with a piece in its queue: that of its only cause, or else `submitter`.
#[inline]
pub fn session_of(causes: &CauseSet, submitter: AccountId) -> AccountId {
    causes.only().unwrap_or(submitter)
}
