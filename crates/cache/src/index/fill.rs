//! Filling an index that is empty with all units at once.
//!
//! Each thread has buckets of its own, one behind the other, and goes through all units for those that belong there. A bucket is
//! asked for some units before it is needed, so that the processor waits for many of them at once and not for each. A
//! block that would overflow into another thread's buckets is put there at the end, when there are no threads any more.

use super::bucket::{Bucket, EMPTY, ENTRIES};
use super::{Home, Homes, Index};
use crate::threads::on_threads;
use crate::units::{UnitId, Units};
use plimsoll_core::prefetch;

/// Units that are looked at before what the ones before them asked for is needed: of two threads' units that makes half as many buckets,
/// about as many as can be under way.
const AHEAD: usize = 64;

/// Several units that say that they hold a block: whether the second has it rather than the first.
pub(crate) type Prefers<'a> = dyn Fn(UnitId, UnitId) -> bool + Sync + 'a;

struct Filler<'a> {
    units: &'a Units,
    homes: Homes,
    prefers: &'a Prefers<'a>,
    /// Its buckets, and the number of the first.
    buckets: &'a mut [Bucket],
    first: usize,
    /// Units whose block another one has.
    losers: Vec<UnitId>,
    /// Units for whose blocks there was no place.
    beyond: Vec<UnitId>,
}

/// A unit, the place of its bucket among a thread's own, and the piece of its block's hash.
#[derive(Clone, Copy, Default)]
struct Due {
    unit: u32,
    at: usize,
    tag: u32,
}

impl Filler<'_> {
    fn fill(mut self, is_held: impl Fn(UnitId) -> bool) -> (Vec<UnitId>, Vec<UnitId>) {
        let (mut due, mut next) = ([Due::default(); AHEAD], [Due::default(); AHEAD]);
        let (mut due_count, count) = (0, self.units.count());
        for first in (0..count).step_by(AHEAD) {
            let mut next_count = 0;
            for unit in first..count.min(first + AHEAD as u32) {
                let Home { bucket, tag } = self.homes.of(self.units.block(UnitId(unit)));
                let at = (bucket as usize).wrapping_sub(self.first);
                // Whose bucket it is nobody can foretell, a processor neither: so it is noted in any case, and counted if it counts.
                next[next_count] = Due { unit, at, tag };
                next_count += usize::from((at < self.buckets.len()) & is_held(UnitId(unit)));
            }
            next[..next_count].iter().for_each(|next| prefetch(&self.buckets[next.at]));
            due[..due_count].iter().for_each(|due| self.insert(*due));
            std::mem::swap(&mut due, &mut next);
            due_count = next_count;
        }
        due[..due_count].iter().for_each(|due| self.insert(*due));
        (self.losers, self.beyond)
    }

    fn insert(&mut self, Due { unit, at: home, tag }: Due) {
        let (number, unit) = (self.homes.number_mask(), UnitId(unit));
        for at in home..self.buckets.len() {
            let bucket = &self.buckets[at];
            // Nothing was taken out yet, so what is in use comes first.
            let used = bucket.matches(u32::MAX, EMPTY).next().unwrap_or(ENTRIES);
            let may_be_there = bucket.matches(!number, tag).next().is_some_and(|place| place < used);
            if may_be_there && self.is_double(unit, at, used, tag) {
                return;
            }
            if let Some(entry) = self.buckets[at].entries.get_mut(used) {
                *entry = tag | unit.0;
                self.buckets[home..at].iter_mut().for_each(|bucket| bucket.passed += 1);
                return;
            }
        }
        self.beyond.push(unit);
    }

    /// Whether another unit says that it has the block of `unit`, too: then one of the two is chosen.
    fn is_double(&mut self, unit: UnitId, at: usize, used: usize, tag: u32) -> bool {
        let number = self.homes.number_mask();
        for entry in &mut self.buckets[at].entries[..used] {
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
    /// Every unit of which `is_held` holds a block. Of several with the same block, given by their number, one has it; the others
    /// are returned.
    pub(crate) fn fill(
        &mut self,
        units: &Units,
        is_held: impl Fn(UnitId) -> bool + Sync,
        prefers: &Prefers<'_>,
        threads: usize,
    ) -> Vec<UnitId> {
        let (homes, each) = (self.homes, self.buckets.len().div_ceil(threads));
        let parts = self.buckets.chunks_mut(each).enumerate().map(|(at, buckets)| {
            let first = at * each;
            Filler { units, homes, prefers, buckets, first, losers: Vec::new(), beyond: Vec::new() }
        });
        let filled = on_threads(parts, |filler| filler.fill(&is_held));
        let mut all = Vec::new();
        for (losers, beyond) in filled {
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

    proptest! {
        // Nearly all in one bucket, or in several that overflow, also from one thread's into another's.
        #[test]
        fn it_is_as_if_one_had_come_after_the_other(
            blocks in prop::collection::vec(prop::option::of(0u64..200), 1..120), seed in any::<u64>(), threads in 1usize..5,
        ) {
            let count = blocks.len() as u32;
            let (mut units, mut slow, mut losers) = (Units::new(count), BTreeMap::new(), Vec::new());
            // Even numbers are preferred, and of those the later ones.
            let prefers = |_: UnitId, unit: UnitId| unit.0.is_multiple_of(2);
            for (unit, block) in (0..count).map(UnitId).zip(&blocks) {
                let Some(block) = *block else { continue };
                units.fill(unit, block, Class::UNCLASSIFIED, Pool::default());
                match slow.get(&block).copied() {
                    Some(_) if !prefers(unit, unit) => losers.push(unit),
                    other => {
                        losers.extend(other);
                        slow.insert(block, unit);
                    }
                }
            }
            let mut index = Index::new(count, seed);
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
