//! Putting all units into their lists at once, at a start.
//!
//! Units that were in the cache come into the policy's order by age. To push each unit when its turn comes is a walk
//! through memory in no order at all. So it is done by *chains* instead: one for each age and each list of the policy.
//! One walk through the units, in the order in which they lie in memory, adds each to its chain. Then each list is its
//! chains, one behind the other. Several threads do that for a part of the units each.

use crate::aged_lists::{AtOnce, Stamper};
use crate::cache::Cache;
use crate::partition::{Among, Partition};
use crate::threads::on_threads;
use crate::units::{Held, List, POOLS_MAX, Part, Pool, UnitId};
use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;

/// How many of a part's units there are of each kind, before they are in a list.
struct Histogram {
    /// By rank of age.
    ranks: Vec<u32>,
    classes: [u32; CLASSES],
    pools: Vec<u32>,
}

/// A part's units in lists.
struct Chains {
    /// For each rank, all lists of the policy.
    in_order: Vec<List>,
    empty: List,
}

fn count(part: &Part<'_>, ranks: usize, is_held: impl Fn(u16) -> bool) -> Histogram {
    let mut histogram = Histogram { ranks: vec![0; ranks], classes: [0; CLASSES], pools: vec![0; POOLS_MAX] };
    for unit in part.units().map(UnitId) {
        let held = part.get(unit);
        if !is_held(held.mark) {
            continue;
        }
        histogram.ranks[held.stamp as usize] += 1;
        histogram.classes[usize::from(held.class.number())] += 1;
        histogram.pools[usize::from(held.pool.number())] += 1;
    }
    histogram
}

/// Where a part's units go: the lists of a policy.
struct Lists<'a> {
    partition: &'a Partition,
    in_group: &'a [[usize; 2]; CLASSES],
    per_group: usize,
    count: usize,
}

impl Lists<'_> {
    /// The list of a unit that holds this.
    #[inline]
    fn of(&self, held: &Held) -> usize {
        let in_group = self.in_group[usize::from(held.class.number())][usize::from(held.is_again)];
        self.partition.group(held.class, held.pool) * self.per_group + in_group
    }
}

fn chain(part: &mut Part<'_>, lists: &Lists<'_>, stampers: &mut [Stamper], is_held: impl Fn(u16) -> bool) -> Chains {
    let mut chains = Chains { in_order: vec![List::default(); lists.count * stampers.len()], empty: List::default() };
    for unit in part.units().map(UnitId) {
        let held = part.get(unit);
        if !is_held(held.mark) {
            part.push(&mut chains.empty, unit);
            continue;
        }
        let (rank, list) = (held.stamp as usize, lists.of(&held));
        part.set_stamp(unit, stampers[rank].stamp());
        part.push(&mut chains.in_order[rank * lists.count + list], unit);
    }
    chains
}

impl Cache {
    /// Puts all units, of which none is in a list, into one. Units with a mark of a block go into the policy's order.
    /// It is by the rank below `ranks` in their stamp (0 is the oldest), and among equals by number. The others go
    /// among the empty ones.
    pub(crate) fn list_all(&mut self, ranks: usize, is_held: impl Fn(u16) -> bool + Copy + Sync, threads: usize) {
        if self.policy.at_once().is_none() {
            self.list_one_by_one(ranks, is_held);
        } else {
            self.list_at_once(ranks, is_held, threads);
            self.expel_beyond_bounds();
        }
        self.refill();
    }

    /// The same for a policy with lists that cannot be filled at once: a chain for each rank is enough then.
    fn list_one_by_one(&mut self, ranks: usize, is_held: impl Fn(u16) -> bool) {
        let mut chains = vec![List::default(); ranks];
        for unit in (0..self.units.count()).map(UnitId) {
            let list = if is_held(self.units.mark(unit)) {
                &mut chains[self.units.stamp(unit) as usize]
            } else {
                &mut self.empty
            };
            list.push(&mut self.units, unit);
        }
        for mut chain in chains {
            while let Some(unit) = chain.pop(&mut self.units) {
                self.restore(unit);
            }
        }
    }

    fn list_at_once(&mut self, ranks: usize, is_held: impl Fn(u16) -> bool + Copy + Sync, threads: usize) {
        let each = (self.units.count() as usize).div_ceil(threads);
        let counts = on_threads(self.units.parts_mut(each), |part| count(&part, ranks, is_held));
        let AtOnce { lists, in_group } = self.policy.at_once().expect("it has such lists");
        // Where each part's units of a rank stand in the whole order.
        let mut before = 0;
        let mut stampers: Vec<Vec<Stamper>> = counts.iter().map(|_| Vec::with_capacity(ranks)).collect();
        for rank in 0..ranks {
            for (stampers, counts) in stampers.iter_mut().zip(&counts) {
                stampers.push(lists.stamper(before));
                before += u64::from(counts.ranks[rank]);
            }
        }
        let (in_group, partition) = (&in_group, &self.partition);
        let places = Lists { partition, in_group, per_group: lists.per_group(), count: lists.count() };
        let parts = self.units.parts_mut(each).zip(stampers);
        let parts = on_threads(parts, |(mut part, mut stampers)| chain(&mut part, &places, &mut stampers, is_held));
        let mut filled = vec![List::default(); lists.count()];
        for rank in 0..ranks {
            for chains in &parts {
                let chains = &chains.in_order[rank * filled.len()..][..filled.len()];
                for (list, chain) in filled.iter_mut().zip(chains) {
                    list.append(&mut self.units, *chain);
                }
            }
        }
        parts.iter().for_each(|chains| self.empty.append(&mut self.units, chains.empty));
        lists.adopt(&self.units, filled, before);
        for Histogram { classes, pools, .. } in &counts {
            self.partition.came_at_once(classes, pools);
        }
    }

