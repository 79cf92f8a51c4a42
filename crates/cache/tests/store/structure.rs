//! A policy may be any structure: one with trees of its own, and without a list through the units.

use crate::crash::{Points, crash_here};
use crate::rig::{Random, Rig, Setup};
use plimsoll_cache::UnitId;
use plimsoll_cache::partition::{Among, Partition};
use plimsoll_cache::policy::{Arrival, CachePolicy, PolicyEntry};
use plimsoll_cache::store::{CacheStore, Semantics};
use plimsoll_cache::units::Units;
use plimsoll_core::Class;
use std::collections::{BTreeMap, BTreeSet};

/// The least used unit leaves first, and of equals the one that came first.
pub static LEAST_USED: PolicyEntry =
    PolicyEntry { name: "least-used", summary: "for tests", build: |_| Box::<LeastUsed>::default() };

/// The policies of tests.
pub static FOR_TESTS: [&PolicyEntry; 2] = [&crate::observed::COUNTING, &LEAST_USED];

/// What is known of a unit: uses and the number of its arrival.
type Rank = (u32, u64);

#[derive(Default)]
struct LeastUsed {
    ranks: BTreeMap<UnitId, Rank>,
    order: BTreeSet<(Rank, UnitId)>,
    arrivals: u64,
}

impl LeastUsed {
    fn put(&mut self, unit: UnitId, rank: Rank) {
        assert_eq!(self.ranks.insert(unit, rank), None);
        self.order.insert((rank, unit));
    }

    fn take(&mut self, unit: UnitId) -> Rank {
        let rank = self.ranks.remove(&unit).expect("it is in the order");
        self.order.remove(&(rank, unit));
        rank
    }
}

impl CachePolicy for LeastUsed {
    fn entered(&mut self, _: &mut Units, _: &Partition, unit: UnitId, _: Arrival) {
        self.arrivals += 1;
        self.put(unit, (0, self.arrivals));
    }

    fn accessed(&mut self, units: &mut Units, _: &Partition, unit: UnitId, class: Class) {
        let (uses, arrival) = self.take(unit);
        units.set_class(unit, class);
        self.put(unit, (uses + 1, arrival));
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        let is_among = |unit| partition.is_among(partition.group(units.class(unit), units.pool(unit)), among);
        let unit = self.order.iter().map(|&(_, unit)| unit).find(|&unit| is_among(unit))?;
        self.take(unit);
        Some(unit)
    }

    fn left(&mut self, _: &mut Units, _: &Partition, unit: UnitId, successor: Option<UnitId>) {
        let rank = self.take(unit);
        successor.into_iter().for_each(|successor| self.put(successor, rank));
    }

    fn age(&self, _: &Units, unit: UnitId) -> u64 {
        // What has left the order is older than what has not.
        self.ranks.get(&unit).map_or(u64::MAX, |rank| self.arrivals - rank.1)
    }
}

/// Crashes at every step, with bounds and without, and a start after each: the cache is found, and it is whole.
///
/// Planted breaks, each red: units that a start restores one by one are in no order; an audit takes for lost what is in
/// no list.
#[test]
fn a_policy_without_lists_works_and_is_restored() {
    let mut points = Points::default();
    for has_bounds in [false, true] {
        let setup = Setup { has_bounds, ..Setup::small("least-used", Semantics::WriteCache) };
        let (mut rig, mut random) = (Rig::fresh(setup, 21), Random(21));
        for step in 0..24 {
            rig.step();
            rig.machine.audit().unwrap_or_else(|error| panic!("step {step}: {error}"));
            crash_here(&rig, &mut random, &mut points).unwrap_or_else(|error| panic!("step {step}: {error}"));
        }
        rig.settle();
        rig.machine.close();
        rig.settle();
        let mut cache = rig.cache.clone();
        let found = rig.setup.open(&mut cache).unwrap();
        let blocks = |store: &CacheStore| -> Vec<u64> {
            (0..rig.setup.store_blocks).filter(|&block| store.cache().find(block).is_some()).collect()
        };
        assert_eq!((blocks(&found), found.dirty_units()), (blocks(&rig.machine), rig.machine.dirty_units()));
        found.audit().unwrap();
    }
}
