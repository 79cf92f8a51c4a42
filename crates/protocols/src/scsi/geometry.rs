//! What a volume is like, for commands on its blocks.

use super::extents::Extent;
use super::sense::Sense;

/// What a volume is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// How many there are, at least one.
    pub blocks: u64,
    /// No session may write.
    pub is_read_only: bool,
    /// The medium turns.
    pub is_rotational: bool,
}

impl Geometry {
    /// Where `blocks` blocks from `lba` on are, if the unit has them.
    ///
    /// # Errors
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub(super) fn extent(&self, lba: u64, blocks: u64) -> Result<Extent, Sense> {
        let end = lba.checked_add(blocks).filter(|&end| end <= self.blocks);
        end.ok_or(Sense::LBA_OUT_OF_RANGE)?;
        let block = u64::from(self.block_bytes);
        Ok(Extent { offset: lba * block, length: blocks * block })
    }
}
