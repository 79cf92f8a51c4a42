//! What is in the cache and what the device says of it: everything that a page of the map is made from.

use super::bytes::Block;
use super::error::DeviceError;
use super::format::{Blocks, write_superblocks};
use super::map::{self, AGES, ENTRIES, Entry, PageHead};
use super::marks::{Mark, Marks};
use super::recovery::Opened;
use super::superblock::Superblock;
use crate::cache::Cache;
use crate::units::UnitId;

/// Writes page `head.page` as everything is now.
pub(super) fn encode_page(cache: &Cache, marks: &Marks, uuid: &[u8; 16], head: PageHead, block: &mut Block) {
    let units = &cache.units;
    // An age at which everybody has been replaced once counts as the oldest.
    let age_of = |unit| cache.policy.age(units, unit) * u64::from(AGES) / u64::from(units.count());
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
    /// A snapshot, one call after the other, in which the journal has no part: so what it lost is of no account any more.
    pub(super) fn write_whole_map(&mut self, device: &mut dyn Blocks) -> Result<(), DeviceError> {
        let Superblock { layout, uuid, generation, .. } = self.superblock;
        let mut block: Block = [0; super::layout::BLOCK_BYTES];
        for page in 0..layout.map_pages() {
            let head = PageHead { generation: generation + 1, page, sequence: self.sequence };
            encode_page(&self.cache, &self.marks, &uuid, head, &mut block);
            device.write(self.pages.next_block(&layout, page), &block).map_err(DeviceError::write)?;
            let slot = self.pages.next_slot(page);
            self.pages.set_valid(page, generation + 1, slot);
        }
        while self.pages.take_changed(0).is_some() {}
        device.flush().map_err(DeviceError::flush)?;
        self.superblock = Superblock {
            generation: generation + 1,
            journal_sequence: self.sequence,
            journal_previous: self.previous,
            map_digest: self.pages.digest(),
            ..self.superblock
        };
        write_superblocks(device, &self.superblock, 0)
    }

    /// The superblock that holds.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
}
