//! Plain LRU: the paper's baseline (section 4.4.1). Every block is taken in, and classes are ignored but for their
//! bounds.

use crate::access::Access;
use crate::aged_lists::AgedLists;
use crate::partition::{Among, Partition};
use crate::policy::{CachePolicy, PolicyConfig};
use crate::units::{UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;

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
    fn admission(&self, _access: &Access) -> Admission {
        Admission::Always
    }

    fn inserted(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.lists.grow_older();
        self.returned(units, partition, unit);
    }

    fn returned(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.lists.push(units, group(units, partition, unit), 0, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        self.removed(units, partition, unit);
        units.set_class(unit, class);
        self.returned(units, partition, unit);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        self.lists.pop(units, partition, among, |_| 0)
    }

    fn removed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.lists.remove(units, group(units, partition, unit), 0, unit);
    }

    fn list_in_group(&self, _class: Class, _is_again: bool) -> usize {
        0
    }

    fn lists(&self) -> &AgedLists {
        &self.lists
    }

    fn lists_mut(&mut self) -> &mut AgedLists {
        &mut self.lists
    }

    fn replaced(&mut self, units: &mut Units, partition: &Partition, from: UnitId, to: UnitId) {
        self.lists.replace(units, group(units, partition, from), 0, from, to);
    }
}
