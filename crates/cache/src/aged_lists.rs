//! Lists of units in order of use, with the age of the oldest of each: shared by the policies.
//!
//! A policy gives each list a *credit*, and the unit with the highest age, less its list's credit, leaves. With one
//! list that is LRU. With a list for each priority and credits that are never used up it is the paper's selective
//! eviction. Credits decide everything between the two.
//!
//! **Age** is counted in units taken in, not in time: an hour without a miss makes no unit older. Under LRU a unit that
//! is not used leaves at an age of at most the cache's size.
//!
//! A unit has ten bits for its stamp, in steps of a 128th of the cache. So ages are told apart up to eight times the
//! cache's size, and an older unit passes for young. The step of each list's oldest unit is known in full, since the
//! next unit was stamped after it. So the oldest may grow as old as it likes. Within a list the order is exact; between
//! lists it is as fine as a step.

use crate::partition::{Among, Partition};
use crate::units::{List, STAMPS, UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;

/// Steps of age in the time in which a cache is filled once.
const STEPS: u32 = 128;
const WORD_BITS: usize = u64::BITS as usize;

/// Lists for each group of a partition, `per_group` each.
#[derive(Clone, Debug)]
pub struct AgedLists {
    lists: Vec<List>,
    /// A bit for each list, set if the list holds a unit. Most lists of most policies are empty.
    occupied: Vec<u64>,
    /// The step in which each list's oldest unit was stamped, if there is one.
    oldest_steps: Vec<u64>,
    per_group: usize,
    /// Units taken in, and the step in which the last one was.
    taken: u64,
    now: u64,
    /// The number of the unit that begins the next step.
    next_step_at: u64,
    /// Units taken in a step.
    step: u64,
}

/// Aged lists that a start fills all at once.
pub struct AtOnce<'a> {
    pub(crate) lists: &'a mut AgedLists,
    /// The list of its group in which a unit stands: by class and repeated use.
    pub(crate) in_group: [[usize; 2]; CLASSES],
}

impl<'a> AtOnce<'a> {
    /// `list_in_group` says where a unit of a class stands that was used again or not.
    pub fn new(lists: &'a mut AgedLists, list_in_group: impl Fn(Class, bool) -> usize) -> AtOnce<'a> {
        let class = |number: usize| Class::new(number as u8).expect("five bits");
        let in_group =
            std::array::from_fn(|number| [false, true].map(|is_again| list_in_group(class(number), is_again)));
        AtOnce { lists, in_group }
    }
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
        let count = groups * per_group;
        let (lists, oldest_steps) = (vec![List::default(); count], vec![0; count]);
        let step = u64::from((units / STEPS).max(1));
        let occupied = vec![0; count.div_ceil(WORD_BITS)];
        AgedLists { lists, occupied, oldest_steps, per_group, taken: 0, now: 0, next_step_at: step, step }
    }

    fn stamp(&self) -> u32 {
        self.now as u32 % STAMPS
    }

    #[inline]
    fn set_occupied(&mut self, at: usize, is_occupied: bool) {
        let (word, bit) = (&mut self.occupied[at / WORD_BITS], 1 << (at % WORD_BITS));
        *word = if is_occupied { *word | bit } else { *word & !bit };
    }

    /// List `at` has another oldest unit, or none: it was stamped in step `least` or at most [`STAMPS`] - 1 steps
    /// later.
    #[inline]
    fn oldest_changed(&mut self, units: &Units, at: usize, least: u64) {
        let Some(oldest) = self.lists[at].oldest() else { return self.set_occupied(at, false) };
        let round = u64::from(STAMPS);
        let later = (u64::from(units.stamp(oldest)) + round - least % round) % round;
        self.oldest_steps[at] = least + later;
    }

    /// How many lists there are.
    pub fn count(&self) -> usize {
        self.lists.len()
    }

