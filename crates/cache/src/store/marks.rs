//! What the device says of each unit, in 26 bits: ten in its mark ([`Units::mark`]) and two bytes here.
//!
//! ```text
//!   mark, bit 9: dirty on the device | 8: recorded | 0 to 7: the checksum's upper byte
//! ```
//!
//! Whether a unit is dirty *on the device* is not what the deciding half says of it: that is ahead while a block is on its way.

use crate::units::{UnitId, Units};

const RECORDED: u16 = 1 << 8;
const DIRTY: u16 = 1 << 9;

/// What is known of a unit that holds a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub checksum: u32,
    /// The journal was told of it.
    pub is_recorded: bool,
    /// It was told that the store lacks it.
    pub is_dirty: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Marks {
    lower: Vec<u16>,
    /// Units that are dirty on the device.
    pub dirty_units: u32,
}

impl Marks {
    pub fn new(units: u32) -> Marks {
        Marks { lower: vec![0; units as usize], dirty_units: 0 }
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
        let recorded = if mark.is_recorded { RECORDED } else { 0 };
        let dirty = if mark.is_dirty { DIRTY } else { 0 };
        units.set_mark(unit, (mark.checksum >> 16) as u16 | recorded | dirty);
        self.dirty_units = self.dirty_units + u32::from(mark.is_dirty) - u32::from(was_dirty);
    }

    /// Nothing is in `unit`.
    pub fn clear(&mut self, units: &mut Units, unit: UnitId) {
        self.set(units, unit, Mark::default());
    }
}
