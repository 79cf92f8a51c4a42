//! Filling an index that is empty with all units at once.
//!
//! Each thread has buckets of its own, one behind the other, and goes through all units for those that belong there. It does not put
//! them there at once, but into *shares* first: one for each run of buckets that the processor's cache holds. When a share is full, all of it
//! goes into its buckets. So memory is not walked through in no order, for which the processor would have to find out for each
//! unit anew where its page is.
//!
//! A unit with which another one's piece of hash agrees is a *suspect*: whether they have the same block only the other one tells, which may
//! be anywhere. It is asked for, and the suspect is put aside until its share is through.
//!
//! A block that would overflow into another thread's buckets is put there at the end, when there are no threads any more.

use super::bucket::{Bucket, EMPTY, ENTRIES};
use super::{Home, Homes, Index};
use crate::threads::on_threads;
use crate::units::{UnitId, Units};
use plimsoll_core::prefetch;

/// Buckets of a share, 512 KiB. Tests have several of them with a few units.
const SHARE_BUCKETS: usize = if cfg!(test) { 4 } else { 1 << 13 };
/// Units that a share holds until they go into its buckets, 4 KiB.
const SHARE_UNITS: usize = if cfg!(test) { 8 } else { 1 << 9 };
/// So many units before it is needed a bucket is asked for.
const AHEAD: usize = 32;

/// Several units that say that they hold a block: whether the second has it rather than the first.
pub(crate) type Prefers<'a> = dyn Fn(UnitId, UnitId) -> bool + Sync + 'a;

struct Filler<'a> {
    units: &'a Units,
    homes: Homes,
    prefers: &'a Prefers<'a>,
    /// Its buckets, and the number of the first.
    buckets: &'a mut [Bucket],
    first: usize,
    /// Units that were put aside: another one may have their block.
    suspects: Vec<Due>,
    /// Units whose block another one has.
    losers: Vec<UnitId>,
    /// Units for whose blocks there was no place.
    beyond: Vec<UnitId>,
}

/// A unit with the piece of its block's hash, and the place of its bucket among a thread's own.
#[derive(Clone, Copy, Default)]
struct Due {
    entry: u32,
    at: u32,
}

impl Filler<'_> {
    fn fill(mut self, is_held: &impl Fn(UnitId) -> bool) -> (Vec<UnitId>, Vec<UnitId>) {
        let shares = self.buckets.len().div_ceil(SHARE_BUCKETS);
        // And another one, in which nothing stays.
        let mut due = vec![[Due::default(); SHARE_UNITS]; shares + 1];
        let mut counts = vec![0; shares + 1];
        for unit in (0..self.units.count()).map(UnitId) {
            let Home { bucket, tag } = self.homes.of(self.units.block(unit));
            let at = (bucket as usize).wrapping_sub(self.first);
            // Whose bucket it is nobody can foretell, a processor neither: so it is noted in any case, and counted if it counts.
            let share = (at / SHARE_BUCKETS).min(shares);
            let (due, count) = (&mut due[share], &mut counts[share]);
            due[*count] = Due { entry: tag | unit.0, at: at as u32 };
            *count += usize::from((at < self.buckets.len()) & is_held(unit));
            if *count == SHARE_UNITS {
                *count = 0;
                self.insert_all(due);
            }
        }
        due.iter().zip(counts).for_each(|(due, count)| self.insert_all(&due[..count]));
        (self.losers, self.beyond)
    }

    /// Gives each a place, in their order but for suspects, which come last, in theirs. Who has the same block as a suspect is one, too,
    /// since nothing is taken out meanwhile: so these keep their order.
    fn insert_all(&mut self, due: &[Due]) {
        due.iter().take(AHEAD).for_each(|due| prefetch(&self.buckets[due.at as usize]));
        let mut suspects = std::mem::take(&mut self.suspects);
        for (at, now) in due.iter().enumerate() {
            if let Some(next) = due.get(at + AHEAD) {
                prefetch(&self.buckets[next.at as usize]);
            }
            if !self.insert(*now, false) {
                suspects.push(*now);
            }
        }
        suspects.drain(..).for_each(|suspect| _ = self.insert(suspect, true));
        self.suspects = suspects;
    }

    /// Gives a unit a place and answers true; if it is a suspect and was not put aside yet, answers false and asks for the other one.
    #[inline]
    fn insert(&mut self, Due { entry, at: home }: Due, was_aside: bool) -> bool {
        let (number, home) = (self.homes.number_mask(), home as usize);
        let (unit, tag) = (UnitId(entry & number), entry & !number);
        for at in home..self.buckets.len() {
            let bucket = &self.buckets[at];
            // Nothing was taken out yet, so what is in use comes first.
            let used = bucket.matches(u32::MAX, EMPTY).next().unwrap_or(ENTRIES);
            let alike = bucket.matches(!number, tag).next().filter(|&place| place < used);
            if let Some(place) = alike {
                if !was_aside {
                    self.units.prefetch(UnitId(bucket.entries[place] & number));
                    return false;
                }
                if self.is_double(unit, at, used, tag) {
                    return true;
                }
            }
            if let Some(free) = self.buckets[at].entries.get_mut(used) {
                *free = entry;
                self.buckets[home..at].iter_mut().for_each(|bucket| bucket.passed += 1);
                return true;
            }
        }
        self.beyond.push(unit);
        true
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
            Filler {
                units,
                homes,
                prefers,
                buckets,
                first,
                suspects: Vec::new(),
                losers: Vec::new(),
                beyond: Vec::new(),
            }
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

    /// With so many units some look like others that have another block.
    ///
    /// Planted break: suspects are left out.
    #[test]
    fn who_look_alike_all_have_a_place() {
        let count = 1 << 18;
        let (mut units, mut index) = (Units::new(count), Index::new(count, 1));
        let block = |unit: u32| u64::from(unit) * 7;
        (0..count).for_each(|unit| units.fill(UnitId(unit), block(unit), Class::UNCLASSIFIED, Pool::default()));
        assert_eq!(index.fill(&units, |_| true, &|_, _| unreachable!("no block is there twice"), 2), []);
        assert!((0..count).all(|unit| index.find(&units, block(unit)) == Some(UnitId(unit))));
    }

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
