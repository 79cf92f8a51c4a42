//! From a block to its unit, in 5.3 bytes a unit and mostly two reads of memory.
//!
//! Buckets are cache lines: fifteen entries, and a count of the blocks that belong here and found no place. A block's entry is
//! in its own bucket or, if that was full when it came, in the next one with a place; the count says whether it is worth
//! looking further, so that nothing must be moved when an entry goes.
//!
//! An entry is the unit's number, and in the bits above it, which numbers do not use, a piece of the block's hash: the unit
//! itself is looked at only where that fits.

mod fill;

use crate::memory::table;
use crate::units::{UnitId, Units};
use plimsoll_core::prefetch;

/// Entries of a bucket: with the count they fill a cache line of 64 bytes.
const ENTRIES: usize = 15;
/// Entries of a bucket that are in use when all units are: what is left keeps nearly everybody in his own bucket.
const ENTRIES_FILLED: u32 = 12;
/// No entry. No unit has this number: a cache has fewer units than the bits of its numbers can name.
const EMPTY: u32 = u32::MAX;
/// Units that a cache may have: five bits of an entry are left for the hash then.
pub const UNITS_MAX: u32 = (1 << 27) - 1;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    entries: [u32; ENTRIES],
    /// Blocks whose own bucket this is, or was on their way, and that are further on.
    passed: u32,
}

impl Bucket {
    /// A bit for each entry that is `wanted` where `mask` has ones. All entries are compared at once: without a branch, the compiler
    /// does it in vectors.
    #[inline]
    fn matches(&self, mask: u32, wanted: u32) -> u32 {
        let mut found = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            found |= u32::from(entry & mask == wanted) << place;
        }
        found
    }
}

/// The index of a cache.
#[derive(Clone, Debug)]
pub struct Index {
    buckets: Vec<Bucket>,
    homes: Homes,
}

/// Which bucket is whose.
#[derive(Clone, Copy, Debug)]
struct Homes {
    buckets: u64,
    /// Bits of an entry that are the unit's number.
    number_bits: u32,
    seed: u64,
}

impl Homes {
    /// The bucket of `block`, and the piece of its hash above a unit's number.
    #[inline]
    fn of(&self, block: u64) -> (usize, u32) {
        // The finalizer of MurmurHash3: every bit of the block changes half of the bits of the result.
        let mut hash = block ^ self.seed;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        let bucket = ((hash >> 32) * self.buckets) >> 32;
        (bucket as usize, (hash as u32) << self.number_bits)
    }

    /// The bits of an entry that are the unit's number.
    #[inline]
    fn number_mask(&self) -> u32 {
        (1 << self.number_bits) - 1
    }
}

