//! What a policy hears of the requests to a cache at work: each of them once, whatever its outcome.

use crate::rig::{Random, Rig, Setup, policy};
use plimsoll_cache::aged_lists::AtOnce;
use plimsoll_cache::partition::{Among, Partition};
use plimsoll_cache::policy::{Anatomy, Arrival, BlockEvent, CachePolicy, PolicyEntry};
use plimsoll_cache::store::{RequestKind, Semantics};
use plimsoll_cache::units::Units;
use plimsoll_cache::{Access, UnitId};
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
    fn heard(&mut self, event: &BlockEvent<'_>) {
        OBSERVED.fetch_add(u64::from(matches!(event, BlockEvent::Asked { .. })), Ordering::Relaxed);
    }

    fn admission(&self, access: &Access) -> Admission {
        if access.class.number() == 3 { Admission::Never } else { self.0.admission(access) }
    }

    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival) {
        self.0.entered(units, partition, unit, arrival);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        self.0.accessed(units, partition, unit, class);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        self.0.victim(units, partition, among)
    }

    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>) {
        self.0.left(units, partition, unit, successor);
    }

    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        self.0.age(units, unit)
    }

    fn anatomy(&self) -> Anatomy<'_> {
        self.0.anatomy()
    }

    fn at_once(&mut self) -> Option<AtOnce<'_>> {
        self.0.at_once()
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
