//! Filling an index that is empty with all units at once.
//!
//! Each thread goes through some of the units. It does not put them into their buckets at once, but keeps them by
//! *runs* of buckets that lie side by side. When it has enough of a run's units, it takes the run and puts all of them
//! there. So a thousand units in turn go to 4 MiB of memory and not to all of the index. As there are many runs,
//! threads rarely wait for each other.
//!
//! A unit with the same piece of hash as another one is a *suspect*. Only the other unit, which may be anywhere, tells
//! whether they have the same block. It is asked for, and the suspect is put aside until the others are through.
//!
//! A block that would overflow into the next run is put there at the end, when there are no threads any more.

use super::bucket::{Bucket, EMPTY, ENTRIES};
use super::{Home, Homes, Index};
use crate::threads::on_threads;
use crate::units::{UnitId, Units};
use plimsoll_core::prefetch;
use std::ops::Range;
use std::sync::Mutex;

/// Buckets of a run: 4 MiB. Tests have several runs with a few units.
const RUN_BUCKETS: usize = if cfg!(test) { 4 } else { 1 << 16 };
/// Units of a run that a thread collects before they go into its buckets. They take 8 KiB, and for all runs of 25
/// million units 264 KiB. Four times as many made no difference.
const DUE_UNITS: usize = if cfg!(test) { 8 } else { 1 << 10 };
/// A bucket is prefetched so many units before it is needed.
const AHEAD: usize = 32;

/// Of two units with the same block, whether the second has it rather than the first. It is an order of all units, so
/// it makes no difference which comes first.
pub(crate) type Prefers<'a> = dyn Fn(UnitId, UnitId) -> bool + Sync + 'a;

struct Filler<'a> {
    units: &'a Units,
    homes: Homes,
    prefers: &'a Prefers<'a>,
    /// Units that were put aside: another one may have their block.
    suspects: Vec<Due>,
    /// Units with a block that another unit has.
    losers: Vec<UnitId>,
    /// Units with blocks for which there was no place.
    beyond: Vec<UnitId>,
}

/// A unit with the piece of its block's hash, and its bucket's position in its run.
#[derive(Clone, Copy, Default)]
struct Due {
    entry: u32,
    at: u32,
}

impl Filler<'_> {
    fn fill(mut self, runs: &[Mutex<&mut [Bucket]>], units: Range<u32>, is_held: &impl Fn(UnitId) -> bool) -> Self {
        let mut due = vec![[Due::default(); DUE_UNITS]; runs.len()];
        let mut counts = vec![0; runs.len()];
        let run = |run: usize| runs[run].lock().expect("no thread panics that has it");
        for unit in units.map(UnitId).filter(|&unit| is_held(unit)) {
            let Home { bucket, tag } = self.homes.of(self.units.block(unit));
            let of = bucket as usize / RUN_BUCKETS;
            let (due, count) = (&mut due[of], &mut counts[of]);
            due[*count] = Due { entry: tag | unit.0, at: bucket % RUN_BUCKETS as u32 };
            *count += 1;
            if *count == DUE_UNITS {
                *count = 0;
                self.insert_all(&mut run(of), due);
            }
        }
        for (of, (due, count)) in due.iter().zip(counts).enumerate() {
            self.insert_all(&mut run(of), &due[..count]);
        }
        self
    }

    /// Gives each a place in a run, suspects last.
    fn insert_all(&mut self, buckets: &mut [Bucket], due: &[Due]) {
        due.iter().take(AHEAD).for_each(|due| prefetch(&buckets[due.at as usize]));
        let mut suspects = std::mem::take(&mut self.suspects);
        for (at, now) in due.iter().enumerate() {
            if let Some(next) = due.get(at + AHEAD) {
                prefetch(&buckets[next.at as usize]);
            }
            if !self.insert(buckets, *now, false) {
                suspects.push(*now);
            }
        }
        suspects.drain(..).for_each(|suspect| _ = self.insert(buckets, suspect, true));
        self.suspects = suspects;
    }

    /// Gives a unit an entry and answers true. If it is a suspect and was not put aside yet, answers false and
    /// prefetches the other one.
    #[inline]
    fn insert(&mut self, buckets: &mut [Bucket], Due { entry, at: home }: Due, was_aside: bool) -> bool {
        let (number, home) = (self.homes.number_mask(), home as usize);
        let (unit, tag) = (UnitId(entry & number), entry & !number);
        for at in home..buckets.len() {
            let bucket = &mut buckets[at];
            // Nothing was taken out yet, so the used entries come first.
            let used = bucket.matches(u32::MAX, EMPTY).next().unwrap_or(ENTRIES);
            let alike = bucket.matches(!number, tag).next().filter(|&place| place < used);
            if let Some(place) = alike {
                if !was_aside {
                    self.units.prefetch(UnitId(bucket.entries[place] & number));
                    return false;
                }
                if self.is_double(&mut bucket.entries[..used], unit, tag) {
                    return true;
                }
            }
            if let Some(free) = bucket.entries.get_mut(used) {
                *free = entry;
                buckets[home..at].iter_mut().for_each(|bucket| bucket.passed += 1);
                return true;
            }
        }
        self.beyond.push(unit);
        true
    }

    /// Whether another unit claims the block of `unit`, too: then one of the two is chosen.
    fn is_double(&mut self, entries: &mut [u32], unit: UnitId, tag: u32) -> bool {
        let number = self.homes.number_mask();
        for entry in entries {
            let other = UnitId(*entry & number);
            if *entry & !number == tag && self.units.block(other) == self.units.block(unit) {
                let is_won = (self.prefers)(other, unit);
                if is_won {
                    *entry = tag | unit.0;
                }
                self.losers.push(if is_won { other } else { unit });
                return true;
            }
        }
        false
    }
}

