//! What the policies share: lists of units in order of use, and how old the oldest of each is.
//!
//! A policy gives each list a *credit*, and the unit leaves whose age, less its list's credit, is highest. With one list that is
//! LRU. With a list for each priority and credits that are never used up it is the paper's selective eviction; everything
//! between the two is a matter of credits.
//!
//! **Age** is counted in units taken in, not in time: an hour without a miss makes nobody older. Under LRU who is not used leaves
//! at an age of at most the cache's size.
//!
//! A unit has ten bits for its stamp, in steps of a 128th of the cache: so ages are told apart up to eight times the cache's
//! size. Within a list the order is exact; between lists it is as fine as a step. A unit that grew older than that (no list that
//! could give way looked at it for so long) passes for young until it has grown old again.

use crate::partition::{Among, Partition};
use crate::units::{List, STAMPS, UnitId, Units};

/// Steps of age in the time in which a cache is filled once.
const STEPS: u32 = 128;

/// Lists for each group of a partition, `per_group` each.
#[derive(Clone, Debug)]
pub struct AgedLists {
    lists: Vec<List>,
    per_group: usize,
    /// Units taken in.
    taken: u64,
    /// Units taken in a step.
    step: u64,
}

/// The stamps of units that are taken in one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Stamper {
    stamp: u32,
    /// Units until the next step.
    left: u64,
    step: u64,
}

impl Stamper {
    /// Another one is taken in.
    #[inline]
    pub fn stamp(&mut self) -> u32 {
        self.left -= 1;
        if self.left == 0 {
            (self.stamp, self.left) = ((self.stamp + 1) % STAMPS, self.step);
        }
        self.stamp
    }
}

impl AgedLists {
    /// For a cache of `units`.
    pub fn new(units: u32, groups: usize, per_group: usize) -> AgedLists {
        let lists = vec![List::default(); groups * per_group];
        AgedLists { lists, per_group, taken: 0, step: u64::from((units / STEPS).max(1)) }
    }

    fn stamp(&self) -> u32 {
        (self.taken / self.step) as u32 % STAMPS
    }

    /// How many lists there are.
    pub fn count(&self) -> usize {
        self.lists.len()
    }

    /// How many each group has.
    pub fn per_group(&self) -> usize {
        self.per_group
    }

    /// Stamps units that are taken in one after the other when `taken` are already.
    pub fn stamper(&self, taken: u64) -> Stamper {
        Stamper { stamp: (taken / self.step) as u32 % STAMPS, left: self.step - taken % self.step, step: self.step }
    }

    /// Takes over lists of which the units of all, `taken`, were stamped.
    pub fn adopt(&mut self, lists: Vec<List>, taken: u64) {
        debug_assert!(self.taken == 0 && lists.len() == self.lists.len());
        (self.lists, self.taken) = (lists, taken);
    }

    /// A unit more was taken in: everybody is older by one.
    #[inline]
    pub fn grow_older(&mut self) {
        self.taken += 1;
    }

    /// How long ago `unit` was put in order, in units taken in.
    #[inline]
    pub fn age(&self, units: &Units, unit: UnitId) -> u64 {
        u64::from((self.stamp() + STAMPS - units.stamp(unit)) % STAMPS) * self.step
    }

    /// Puts `unit` at the new end of list `list` of its group.
    pub fn push(&mut self, units: &mut Units, group: usize, list: usize, unit: UnitId) {
        units.set_stamp(unit, self.stamp());
        self.lists[group * self.per_group + list].push(units, unit);
    }

    /// Takes `unit` out of that list, which it must be in.
    pub fn remove(&mut self, units: &mut Units, group: usize, list: usize, unit: UnitId) {
        self.lists[group * self.per_group + list].remove(units, unit);
    }

    /// Puts `to` where `from` is in that list.
    pub fn replace(&mut self, units: &mut Units, group: usize, list: usize, from: UnitId, to: UnitId) {
        self.lists[group * self.per_group + list].replace(units, from, to);
    }

    /// Takes out the unit that leaves: of the oldest of each list the one with the highest age less `credit` of its list; of
    /// equals the one of the last list.
    pub fn pop(
        &mut self,
        units: &mut Units,
        partition: &Partition,
        among: Among,
        credit: impl Fn(usize) -> i64,
    ) -> Option<UnitId> {
        let mut best: Option<(i64, usize)> = None;
        for (at, list) in self.lists.iter().enumerate() {
            let Some(oldest) = list.oldest() else { continue };
            if among != Among::All && !partition.is_among(at / self.per_group, among) {
                continue;
            }
            let score = self.age(units, oldest) as i64 - credit(at % self.per_group);
            if best.is_none_or(|(highest, _)| score >= highest) {
                best = Some((score, at));
            }
        }
        self.lists[best?.1].pop(units)
    }
}
