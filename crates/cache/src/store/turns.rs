//! When a new block may have a unit: as fast as others leave ([`Pace`]), and never one of those kept for writes of
//! cached blocks.
//!
//! **A write that waits, waits for an event.** A write has to come again only if units leave. It also does if units are
//! free and the journal is about to say so. In both cases an operation is under way, and when it has ended the host
//! asks again. If nothing leaves, because the store fails, the write goes past the cache and hears of it.

use super::cleaner::ready_units;
use super::pace::Pace;

/// What a block that is not in the cache may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A unit.
    Now,
    /// A unit later.
    Later,
    /// No write: no unit is about to leave.
    Never,
}

/// Units that there are for blocks that come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// Units that another block could get, at once or later.
    pub free: u32,
    /// Of these, units that hold nothing.
    pub unused: u32,
    /// Of these, units that can be given away now.
    pub empty: u32,
    /// Some are being copied, and will be free.
    pub is_leaving: bool,
    /// Units that left since the start, copied or given up clean.
    pub left: u64,
}

/// What waits for a unit, and how fast units are given.
#[derive(Debug)]
pub(super) struct Turns {
    pace: Pace,
    /// A write was told to come again for a unit.
    pub is_awaited: bool,
    /// A request that has a slot waits for an empty unit.
    pub is_unit_wanted: bool,
    /// Whether the last submitted request wanted a unit for a new block, and whether it was refused because its turn
    /// had not come.
    pub wanted_unit: bool,
    pub was_refused: bool,
}

/// The pace of a cache of so many units with so many requests at once. The syncer wakes up below `low` free units.
/// Units are kept for requests, but no more than half of those that are always ready, and half of `low`.
fn pace_of(units: u32, low: u32, requests: u32) -> Pace {
    Pace::new(low, requests.min(low / 2).min(ready_units(units) / 2).max(1))
}

impl Turns {
    pub fn new(units: u32, low: u32, requests: u32) -> Turns {
        let pace = pace_of(units, low, requests);
        Turns { pace, is_awaited: false, is_unit_wanted: false, wanted_unit: false, was_refused: false }
    }

    /// Goes on with another low watermark. Nothing is owed.
    pub fn set_pace(&mut self, units: u32, low: u32, requests: u32) {
        self.pace = pace_of(units, low, requests);
        self.submitted();
    }

    /// Another request was submitted.
    pub fn submitted(&mut self) {
        (self.wanted_unit, self.was_refused) = (false, false);
    }

    /// Units that no new block is given.
    pub fn kept(&self) -> u32 {
        self.pace.kept()
    }

    /// What the next new block may have.
    pub fn turn(&mut self, supply: &Supply) -> Turn {
        let Supply { free, unused, empty, is_leaving, left } = *supply;
        if unused <= self.pace.kept() {
            // What is free is being made ready.
            return if is_leaving || free > unused { Turn::Later } else { Turn::Never };
        }
        if is_leaving && !self.pace.may_take(free, left) {
            return Turn::Later;
        }
        if empty > 0 { Turn::Now } else { Turn::Later }
    }

    /// A new block takes one of `free` units.
    pub fn take(&mut self, free: u32) {
        self.pace.take(free);
    }

    /// See [`Pace::percent`].
    pub fn percent(&self, free: u32) -> u32 {
        self.pace.percent(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of 1024 units: 16 are ready, so 8 are kept for requests.
    fn turns() -> Turns {
        Turns::new(1024, 64, 128)
    }

    /// Planted breaks, each red: the units that are kept are given away; where nothing leaves a write waits.
    #[test]
    fn what_a_new_block_may_have() {
        assert_eq!(turns().kept(), 8);
        let supply = Supply { free: 64, unused: 9, empty: 1, is_leaving: true, left: 0 };
        for (supply, expected, why) in [
            (supply, Turn::Now, "one more than is kept is empty"),
            (Supply { empty: 0, ..supply }, Turn::Later, "the journal is about to say that more are empty"),
            (Supply { unused: 8, ..supply }, Turn::Later, "the last ones are kept, and others leave"),
            (Supply { unused: 8, is_leaving: false, ..supply }, Turn::Later, "others are free and are made ready"),
            (Supply { free: 8, unused: 8, is_leaving: false, ..supply }, Turn::Never, "nothing leaves"),
        ] {
            assert_eq!(turns().turn(&supply), expected, "{why}");
        }
    }

    #[test]
    fn below_the_watermark_a_unit_is_paid_for_by_those_that_leave() {
        let mut turns = turns();
        let supply = |left| Supply { free: 20, unused: 20, empty: 12, is_leaving: true, left };
        assert_eq!(turns.turn(&supply(0)), Turn::Now);
        turns.take(20);
        assert_eq!(turns.turn(&supply(0)), Turn::Later);
        assert_eq!(turns.turn(&supply(2)), Turn::Now, "two have left");
        turns.take(20);
        assert_eq!(turns.turn(&Supply { is_leaving: false, ..supply(2) }), Turn::Now, "none leaves: none is owed");
        (turns.wanted_unit, turns.was_refused) = (true, true);
        turns.set_pace(1024, 64, 128);
        assert_eq!((turns.turn(&supply(2)), turns.wanted_unit, turns.was_refused), (Turn::Now, false, false));
    }
}
