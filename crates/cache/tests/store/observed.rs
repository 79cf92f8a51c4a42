//! What a policy hears of the requests to a cache at work: each of them once, whatever its outcome.

use crate::rig::{Random, Rig, Setup, policy};
use plimsoll_cache::aged_lists::AgedLists;
use plimsoll_cache::partition::{Among, Partition};
use plimsoll_cache::store::{RequestKind, Semantics};
use plimsoll_cache::units::Units;
use plimsoll_cache::{Access, CachePolicy, PolicyEntry, UnitId};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;
use std::sync::atomic::{AtomicU64, Ordering};

/// LRU that counts what it hears of, and does not want blocks of class 3.
pub static COUNTING: PolicyEntry = PolicyEntry {
    name: "counting",
    summary: "for tests",
    build: |config| Box::new(Counting((policy("lru").build)(config))),
};

static OBSERVED: AtomicU64 = AtomicU64::new(0);

struct Counting(Box<dyn CachePolicy>);

impl CachePolicy for Counting {
    fn observed(&mut self, _: &Access, _: bool) {
        OBSERVED.fetch_add(1, Ordering::Relaxed);
    }

    fn admission(&self, access: &Access) -> Admission {
        if access.class.number() == 3 { Admission::Never } else { self.0.admission(access) }
    }

    fn inserted(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.0.inserted(units, partition, unit);
    }

    fn returned(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.0.returned(units, partition, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        self.0.accessed(units, partition, unit, class);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        self.0.victim(units, partition, among)
    }

    fn removed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.0.removed(units, partition, unit);
    }

    fn replaced(&mut self, units: &mut Units, partition: &Partition, from: UnitId, to: UnitId) {
        self.0.replaced(units, partition, from, to);
    }

    fn list_in_group(&self, class: Class, is_again: bool) -> usize {
        self.0.list_in_group(class, is_again)
    }

    fn lists(&self) -> &AgedLists {
        self.0.lists()
    }

    fn lists_mut(&mut self) -> &mut AgedLists {
        self.0.lists_mut()
    }
}

/// Hits, misses, what is not wanted, what finds no unit, and what waits for one; and a store that fails, so that writes
/// go past the cache.
///
/// Planted breaks that were seen red: it does not hear of reads; nor of writes; twice of what comes in.
/// Promise: store-policy-hears.
#[test]
fn a_policy_hears_once_of_each_request() {
    let setup = Setup { units: 60, store_blocks: 400, ..Setup::small("counting", Semantics::WriteCache) };
    let (mut rig, mut random, mut asked) = (Rig::fresh(setup, 13), Random(13), 0);
    (rig.timing.fast, rig.timing.slow) = (1, 100);
    for round in 0..6000 {
        rig.store_fails_one_in = if round % 1000 < 800 { 0 } else { 2 };
        let blocks = if random.below(3) == 0 { 20 } else { 400 };
        let block = random.below(blocks);
        let kind = if random.below(3) == 0 { RequestKind::Read } else { RequestKind::Write };
        while !rig.request(kind, block, u8::MAX) {
            assert!(rig.end_next());
        }
        asked += 1;
    }
    rig.settle();
    let counters = *rig.machine.counters();
    let hits = [counters.read_hits, counters.write_hits];
    let misses = [counters.read_misses, counters.writes_taken, counters.writes_around];
    assert!(hits.iter().chain(&misses).all(|&count| count > 100), "each way is gone: {counters:?}");
    assert_eq!(OBSERVED.load(Ordering::Relaxed), asked);
}
