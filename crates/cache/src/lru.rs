//! Plain LRU: the paper's baseline (section 4.4.1). Every block is taken in, and classes are ignored but for their
//! bounds.

use crate::aged_lists::{AgedLists, AtOnce};
use crate::partition::{Among, Partition};
use crate::policy::{Anatomy, Arrival, CachePolicy, PolicyConfig};
use crate::units::{UnitId, Units};
use plimsoll_core::Class;

/// The policy.
pub struct Lru {
    lists: AgedLists,
}

impl Lru {
    /// For the cache of `config`.
    pub fn new(config: &PolicyConfig<'_>) -> Lru {
        Lru { lists: AgedLists::new(config.cache.units, config.groups, 1) }
    }
}

fn group(units: &Units, partition: &Partition, unit: UnitId) -> usize {
    partition.group(units.class(unit), units.pool(unit))
}

impl CachePolicy for Lru {
    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival) {
        if arrival != Arrival::Returned {
            self.lists.grow_older();
        }
        self.lists.push(units, group(units, partition, unit), 0, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        self.left(units, partition, unit, None);
        units.set_class(unit, class);
        self.entered(units, partition, unit, Arrival::Returned);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        self.lists.pop(units, partition, among, |_| 0)
    }

    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>) {
        self.lists.take(units, group(units, partition, unit), 0, unit, successor);
    }

    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        self.lists.age(units, unit)
    }

    fn anatomy(&self) -> Anatomy<'_> {
        Anatomy { lists: Some(self.lists.all()), bytes: 0 }
    }

    fn at_once(&mut self) -> Option<AtOnce<'_>> {
        Some(AtOnce::new(&mut self.lists, |_, _| 0))
    }
}
