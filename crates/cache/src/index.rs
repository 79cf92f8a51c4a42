//! Index from a block to its unit, in 5.3 or 6.4 bytes a unit and mostly two reads of memory.
//!
//! Buckets are cache lines: fifteen entries, and a count of the blocks that belong here and found no place. A block's
//! entry is in its own bucket or, if that was full when it came, in the next one with a place. The count says whether
//! it is worth looking further, so that nothing must be moved when an entry goes.
//!
//! An entry is the unit's number, with a piece of the block's hash in the bits above it, which numbers do not use. The
//! unit itself is read only if that piece fits.

mod bucket;
mod fill;

use crate::memory::table;
use crate::units::{UnitId, Units};
use bucket::{Bucket, EMPTY};
use plimsoll_core::prefetch;

/// Entries of a bucket in use when all units are. The rest keeps nearly every block in its own bucket. One block of 20
/// is elsewhere. If one of six is, an access in memory takes a third more instructions, and as much more time.
pub(crate) const ENTRIES_FILLED: u32 = 10;
/// The same for a cache on a device. Its I/O costs far more than an access, and its units need more of their 24 bytes.
pub(crate) const ENTRIES_FILLED_ON_DEVICE: u32 = 12;
/// Most units of a cache. Five bits of an entry are left for the hash then.
pub const UNITS_MAX: u32 = (1 << 27) - 1;

/// Where a block belongs: code that asks several things about a block hashes it once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Home {
    bucket: u32,
    /// A piece of its hash, in the bits of an entry above a unit's number.
    tag: u32,
}

/// The index of a cache.
#[derive(Clone, Debug)]
pub struct Index {
    buckets: Vec<Bucket>,
    homes: Homes,
}

/// Maps blocks to their home buckets.
#[derive(Clone, Copy, Debug)]
struct Homes {
    buckets: u64,
    /// Bits of an entry that are the unit's number.
    number_bits: u32,
    seed: u64,
}

impl Homes {
    #[inline]
    fn of(&self, block: u64) -> Home {
        // The finalizer of MurmurHash3: every bit of the block changes half of the bits of the result.
        let mut hash = block ^ self.seed;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        let bucket = ((hash >> 32) * self.buckets) >> 32;
        Home { bucket: bucket as u32, tag: (hash as u32) << self.number_bits }
    }

    /// The bits of an entry that are the unit's number.
    #[inline]
    fn number_mask(&self) -> u32 {
        (1 << self.number_bits) - 1
    }
}

impl Index {
    /// An index for `units` units, at most [`UNITS_MAX`], with `filled` entries of a bucket in use when all units are.
    /// A client that does not know `seed` cannot choose blocks that meet in one bucket.
    pub fn new(units: u32, filled: u32, seed: u64) -> Index {
        assert!(units <= UNITS_MAX, "{units} units");
        let buckets = units.div_ceil(filled).max(1) as usize;
        let homes = Homes { buckets: buckets as u64, number_bits: u32::BITS - units.leading_zeros(), seed };
        Index { buckets: table(Bucket::NEW, buckets), homes }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }

    /// Where `block` belongs.
    #[inline]
    pub fn home(&self, block: u64) -> Home {
        self.homes.of(block)
    }

    /// Starts loading what [`Index::find`] will look at first.
    #[inline]
    pub fn prefetch(&self, home: Home) {
        prefetch(&self.buckets[home.bucket as usize]);
    }

