//! Age against credit: between plain LRU, which knows nothing of its units, and strict priorities, which never forget one.
//!
//! **The intuition.** Under LRU a unit has one life: as long as the cache takes to be filled once. A block that was used again, and
//! a block of an important class, deserve a longer one, but not an endless one. So each has a *credit*, in units taken in, by
//! which it may grow older than the others before it leaves (the idea of GreedyDual: Young, *Algorithmica* 11, 1994).
//!
//! **The rule.** The unit leaves with the highest age less credit. A priority higher is worth a tenth of the cache's size. What
//! having been used again is worth is learned, as in ARC (Megiddo and Modha, FAST 2003), from those who left a short while ago:
//! somebody who had been used once and comes back soon was sent away too early, and the credit shrinks; somebody who had been used
//! again and comes back soon needed a longer one, and it grows.
//!
//! **The complication.** A read ahead of a sequential reader, or a program's second look, is no second use: used again is who is
//! used at an age of a 32nd of the cache's size at least, and until then he keeps his place. Who comes back from among the ghosts
//! counts as used again.
//!
//! The ghosts remember a tenth of the cache's size and no more, so that they speak of what a *little* longer life would have
//! changed, and each changes the credit by less than a unit. Longer memories and larger steps have more hits on most traces;
//! where a loop just fits into the cache they lost up to 9 % against LRU, these 0.6 % (`docs/cache.md`).

use crate::aged_lists::AgedLists;
use crate::cache::Access;
use crate::ghosts::Ghosts;
use crate::partition::{Among, Partition};
use crate::policy::{CachePolicy, PolicyConfig};
use crate::selective::ClassRules;
use crate::units::{UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, PRIORITIES};

/// What a priority is worth, in parts of the cache's size: chosen on `hplajw`, from 0.02, 0.05 and 0.1.
const PRIORITY_PARTS: i64 = 10;
/// The age at which a use is a second one, in parts of the cache's size: chosen on the public traces, from 0, 0.03, 0.05 and 0.1.
const AGAIN_PARTS: u64 = 32;
/// Ghosts of each kind, in parts of the cache's size: chosen from 0.1, 0.2, 0.25, 0.5 and 1.
const GHOST_PARTS: u32 = 10;
/// Halves of a unit by which one ghost changes the credit of repeated use: chosen from half a unit, 1, 2, 4, 8, 16 and 32.
const LEARNED_HALVES: i64 = 1;
/// What repeated use may be worth at the most, in sizes of the cache.
const AGAIN_SIZES_MAX: i64 = 3;
/// Lists of used once and used again.
const SEGMENTS: usize = 2;

/// The policy.
pub struct Credit {
    lists: AgedLists,
    rules: ClassRules,
    /// Of those used once, and of those used again.
    ghosts: [Ghosts; SEGMENTS],
    units: i64,
    /// What repeated use is worth, in halves of a unit.
    again_halves: i64,
}

impl Credit {
    /// For the cache of `config`.
    pub fn new(config: &PolicyConfig<'_>) -> Credit {
        let ghosts = || Ghosts::new(config.units / GHOST_PARTS, config.seed);
        Credit {
            lists: AgedLists::new(config.units, config.groups, usize::from(PRIORITIES) * SEGMENTS),
            rules: ClassRules::new(config.scheme),
            ghosts: [ghosts(), ghosts()],
            units: i64::from(config.units),
            again_halves: 0,
        }
    }

    fn place(&self, units: &Units, partition: &Partition, unit: UnitId) -> (usize, usize) {
        let class = units.class(unit);
        let list = self.list_in_group(class, units.is_again(unit));
        (partition.group(class, units.pool(unit)), list)
    }

    fn push(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        let (group, list) = self.place(units, partition, unit);
        self.lists.push(units, group, list, unit);
    }

    /// Somebody would not have had to leave.
    fn learn(&mut self, was_again: bool) {
        let change = if was_again { LEARNED_HALVES } else { -LEARNED_HALVES };
        self.again_halves = (self.again_halves + change).clamp(0, AGAIN_SIZES_MAX * self.units * 2);
    }
}

impl CachePolicy for Credit {
    fn admission(&self, access: &Access) -> Admission {
        self.rules.admission(access)
    }

    fn inserted(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.lists.grow_older();
        let block = units.block(unit);
        let came_back = [false, true].into_iter().find(|&was_again| self.ghosts[usize::from(was_again)].take(block));
        if let Some(was_again) = came_back {
            self.learn(was_again);
        }
        units.set_again(unit, came_back.is_some());
        self.push(units, partition, unit);
    }

    fn returned(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.learn(units.is_again(unit));
        units.set_again(unit, true);
        self.push(units, partition, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        let is_second = units.is_again(unit) || self.lists.age(units, unit) >= self.units as u64 / AGAIN_PARTS;
        if !is_second && units.class(unit) == class {
            return;
        }
        self.removed(units, partition, unit);
        units.set_class(unit, class);
        units.set_again(unit, is_second);
        self.push(units, partition, unit);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        let (again, size) = (self.again_halves / 2, self.units);
        self.lists.pop(units, partition, among, |list| {
            let higher = i64::from(PRIORITIES) - 1 - (list / SEGMENTS) as i64;
            higher * size / PRIORITY_PARTS + if list % SEGMENTS == 1 { again } else { 0 }
        })
    }

    fn removed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        let (group, list) = self.place(units, partition, unit);
        self.lists.remove(units, group, list, unit);
    }

    fn list_in_group(&self, class: Class, is_again: bool) -> usize {
        self.rules.priority(class) * SEGMENTS + usize::from(is_again)
    }

    fn lists(&self) -> &AgedLists {
        &self.lists
    }

    fn lists_mut(&mut self) -> &mut AgedLists {
        &mut self.lists
    }

    fn replaced(&mut self, units: &mut Units, partition: &Partition, from: UnitId, to: UnitId) {
        let (group, list) = self.place(units, partition, from);
        self.lists.replace(units, group, list, from, to);
    }

    fn restored(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.lists.grow_older();
        self.push(units, partition, unit);
    }

    fn forgotten(&mut self, units: &Units, unit: UnitId) {
        self.ghosts[usize::from(units.is_again(unit))].push(units.block(unit));
    }

    fn bytes(&self) -> usize {
        self.ghosts.iter().map(Ghosts::bytes).sum()
    }
}
