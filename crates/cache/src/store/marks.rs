//! The device's record of each unit, in 26 bits: ten in its mark ([`Units::mark`]) and two bytes here.
//!
//! ```text
//!   mark, bit 9: dirty on the device | 8: recorded | 0 to 7: the checksum's upper byte
//! ```
//!
//! Whether a unit is dirty *on the device* differs from the deciding half's state, which is ahead while a block is
//! being written.

use crate::memory::table;
use crate::units::{UnitId, Units};
use plimsoll_core::prefetch;

const RECORDED: u16 = 1 << 8;
const DIRTY: u16 = 1 << 9;

/// What is known of a unit that holds a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub checksum: u32,
    /// The journal was told of the block.
    pub is_recorded: bool,
    /// The journal was told that the store lacks the block.
    pub is_dirty: bool,
}

impl Mark {
    #[inline]
    fn in_unit(self) -> u16 {
        let recorded = if self.is_recorded { RECORDED } else { 0 };
        let dirty = if self.is_dirty { DIRTY } else { 0 };
        (self.checksum >> 16) as u16 | recorded | dirty
    }
}

/// Whether a unit with this mark holds a block.
#[inline]
pub(super) fn is_recorded(mark: u16) -> bool {
    mark & RECORDED != 0
}

/// The marks of a run of units, for one of several threads that fill them.
pub(super) struct MarksPart<'a> {
    first: u32,
    lower: &'a mut [u16],
}

impl MarksPart<'_> {
    /// Stores the part of a mark that belongs here, and answers the part that belongs in the unit.
    #[inline]
    pub fn set(&mut self, unit: UnitId, mark: Mark) -> u16 {
        self.lower[(unit.0 - self.first) as usize] = mark.checksum as u16;
        mark.in_unit()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Marks {
    lower: Vec<u16>,
    /// Units that are dirty on the device.
    pub dirty_units: u32,
}

impl Marks {
    pub fn new(units: u32) -> Marks {
        Marks { lower: table(0, units as usize), dirty_units: 0 }
    }

    /// All marks, `each` of them in a part. The caller adds the count of dirty units of each part.
    pub fn parts_mut(&mut self, each: usize) -> impl Iterator<Item = MarksPart<'_>> {
        let parts = self.lower.chunks_mut(each).enumerate();
        parts.map(move |(at, lower)| MarksPart { first: (at * each) as u32, lower })
    }

    /// Starts loading what is kept here of `unit`.
    pub fn prefetch(&self, unit: UnitId) {
        prefetch(&self.lower[unit.0 as usize]);
    }

    pub fn bytes(&self) -> usize {
        self.lower.capacity() * size_of::<u16>()
    }

    pub fn get(&self, units: &Units, unit: UnitId) -> Mark {
        let mark = units.mark(unit);
        let checksum = u32::from(mark & 0xff) << 16 | u32::from(self.lower[unit.0 as usize]);
        Mark { checksum, is_recorded: mark & RECORDED != 0, is_dirty: mark & DIRTY != 0 }
    }

    pub fn set(&mut self, units: &mut Units, unit: UnitId, mark: Mark) {
        let was_dirty = units.mark(unit) & DIRTY != 0;
        self.lower[unit.0 as usize] = mark.checksum as u16;
        units.set_mark(unit, mark.in_unit());
        self.dirty_units = self.dirty_units + u32::from(mark.is_dirty) - u32::from(was_dirty);
    }

    /// Nothing is in `unit`.
    pub fn clear(&mut self, units: &mut Units, unit: UnitId) {
        self.set(units, unit, Mark::default());
    }
}
