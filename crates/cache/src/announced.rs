//! Loads memory ahead of accesses, if the blocks that will be accessed are known.
//!
//! **The intuition.** An access to a block in a large cache waits for memory three times. The bucket of the index names
//! the unit, the unit names its neighbours in its list, and then come those neighbours. Each can be asked for only when
//! the one before it has arrived. But several blocks can each have one of these loads under way at once.
//!
//! **The rule.** A block goes through a pipeline of three stages, a few accesses long each. Its announcement requests
//! its bucket; some announcements later its unit is requested, and some later its unit's neighbours. (Chen et al.,
//! *Improving hash join performance through prefetching*, ICDE 2004: software-pipelined prefetching.) What is asked for
//! is looked at only to ask for more: if a unit has gone elsewhere meanwhile, something was loaded for nothing.
//!
//! **The exception.** A small cache is near the processor anyway: then announcements are not worth their instructions.

use crate::index::{Home, Index};
use crate::units::{UnitId, Units};

/// Accesses between a block's announcement and its access.
pub const ANNOUNCED_AHEAD: usize = 8;
/// Announcements between a block's own and the request for its unit, and for the unit's neighbours.
const UNIT_AFTER: usize = 3;
const NEIGHBOURS_AFTER: usize = 6;
/// Bytes that a processor's second-level cache keeps beside other data. Such caches have 512 KiB and more.
const NEAR_BYTES: usize = 256 << 10;
/// Slots for the last announcements: a power of two, so that wrapping around is cheap.
const PLACES: usize = 8;

/// The blocks that were announced last.
#[derive(Debug)]
pub(crate) struct Announced {
    /// Something may be far away.
    is_worthwhile: bool,
    homes: [Home; PLACES],
    units: [Option<UnitId>; PLACES],
    count: usize,
}

impl Announced {
    pub fn new(index: &Index, units: &Units) -> Announced {
        let is_worthwhile = index.bytes() + units.bytes() > NEAR_BYTES;
        Announced { is_worthwhile, homes: Default::default(), units: Default::default(), count: 0 }
    }

    #[inline]
    pub fn push(&mut self, index: &Index, units: &Units, block: u64) {
        if !self.is_worthwhile {
            return;
        }
        let home = index.home(block);
        index.prefetch(home);
        let before = |announcements: usize| self.count.wrapping_sub(announcements) % PLACES;
        let (now, second, third) = (before(0), before(UNIT_AFTER), before(NEIGHBOURS_AFTER));
        self.homes[now] = home;
        self.units[second] = index.guess(self.homes[second]);
        self.units[second].inspect(|&unit| units.prefetch(unit));
        self.units[third].inspect(|&unit| units.prefetch_neighbours(unit));
        self.count = self.count.wrapping_add(1);
    }
}