impl Index {
    /// Every unit of which `is_held` holds a block. Of several with the same block, given by their number, one has it;
    /// the others are returned.
    pub(crate) fn fill(
        &mut self,
        units: &Units,
        is_held: impl Fn(UnitId) -> bool + Sync,
        prefers: &Prefers<'_>,
        threads: usize,
    ) -> Vec<UnitId> {
        let (homes, count) = (self.homes, units.count());
        let runs: Vec<_> = self.buckets.chunks_mut(RUN_BUCKETS).map(Mutex::new).collect();
        let each = count.div_ceil(threads as u32).max(1);
        let parts = (0..count).step_by(each as usize).map(|first| first..count.min(first.saturating_add(each)));
        let filled = on_threads(parts, |part| {
            let (suspects, losers, beyond) = (Vec::new(), Vec::new(), Vec::new());
            Filler { units, homes, prefers, suspects, losers, beyond }.fill(&runs, part, &is_held)
        });
        let mut all = Vec::new();
        for Filler { losers, beyond, .. } in filled {
            all.extend(losers);
            for unit in beyond {
                let block = units.block(unit);
                let home = self.home(block);
                match self.find_at(home, units, block) {
                    None => self.insert(home, unit),
                    Some(other) if prefers(other, unit) => {
                        self.replace(home, other, unit);
                        all.push(other);
                    }
                    Some(_) => all.push(unit),
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pool;
    use plimsoll_core::Class;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// With so many units some look like others that have another block.
    ///
    /// Planted break: suspects are left out.
    #[test]
    fn blocks_that_look_alike_all_have_a_place() {
        let count = 1 << 18;
        let (mut units, mut index) = (Units::new(count), Index::new(count, 12, 1));
        let block = |unit: u32| u64::from(unit) * 7;
        (0..count).for_each(|unit| units.fill(UnitId(unit), block(unit), Class::UNCLASSIFIED, Pool::default()));
        assert_eq!(index.fill(&units, |_| true, &|_, _| unreachable!("no block is there twice"), 2), []);
        assert!((0..count).all(|unit| index.find(&units, block(unit)) == Some(UnitId(unit))));
    }

    proptest! {
        // Nearly all in one bucket, or in several that overflow, also from one run into the next.
        /// Promise: store-fill.
        #[test]
        fn it_is_as_if_one_had_come_after_the_other(
            blocks in prop::collection::vec(prop::option::of(0u64..200), 1..120), seed in any::<u64>(), threads in 1usize..5,
        ) {
            let count = blocks.len() as u32;
            let (mut units, mut slow, mut losers) = (Units::new(count), BTreeMap::new(), Vec::new());
            // Even numbers are preferred, and of equals the higher one.
            let rank = |unit: UnitId| (unit.0.is_multiple_of(2), unit);
            let prefers = |held: UnitId, unit: UnitId| rank(held) < rank(unit);
            for (unit, block) in (0..count).map(UnitId).zip(&blocks) {
                let Some(block) = *block else { continue };
                units.fill(unit, block, Class::UNCLASSIFIED, Pool::default());
                match slow.get(&block).copied() {
                    Some(held) if !prefers(held, unit) => losers.push(unit),
                    other => {
                        losers.extend(other);
                        slow.insert(block, unit);
                    }
                }
            }
            let mut index = Index::new(count, 12, seed);
            let is_held = |unit: UnitId| blocks[unit.0 as usize].is_some();
            let mut found = index.fill(&units, is_held, &prefers, threads);
            found.sort();
            losers.sort();
            prop_assert_eq!(found, losers);
            for block in 0..200 {
                prop_assert_eq!(index.find(&units, block), slow.get(&block).copied());
            }
            slow.iter().for_each(|(&block, &unit)| index.remove(index.home(block), unit));
            prop_assert!(index.buckets.iter().all(|bucket| bucket.passed == 0));
        }
    }
}
