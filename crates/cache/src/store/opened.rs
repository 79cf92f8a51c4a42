//! A cache that was found on its device and is not at work yet.

mod rescue;

pub use rescue::{ReadOnly, Rescued};

use super::blocks::Blocks;
use super::bytes::Block;
use super::contents::encode_page;
use super::error::DeviceError;
use super::format::write_superblocks;
use super::map::PageHead;
use super::marks::Marks;
use super::pages::Pages;
use super::replay::JournalPosition;
use super::report::Report;
use super::superblock::Superblock;
use crate::cache::Cache;

/// A cache that was found.
pub struct Opened {
    pub(super) superblock: Superblock,
    pub(super) cache: Cache,
    pub(super) marks: Marks,
    pub(super) pages: Pages,
    /// The next block of the journal, and the checksum of the one before it.
    pub(super) sequence: u64,
    pub(super) previous: u32,
    /// What was found.
    pub report: Report,
}

impl Opened {
    /// A snapshot, one call after the other, in which the journal has no part: so what it lost is of no account any
    /// more.
    pub(super) fn write_whole_map(&mut self, device: &mut dyn Blocks) -> Result<(), DeviceError> {
        let pages = 0..self.superblock.layout.map_pages();
        let journal = JournalPosition { sequence: self.sequence, previous: self.previous };
        self.write_pages(device, pages, journal)?;
        while self.pages.take_changed(0).is_some() {}
        Ok(())
    }

    /// Writes `lost` pages, of which none held, as everything is now: the journal is read from where it was before, and
    /// all other pages stay as they are. So a power failure now tears nothing that is not lost already. But what an
    /// unfinished snapshot has left is of the same generation, and must be among them, so as not to be taken for good.
    pub(super) fn write_lost_pages<'a>(
        &mut self,
        device: &mut dyn Blocks,
        lost: impl Iterator<Item = &'a u32>,
    ) -> Result<(), DeviceError> {
        let Superblock { journal_sequence: sequence, journal_previous: previous, .. } = self.superblock;
        self.write_pages(device, lost.copied(), JournalPosition { sequence, previous })
    }

    /// Writes these pages, and lets them hold, with the journal from that place on.
    fn write_pages(
        &mut self,
        device: &mut dyn Blocks,
        pages: impl Iterator<Item = u32>,
        journal: JournalPosition,
    ) -> Result<(), DeviceError> {
        let Superblock { layout, uuid, generation, .. } = self.superblock;
        let mut block: Block = [0; super::bytes::BLOCK_BYTES];
        for page in pages {
            let head = PageHead { generation: generation + 1, page, sequence: self.sequence };
            encode_page(&self.cache, &self.marks, &uuid, head, &mut block);
            device.write(self.pages.next_block(&layout, page), &block).map_err(DeviceError::write)?;
            let slot = self.pages.next_slot(page);
            self.pages.set_valid(page, generation + 1, slot);
        }
        device.flush().map_err(DeviceError::flush)?;
        self.superblock = Superblock {
            generation: generation + 1,
            journal_sequence: journal.sequence,
            journal_previous: journal.previous,
            map_digest: self.pages.digest(),
            ..self.superblock
        };
        write_superblocks(device, &self.superblock, 0)
    }

    /// Counts, durably, that the cache is set to work once more: a copy of the device from before is known by that from
    /// now on.
    ///
    /// # Errors
    /// The device's. Whether the start was counted is not known then.
    pub fn count_start(&mut self, device: &mut dyn Blocks) -> Result<(), DeviceError> {
        self.superblock.starts = self.superblock.starts.saturating_add(1);
        write_superblocks(device, &self.superblock, 0)
    }

    /// The superblock that holds.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
}