    /// All lists.
    pub(crate) fn all(&self) -> &[List] {
        &self.lists
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
    pub fn adopt(&mut self, units: &Units, lists: Vec<List>, taken: u64) {
        debug_assert!(self.taken == 0 && lists.len() == self.lists.len());
        (self.lists, self.taken) = (lists, taken);
        (self.now, self.next_step_at) = (taken / self.step, (taken / self.step + 1) * self.step);
        for at in 0..self.lists.len() {
            self.set_occupied(at, !self.lists[at].is_empty());
            self.oldest_changed(units, at, 0);
        }
    }

    /// A unit more was taken in: every unit is older by one.
    #[inline]
    pub fn grow_older(&mut self) {
        self.taken += 1;
        if self.taken == self.next_step_at {
            self.now += 1;
            self.next_step_at += self.step;
        }
    }

    /// How long ago `unit` was put in order, in units taken in.
    #[inline]
    pub fn age(&self, units: &Units, unit: UnitId) -> u64 {
        u64::from((self.stamp() + STAMPS - units.stamp(unit)) % STAMPS) * self.step
    }

    /// Puts `unit` at the new end of list `list` of its group.
    #[inline]
    pub fn push(&mut self, units: &mut Units, group: usize, list: usize, unit: UnitId) {
        units.set_stamp(unit, self.stamp());
        let at = group * self.per_group + list;
        self.lists[at].push(units, unit);
        if self.lists[at].len() == 1 {
            self.oldest_steps[at] = self.now;
            self.set_occupied(at, true);
        }
    }

    #[inline]
    fn remove(&mut self, units: &mut Units, group: usize, list: usize, unit: UnitId) {
        let at = group * self.per_group + list;
        let was_oldest = self.lists[at].oldest() == Some(unit);
        self.lists[at].remove(units, unit);
        if was_oldest {
            self.oldest_changed(units, at, self.oldest_steps[at]);
        }
    }

    /// Takes `unit` out of that list, which it must be in, and puts `successor`, if any, in its place.
    #[inline]
    pub fn take(&mut self, units: &mut Units, group: usize, list: usize, unit: UnitId, successor: Option<UnitId>) {
        match successor {
            Some(successor) => self.lists[group * self.per_group + list].replace(units, unit, successor),
            None => self.remove(units, group, list, unit),
        }
    }

    /// Takes out the unit that leaves: the oldest unit of a list with the highest age less `credit` of its list. Of
    /// equals it is the one of the last list. O(lists with units + lists / 64).
    #[inline]
    pub fn pop(
        &mut self,
        units: &mut Units,
        partition: &Partition,
        among: Among,
        credit: impl Fn(usize) -> i64,
    ) -> Option<UnitId> {
        let mut best: Option<(i64, usize)> = None;
        for (word, &occupied) in self.occupied.iter().enumerate() {
            let mut left = occupied;
            while left != 0 {
                let at = word * WORD_BITS + left.trailing_zeros() as usize;
                left &= left - 1;
                if among != Among::All && !partition.is_among(at / self.per_group, among) {
                    continue;
                }
                let age = (self.now - self.oldest_steps[at]) * self.step;
                let score = age as i64 - credit(at % self.per_group);
                if best.is_none_or(|(highest, _)| score >= highest) {
                    best = Some((score, at));
                }
            }
        }
        let at = best?.1;
        let unit = self.lists[at].pop(units);
        self.oldest_changed(units, at, self.oldest_steps[at]);
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::class::Scheme;

    /// Stamps have gone round twice, so that a unit that is sixteen sizes old looks as young as the other.
    #[test]
    fn the_oldest_of_a_list_may_grow_older_than_stamps_can_tell() {
        let (mut units, mut lists) = (Units::new(256), AgedLists::new(256, 1, 2));
        let partition = Partition::new(256, &Scheme::default(), &[]).unwrap();
        let [old, between, next, young] = [0, 1, 2, 3].map(UnitId);
        for (list, unit, later) in [(0, old, 128), (1, between, 128), (0, next, 15 * 256), (1, young, 0)] {
            lists.push(&mut units, 0, list, unit);
            (0..later).for_each(|_| lists.grow_older());
        }
        let mut pop = || lists.pop(&mut units, &partition, Among::All, |_| 0);
        assert_eq!([(); 5].map(|()| pop()), [Some(old), Some(between), Some(next), Some(young), None]);
    }
}
