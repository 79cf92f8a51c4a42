//! What a start found on the device.

use super::journal::RECORDS;
use super::map::ENTRIES;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Units of the cache, whatever they hold.
    pub cache_units: u32,
    /// Units that hold a block.
    pub units: u32,
    /// Of those units, the units with a version that the store lacks.
    pub dirty_units: u32,
    /// Blocks of the journal that were newer than the map and count: none after a shutdown.
    pub journal_blocks: u64,
    /// Their records.
    pub records: u64,
    /// Superblocks that were damaged or old, and were written again.
    pub repaired_superblocks: u32,
    /// Blocks of the map and of the journal that cannot be read. Those that are needed are also among the lost ones.
    pub unreadable_blocks: u32,
    /// Pages of the map that are damaged, or may be: their entries are lost.
    pub lost_pages: u32,
    /// Blocks of the journal that are damaged, or cannot be told from such.
    pub lost_journal_blocks: u64,
    /// Units that were forgotten, because lost blocks of the journal may have named them.
    pub given_up_units: u32,
    /// Of the forgotten units, those with a version that the store lacks.
    pub given_up_dirty_units: u32,
}

impl Report {
    /// Whether anything of the cache's own records is lost.
    pub fn has_losses(&self) -> bool {
        self.lost_pages > 0 || self.lost_journal_blocks > 0
    }

    /// Units that the lost records named at the most.
    pub fn unknown_units_max(&self) -> u64 {
        let in_journal = (RECORDS as u64).saturating_mul(self.lost_journal_blocks);
        in_journal.saturating_add(ENTRIES as u64 * u64::from(self.lost_pages)).min(self.cache_units.into())
    }

    /// Bound of the accepted losses: units with a version that the store lacks, forgotten or named by lost records.
    pub fn lost_units_max(&self) -> u64 {
        (u64::from(self.given_up_dirty_units) + self.unknown_units_max()).min(self.cache_units.into())
    }
}
