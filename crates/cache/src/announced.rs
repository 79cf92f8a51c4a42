//! Loading ahead what accesses will look at, where it is known which blocks will be accessed.
//!
//! **The intuition.** An access to a block in a large cache waits for memory three times: for the bucket of the index,
//! which names the unit; for the unit, which names its neighbours in its list; and for those neighbours. Each can be
//! asked for only when the one before it has arrived. But several blocks can each have one of these loads under way at
//! once.
//!
//! **The rule.** A block goes through a pipeline of three stages, a few accesses long each: when it is announced its
//! bucket is asked for; some announcements later its unit; and some later its unit's neighbours (Chen et al.,
//! *Improving hash join performance through prefetching*, ICDE 2004: software-pipelined prefetching). What is asked for
//! is looked at only to ask for more: if a unit has gone elsewhere meanwhile, something was loaded for nothing.
//!
//! **The exception.** A small cache is near the processor anyway: then announcements are not worth their instructions.

use crate::index::{Home, Index};
use crate::units::{UnitId, Units};

/// Accesses between a block's announcement and its access.
pub const ANNOUNCED_AHEAD: usize = 8;
/// Announcements between a block's own and the asking for its unit, and for the unit's neighbours.
const UNIT_AFTER: usize = 3;
const NEIGHBOURS_AFTER: usize = 6;
/// What a processor's second cache keeps beside other things, bytes: they have 512 KiB and more.
const NEAR_BYTES: usize = 256 << 10;
/// Places for what was announced last: a power of two, so that going round is cheap.
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