    /// The unit of the block of `home`, if it is in its own bucket; once in a while another block's. It is not looked
    /// at.
    #[inline]
    pub fn guess(&self, home: Home) -> Option<UnitId> {
        let (bucket, number) = (&self.buckets[home.bucket as usize], self.homes.number_mask());
        let place = bucket.matches(!number, home.tag).next()?;
        let entry = bucket.entries[place];
        (entry != EMPTY).then_some(UnitId(entry & number))
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// The entry of the block with that home for which `is_it` holds: its bucket, and its position there.
    #[inline]
    fn entry(&self, home: Home, mask: u32, wanted: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let mut at = home.bucket as usize;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let found = bucket.matches(mask, wanted).find(|&place| is_it(bucket.entries[place]));
            if let Some(place) = found {
                return Some((at, place));
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
        self.find_at(self.home(block), units, block)
    }

    /// The same, for a block with a known home.
    #[inline]
    pub fn find_at(&self, home: Home, units: &Units, block: u64) -> Option<UnitId> {
        let number = self.homes.number_mask();
        let is_it = |entry| entry != EMPTY && units.block(UnitId(entry & number)) == block;
        let (bucket, place) = self.entry(home, !number, home.tag, is_it)?;
        Some(UnitId(self.buckets[bucket].entries[place] & number))
    }

    /// The entry of `unit`, which holds a block with that home.
    #[inline]
    fn entry_of(&self, home: Home, unit: UnitId) -> (usize, usize) {
        self.entry(home, u32::MAX, home.tag | unit.0, |_| true).expect("a unit that holds a block is in the index")
    }

    /// `unit` holds the block of `home` now; no unit did before.
    #[inline]
    pub fn insert(&mut self, home: Home, unit: UnitId) {
        let mut at = home.bucket as usize;
        loop {
            let next = self.next(at);
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.matches(u32::MAX, EMPTY).next() {
                bucket.entries[place] = home.tag | unit.0;
                return;
            }
            bucket.passed += 1;
            at = next;
        }
    }

    /// `to` holds the block of `home` now instead of `from`.
    pub fn replace(&mut self, home: Home, from: UnitId, to: UnitId) {
        let (bucket, place) = self.entry_of(home, from);
        self.buckets[bucket].entries[place] = home.tag | to.0;
    }

    /// Whether the index has exactly the units that hold a block, each once and where it is found. O(buckets + units).
    ///
    /// # Errors
    /// The first unit for which it is not so.
    pub(crate) fn audit(&self, units: &Units, holds: impl Fn(UnitId) -> bool) -> Result<(), String> {
        let (mut entries, mut passed) = (0, vec![0; self.buckets.len()]);
        for (at, bucket) in self.buckets.iter().enumerate() {
            for &entry in bucket.entries.iter().filter(|&&entry| entry != EMPTY) {
                entries += 1;
                let unit = UnitId(entry & self.homes.number_mask());
                let home = self.home(units.block(unit));
                if !holds(unit) || self.find_at(home, units, units.block(unit)) != Some(unit) {
                    let (block, holds) = (units.block(unit), holds(unit));
                    return Err(format!("the index has unit {} for block {block}, which it holds: {holds}", unit.0));
                }
                let mut on_the_way = home.bucket as usize;
                while on_the_way != at {
                    passed[on_the_way] += 1;
                    on_the_way = self.next(on_the_way);
                }
            }
        }
        let holders = (0..units.count()).map(UnitId).filter(|&unit| holds(unit)).count();
        if holders != entries {
            return Err(format!("{holders} units hold a block and the index has {entries}"));
        }
        match self.buckets.iter().zip(&passed).position(|(bucket, passed)| bucket.passed != *passed) {
            Some(at) => Err(format!("bucket {at} of the index has a wrong count of displaced entries")),
            None => Ok(()),
        }
    }

    /// `unit` does not hold the block of `home` any more.
    #[inline]
    pub fn remove(&mut self, home: Home, unit: UnitId) {
        let (found, place) = self.entry_of(home, unit);
        let mut at = home.bucket as usize;
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
    fn blocks_that_look_alike_are_told_apart() {
        let count = 1 << 20;
        let (mut units, mut index) = (Units::new(count), Index::new(count, ENTRIES_FILLED, 1));
        let mut seen = BTreeMap::new();
        let key = |home: Home| (home.bucket, home.tag);
        let alike = (0..200_000u64).filter_map(|block| Some((seen.insert(key(index.home(block)), block)?, block)));
        let pairs: Vec<_> = alike.take(5).collect();
        assert_eq!(pairs.len(), 5);
        for (unit, &(first, second)) in pairs.iter().enumerate() {
            for (unit, block) in [(unit * 2, first), (unit * 2 + 1, second)] {
                let unit = UnitId(unit as u32);
                units.fill(unit, block, Class::UNCLASSIFIED, Pool::default());
                index.insert(index.home(block), unit);
            }
        }
        for (unit, &(first, second)) in pairs.iter().enumerate() {
            let found = [first, second].map(|block| index.find(&units, block).map(|found| found.0 as usize));
            assert_eq!(found, [Some(unit * 2), Some(unit * 2 + 1)]);
        }
    }

    /// Blocks that were chosen for one seed, to meet in one bucket, are as others for another one.
    ///
    /// Planted break: a block's home does not depend on the seed.
    /// Promise: cache-index-seed.
    #[test]
    fn blocks_that_meet_in_one_bucket_do_not_with_another_seed() {
        let [known, secret] = [0, 0x5eed].map(|seed| Index::new(12_000, 12, seed));
        let meets = |index: &Index, blocks: &[u64]| {
            blocks.iter().map(|&block| index.home(block).bucket).collect::<std::collections::BTreeSet<_>>().len()
        };
        let chosen: Vec<u64> = (0..1 << 20).filter(|&block| known.home(block).bucket == 7).take(500).collect();
        assert_eq!((meets(&known, &chosen), chosen.len()), (1, 500));
        let buckets = meets(&secret, &chosen);
        assert!(buckets > 300, "500 blocks in {buckets} of 1000 buckets");
    }

    proptest! {
        // With one bucket's worth of units and with several that overflow.
        #[test]
        fn it_is_a_map(
            count in prop::sample::select(vec![1u32, 7, 15, 40]), seed in any::<u64>(),
            steps in prop::collection::vec((0u64..60, any::<bool>()), 0..400),
        ) {
            let (mut units, mut index) = (Units::new(count), Index::new(count, 12, seed));
            let (mut slow, mut free) = (BTreeMap::new(), (0..count).collect::<Vec<_>>());
            for (block, is_added) in steps {
                match (slow.get(&block).copied(), is_added) {
                    (None, true) => if let Some(unit) = free.pop() {
                        units.fill(UnitId(unit), block, Class::UNCLASSIFIED, Pool::default());
                        index.insert(index.home(block), UnitId(unit));
                        slow.insert(block, unit);
                    },
                    (Some(unit), false) if block % 2 == 0 && !free.is_empty() => {
                        let to = free.remove(0);
                        index.replace(index.home(block), UnitId(unit), UnitId(to));
                        units.copy(UnitId(unit), UnitId(to));
                        free.push(unit);
                        slow.insert(block, to);
                    }
                    (Some(unit), false) => {
                        index.remove(index.home(block), UnitId(unit));
                        slow.remove(&block);
                        free.push(unit);
                    }
                    _ => {}
                }
                for block in 0..60 {
                    prop_assert_eq!(index.find(&units, block).map(|unit| unit.0), slow.get(&block).copied());
                }
            }
            // No block is looked for further on than it can be.
            slow.iter().for_each(|(&block, &unit)| index.remove(index.home(block), UnitId(unit)));
            prop_assert!(index.buckets.iter().all(|bucket| bucket.passed == 0));
        }
    }
}
