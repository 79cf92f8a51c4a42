//! Selective allocation and selective eviction over LRU (Differentiated Storage Services, sections 4.4.3 and 4.4.4).
//!
//! A list for each priority: all units of a lower priority leave before the first of a higher one, each list in LRU
//! order. Which classes come in, and when, is in the scheme of classes.
//!
//! A block of a high priority stays until every block of a lower one is gone, used or not. Where classes tell little
//! about what will be used (the trace `hplajw`), that costs hits; [`credit`](crate::credit) is the answer to it.

use crate::access::Access;
use crate::aged_lists::{AgedLists, AtOnce};
use crate::partition::{Among, Partition};
use crate::policy::{Anatomy, Arrival, CachePolicy, PolicyConfig};
use crate::units::{UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, CLASSES, PRIORITIES, Scheme};

/// What a priority is worth: more than any age.
const CREDIT_PER_PRIORITY: i64 = 1 << 40;

/// What a scheme says of each class, quick to find.
#[derive(Clone, Copy, Debug)]
pub struct ClassRules {
    rules: [(u8, Admission, Admission); CLASSES],
}

impl ClassRules {
    /// The rules of `scheme`.
    pub fn new(scheme: &Scheme) -> ClassRules {
        let rule = |number: usize| {
            let class = Class::new(number as u8).expect("five bits");
            let entry = scheme.deciding(class);
            let admission = entry.map_or_else(Default::default, |entry| (entry.reads, entry.writes));
            (scheme.priority(class), admission.0, admission.1)
        };
        ClassRules { rules: std::array::from_fn(rule) }
    }

    /// The priority of `class`.
    #[inline]
    pub fn priority(&self, class: Class) -> usize {
        usize::from(self.rules[usize::from(class.number())].0)
    }

    /// Whether all classes have the same.
    pub fn has_one_priority(&self) -> bool {
        self.rules.iter().all(|rule| rule.0 == self.rules[0].0)
    }

    /// Whether what is accessed may come in.
    pub fn admission(&self, access: &Access) -> Admission {
        let (_, reads, writes) = self.rules[usize::from(access.class.number())];
        if access.is_write { writes } else { reads }
    }
}

/// The policy.
pub struct Selective {
    lists: AgedLists,
    rules: ClassRules,
}

impl Selective {
    /// For the cache of `config`.
    pub fn new(config: &PolicyConfig<'_>) -> Selective {
        let lists = AgedLists::new(config.cache.units, config.groups, usize::from(PRIORITIES));
        Selective { lists, rules: ClassRules::new(&config.cache.scheme) }
    }

    fn place(&self, units: &Units, partition: &Partition, unit: UnitId) -> (usize, usize) {
        let class = units.class(unit);
        (partition.group(class, units.pool(unit)), self.rules.priority(class))
    }
}

impl CachePolicy for Selective {
    fn admission(&self, access: &Access) -> Admission {
        self.rules.admission(access)
    }

    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival) {
        if arrival != Arrival::Returned {
            self.lists.grow_older();
        }
        let (group, priority) = self.place(units, partition, unit);
        self.lists.push(units, group, priority, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        self.left(units, partition, unit, None);
        units.set_class(unit, class);
        self.entered(units, partition, unit, Arrival::Returned);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        self.lists.pop(units, partition, among, |priority| -(priority as i64) * CREDIT_PER_PRIORITY)
    }

    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>) {
        let (group, priority) = self.place(units, partition, unit);
        self.lists.take(units, group, priority, unit, successor);
    }

    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        self.lists.age(units, unit)
    }

    fn anatomy(&self) -> Anatomy<'_> {
        Anatomy { lists: Some(self.lists.all()), bytes: 0 }
    }

    fn at_once(&mut self) -> Option<AtOnce<'_>> {
        let rules = &self.rules;
        Some(AtOnce::new(&mut self.lists, |class, _| rules.priority(class)))
    }
}
