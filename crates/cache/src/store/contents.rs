//! The content of the cache and the device's records of it: the source of every page of the map.

use super::blocks::Blocks;
use super::bytes::Block;
use super::error::DeviceError;
use super::format::write_superblocks;
use super::map::{self, AGES, ENTRIES, Entry, PageHead};
use super::marks::{Mark, Marks};
use super::recovery::Opened;
use super::replay::Place;
use super::superblock::Superblock;
use crate::cache::Cache;
use crate::units::UnitId;

/// Writes page `head.page` as everything is now.
pub(super) fn encode_page(cache: &Cache, marks: &Marks, uuid: &[u8; 16], head: PageHead, block: &mut Block) {
    let units = &cache.units;
    // An age at which every unit has been replaced once counts as the oldest.
    let age_of = |unit| cache.policy.age(units, unit).saturating_mul(u64::from(AGES)) / u64::from(units.count());
    map::encode(block, uuid, head, |at| {
        let unit = UnitId(head.page * ENTRIES as u32 + at as u32);
        let Mark { checksum, is_recorded, is_dirty } =
            if unit.0 < units.count() { marks.get(units, unit) } else { Mark::default() };
        is_recorded.then(|| Entry {
            block: units.block(unit),
            class: units.class(unit),
            pool: units.pool(unit),
            is_dirty,
            is_again: units.is_again(unit),
            age: age_of(unit).min(u64::from(AGES) - 1) as u8,
            checksum,
        })
    });
}

impl Opened {
    /// Writes a snapshot in one call, without the journal. So losses of the journal have no effect any more.
    pub(super) fn write_whole_map(&mut self, device: &mut dyn Blocks) -> Result<(), DeviceError> {
        let pages = 0..self.superblock.layout.map_pages();
        let journal = Place { sequence: self.sequence, previous: self.previous };
        self.write_pages(device, pages, journal)?;
        while self.pages.take_changed(0).is_some() {}
        Ok(())
    }

    /// Writes `lost` pages, of which none was valid, from the present content. The journal is read from the same block
    /// as before, and all other pages stay. So a power failure now tears nothing that is not lost already. But what an
    /// unfinished snapshot has left is of the same generation, and must be among them, so as not to be taken for good.
    pub(super) fn write_lost_pages<'a>(
        &mut self,
        device: &mut dyn Blocks,
        lost: impl Iterator<Item = &'a u32>,
    ) -> Result<(), DeviceError> {
        let Superblock { journal_sequence: sequence, journal_previous: previous, .. } = self.superblock;
        self.write_pages(device, lost.copied(), Place { sequence, previous })
    }

    /// Writes these pages, and lets them hold, with the journal from that place on.
    fn write_pages(
        &mut self,
        device: &mut dyn Blocks,
        pages: impl Iterator<Item = u32>,
        journal: Place,
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

    /// Counts a start of the cache, durably. From then on an older copy of the device is recognised by its count.
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
