//! Where everything is on the device.
//!
//! ```text
//!   block 0     1      2          2 + J          2 + J + M       2 + J + 2 M            2 + J + 2 M + N
//!     | super | super | journal  | map, slots 0 | map, slots 1  | units                 |
//! ```

use super::bytes::BLOCK_BYTES;
use super::map::ENTRIES;
use crate::index::UNITS_MAX;
use crate::units::UnitId;

/// Bytes of the largest cache, with its own records: the format numbers units with 27 bits.
pub const BYTES_MAX: u64 = (UNITS_MAX as u64 + 1) * BLOCK_BYTES as u64;
/// Superblocks.
pub const SUPERBLOCKS: u64 = 2;
/// Blocks of the shortest journal. A snapshot begins when half are in use, and the last ones are kept for its end
/// ([`BLOCKS_KEPT`]).
pub const JOURNAL_BLOCKS_MIN: u32 = 16;
/// Blocks of the ring that are kept for the end of a snapshot. All records that can wait fill no more (`open` of
/// `commit`, with the greatest depth).
pub(super) const BLOCKS_KEPT: u64 = 7;
/// Blocks of the longest journal that is chosen by default: 32 MiB, a tenth of a second to read.
const JOURNAL_BLOCKS_MAX: u64 = 8192;
/// The journal takes this part of the device, within these bounds (ours).
const JOURNAL_PARTS: u64 = 256;

/// The division of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Units, at least 1.
    pub units: u32,
    /// Blocks of the journal, at least [`JOURNAL_BLOCKS_MIN`].
    pub journal_blocks: u32,
}

impl Layout {
    /// The best division of a device of `blocks`; `None` if it is too small for one unit.
    pub fn of_device(blocks: u64) -> Option<Layout> {
        let journal = (blocks / JOURNAL_PARTS).clamp(u64::from(JOURNAL_BLOCKS_MIN), JOURNAL_BLOCKS_MAX);
        let rest = blocks.checked_sub(SUPERBLOCKS + journal)?;
        // Each page stands for so many units, in two slots.
        let mut units = (rest * ENTRIES as u64 / (ENTRIES as u64 + 2)).min(u64::from(UNITS_MAX));
        let mut layout = Layout { units: units as u32, journal_blocks: journal as u32 };
        while units > 0 && layout.blocks() > blocks {
            units -= 1;
            layout.units = units as u32;
        }
        (units > 0).then_some(layout)
    }

    /// Pages of the map.
    pub fn map_pages(&self) -> u32 {
        self.units.div_ceil(ENTRIES as u32)
    }

    /// Blocks that it takes in all.
    pub fn blocks(&self) -> u64 {
        self.first_unit() + u64::from(self.units)
    }

    /// The block of the journal in which number `sequence` is written.
    pub fn journal_block(&self, sequence: u64) -> u64 {
        SUPERBLOCKS + sequence % u64::from(self.journal_blocks)
    }

    /// The first block of the map's slots `slot`, 0 or 1.
    pub fn map_start(&self, slot: usize) -> u64 {
        SUPERBLOCKS + u64::from(self.journal_blocks) + slot as u64 * u64::from(self.map_pages())
    }

    /// The block of a page of the map.
    pub fn map_block(&self, slot: usize, page: u32) -> u64 {
        self.map_start(slot) + u64::from(page)
    }

    /// The block of a unit.
    pub fn unit_block(&self, unit: UnitId) -> u64 {
        self.first_unit() + u64::from(unit.0)
    }

    fn first_unit(&self) -> u64 {
        self.map_start(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_cache_has_no_block_that_the_format_cannot_name() {
        let layout = Layout::of_device(BYTES_MAX / BLOCK_BYTES as u64).unwrap();
        assert!(layout.units < UNITS_MAX && layout.blocks() + 3 > BYTES_MAX / BLOCK_BYTES as u64, "{layout:?}");
    }

    proptest! {
        #[test]
        fn a_device_is_filled_and_not_overfilled(blocks in 0u64..200_000_000) {
            let Some(layout) = Layout::of_device(blocks) else {
                prop_assert!(blocks < 24, "{} blocks", blocks);
                return Ok(());
            };
            prop_assert!(layout.blocks() <= blocks && layout.journal_blocks >= JOURNAL_BLOCKS_MIN);
            let larger = Layout { units: layout.units + 1, ..layout };
            prop_assert!(larger.blocks() > blocks || layout.units == UNITS_MAX || larger.blocks() + 3 > blocks);
            prop_assert_eq!(layout.unit_block(UnitId(0)), layout.map_block(1, layout.map_pages() - 1) + 1);
        }
    }
}