    /// A class or pool beyond its bound gives up its units, the next to leave first.
    fn expel_beyond_bounds(&mut self) {
        for class in (0..CLASSES as u8).filter_map(Class::new) {
            while self.partition.is_beyond(class) && self.expel(Among::Class(class)) {}
        }
        for pool in (0..POOLS_MAX as u16).filter_map(Pool::new) {
            while self.partition.is_pool_beyond(pool) && self.expel(Among::Pool(pool)) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CacheConfig;
    use crate::policy::PolicyEntry;
    use crate::registry::policies;
    use plimsoll_core::class::{ClassEntry, Scheme};
    use proptest::prelude::*;

    const HELD: u16 = 1;
    const RANKS: u32 = 5;

    fn scheme(class_1_max: f64) -> Scheme {
        let entry = |number: u8| ClassEntry::new(Class::new(number).unwrap(), &format!("c{number}"), number % 7);
        let mut scheme = Scheme::default();
        (0..32).for_each(|number| scheme.set(entry(number)));
        scheme.set(ClassEntry { occupancy_max: class_1_max, ..entry(1) });
        scheme
    }

    /// A cache with units that hold this and are in no list, and what each holds.
    fn filled(config: &CacheConfig, policy: &PolicyEntry, units: &[Option<Held>]) -> Cache {
        let mut cache = Cache::without_lists(config, policy).unwrap();
        let mut part = cache.units.parts_mut(units.len()).next().unwrap();
        for (unit, held) in (0..).map(UnitId).zip(units) {
            held.inspect(|held| part.fill(unit, held));
        }
        cache
    }

    /// The order in which units leave: first the empty, the free and those that are to be cleaned, then the policy's
    /// order.
    fn drained(mut cache: Cache) -> Vec<(u32, u32, u64)> {
        let mut all = Vec::new();
        for list in [cache.empty, cache.free, cache.to_clean] {
            let mut list = list;
            while let Some(unit) = list.pop(&mut cache.units) {
                all.push((unit.0, u32::MAX, 0));
            }
        }
        while let Some(unit) = cache.policy.victim(&mut cache.units, &cache.partition, Among::All) {
            all.push((unit.0, cache.units.stamp(unit), cache.policy.age(&cache.units, unit)));
        }
        all
    }

    fn held() -> impl Strategy<Value = Option<Held>> {
        let fields = (0u8..32, 0u16..4, any::<(bool, bool)>(), 0..RANKS);
        prop::option::weighted(0.9, fields).prop_map(|fields| {
            let (class, pool, (is_dirty, is_again), stamp) = fields?;
            let (class, pool) = (Class::new(class).unwrap(), Pool::new(pool).unwrap());
            let held = Held { block: 7, class, pool, is_dirty, is_again, stamp, mark: HELD };
            Some(held)
        })
    }

    proptest! {
        /// Promise: store-fill.
        #[test]
        fn it_is_as_if_one_had_come_after_the_other(units in prop::collection::vec(held(), 1..500), threads in 1usize..5) {
            let config = CacheConfig::new(units.len() as u32, scheme(1.0));
            for policy in policies() {
                let mut slow = filled(&config, policy, &units);
                for rank in 0..RANKS {
                    for (unit, held) in (0..).map(UnitId).zip(&units) {
                        if held.is_some_and(|held| held.stamp == rank) {
                            slow.restore(unit);
                        }
                    }
                }
                let empty = (0..).map(UnitId).zip(&units).filter(|(_, held)| held.is_none());
                empty.for_each(|(unit, _)| slow.empty.push(&mut slow.units, unit));
                slow.refill();
                let mut fast = filled(&config, policy, &units);
                fast.list_all(RANKS as usize, |mark| mark == HELD, threads);
                for class in (0..32).filter_map(Class::new) {
                    prop_assert_eq!(fast.class_units(class), slow.class_units(class));
                }
                prop_assert_eq!(fast.is_syncer_awake(), slow.is_syncer_awake());
                prop_assert_eq!(drained(fast), drained(slow), "{}", policy.name);
            }
        }

        /// Promise: store-fill.
        #[test]
        fn a_class_beyond_its_bound_gives_up_its_oldest(units in prop::collection::vec(held(), 40..300), threads in 1usize..5) {
            let mut config = CacheConfig::new(units.len() as u32, scheme(0.01));
            let (pool, class) = (Pool::new(2).unwrap(), Class::new(1).unwrap());
            config.pools.push((pool, 0.1));
            for policy in policies() {
                let mut cache = filled(&config, policy, &units);
                cache.list_all(RANKS as usize, |mark| mark == HELD, threads);
                let bound = |part: f64| ((units.len() as f64 * part) as u32).max(1);
                prop_assert!(cache.class_units(class) <= bound(0.01) && cache.pool_units(pool) <= bound(0.1));
                let mut all: Vec<u32> = drained(cache).into_iter().map(|(unit, ..)| unit).collect();
                all.sort();
                prop_assert_eq!(all, (0..units.len() as u32).collect::<Vec<_>>());
            }
        }
    }
}