impl Index {
    /// For `units` units, at most [`UNITS_MAX`]. Whoever does not know `seed` cannot choose blocks that meet in one bucket.
    pub fn new(units: u32, seed: u64) -> Index {
        assert!(units <= UNITS_MAX, "{units} units");
        let buckets = units.div_ceil(ENTRIES_FILLED).max(1) as usize;
        let bucket = Bucket { entries: [EMPTY; ENTRIES], passed: 0 };
        let homes = Homes { buckets: buckets as u64, number_bits: u32::BITS - units.leading_zeros(), seed };
        Index { buckets: table(bucket, buckets), homes }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    /// Starts loading what [`Index::find`] will look at.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        prefetch(&self.buckets[self.homes.of(block).0]);
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// The entry of `block`: its bucket, and its place there.
    #[inline]
    fn entry(&self, units: &Units, block: u64) -> Option<(usize, usize)> {
        let (mut at, tag) = self.homes.of(block);
        let number = self.homes.number_mask();
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut candidates = bucket.matches(!number, tag);
            while candidates != 0 {
                let place = candidates.trailing_zeros() as usize;
                let entry = bucket.entries[place];
                if entry != EMPTY && units.block(UnitId(entry & number)) == block {
                    return Some((at, place));
                }
                candidates &= candidates - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// The unit that holds `block`.
    #[inline]
    pub fn find(&self, units: &Units, block: u64) -> Option<UnitId> {
        let (bucket, place) = self.entry(units, block)?;
        Some(UnitId(self.buckets[bucket].entries[place] & self.homes.number_mask()))
    }

    /// `unit` holds `block` now; nobody did before.
    pub fn insert(&mut self, block: u64, unit: UnitId) {
        let (mut at, tag) = self.homes.of(block);
        loop {
            let next = self.next(at);
            let bucket = &mut self.buckets[at];
            let empty = bucket.matches(u32::MAX, EMPTY);
            if empty != 0 {
                bucket.entries[empty.trailing_zeros() as usize] = tag | unit.0;
                return;
            }
            bucket.passed += 1;
            at = next;
        }
    }

    /// `to` holds `block` now instead of who did, of whom `units` still says so.
    pub fn replace(&mut self, units: &Units, block: u64, to: UnitId) {
        let (bucket, place) = self.entry(units, block).expect("whoever is replaced is there");
        let entry = &mut self.buckets[bucket].entries[place];
        *entry = (*entry & !self.homes.number_mask()) | to.0;
    }

    /// Nobody holds `block` any more; somebody did, and `units` still says who.
    pub fn remove(&mut self, units: &Units, block: u64) {
        let (found, place) = self.entry(units, block).expect("whoever is removed is there");
        let mut at = self.homes.of(block).0;
        while at != found {
            self.buckets[at].passed -= 1;
            at = self.next(at);
        }
        self.buckets[found].entries[place] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pool;
    use plimsoll_core::Class;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Of two blocks with the same bucket and the same piece of hash, the second is found, too.
    #[test]
    fn who_look_alike_are_told_apart() {
        let count = 1 << 20;
        let (mut units, mut index) = (Units::new(count), Index::new(count, 1));
        let mut seen = BTreeMap::new();
        let alike = (0..200_000u64).filter_map(|block| Some((seen.insert(index.homes.of(block), block)?, block)));
        let pairs: Vec<_> = alike.take(5).collect();
        assert_eq!(pairs.len(), 5);
        for (unit, &(first, second)) in pairs.iter().enumerate() {
            for (unit, block) in [(unit * 2, first), (unit * 2 + 1, second)] {
                let unit = UnitId(unit as u32);
                units.fill(unit, block, Class::UNCLASSIFIED, Pool::default());
                index.insert(block, unit);
            }
        }
        for (unit, &(first, second)) in pairs.iter().enumerate() {
            let found = [first, second].map(|block| index.find(&units, block).map(|found| found.0 as usize));
            assert_eq!(found, [Some(unit * 2), Some(unit * 2 + 1)]);
        }
    }

    proptest! {
        #[test]
        fn entries_compared_at_once_are_those_compared_one_by_one(
            entries in prop::array::uniform15(0u32..4), mask in 0u32..4, wanted in 0u32..4,
        ) {
            let found = Bucket { entries, passed: 0 }.matches(mask, wanted);
            let one_by_one: Vec<_> = (0..32).map(|place| place < ENTRIES && entries[place] & mask == wanted).collect();
            let at_once: Vec<_> = (0..32).map(|place| found >> place & 1 == 1).collect();
            prop_assert_eq!(at_once, one_by_one);
        }

        // With one bucket's worth of units and with several that overflow.
        #[test]
        fn it_is_a_map(
            count in prop::sample::select(vec![1u32, 7, 15, 40]), seed in any::<u64>(),
            steps in prop::collection::vec((0u64..60, any::<bool>()), 0..400),
        ) {
            let (mut units, mut index) = (Units::new(count), Index::new(count, seed));
            let (mut slow, mut free) = (BTreeMap::new(), (0..count).collect::<Vec<_>>());
            for (block, is_added) in steps {
                match (slow.get(&block).copied(), is_added) {
                    (None, true) => if let Some(unit) = free.pop() {
                        units.fill(UnitId(unit), block, Class::UNCLASSIFIED, Pool::default());
                        index.insert(block, UnitId(unit));
                        slow.insert(block, unit);
                    },
                    (Some(unit), false) if block % 2 == 0 && !free.is_empty() => {
                        let to = free.remove(0);
                        index.replace(&units, block, UnitId(to));
                        units.copy(UnitId(unit), UnitId(to));
                        free.push(unit);
                        slow.insert(block, to);
                    }
                    (Some(unit), false) => {
                        index.remove(&units, block);
                        slow.remove(&block);
                        free.push(unit);
                    }
                    _ => {}
                }
                for block in 0..60 {
                    prop_assert_eq!(index.find(&units, block).map(|unit| unit.0), slow.get(&block).copied());
                }
            }
            // Nobody is looked for further on than he can be.
            slow.keys().for_each(|&block| index.remove(&units, block));
            prop_assert!(index.buckets.iter().all(|bucket| bucket.passed == 0));
        }
    }
}
