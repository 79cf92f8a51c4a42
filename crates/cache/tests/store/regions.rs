//! Regions of either device that cannot be written: only a request for such a region hears of it, and every other
//! request goes on.

use crate::rig::{Random, Rig, Setup};
use crate::search::{Bad, Faults};
use plimsoll_cache::store::{Action, Failure, NotCopied, RequestKind, Semantics, Target};
use std::ops::Range;

fn rig(policy: &'static str, semantics: Semantics) -> Rig {
    Rig::fresh(Setup { units: 120, store_blocks: 400, journal_blocks: 32, ..Setup::small(policy, semantics) }, 21)
}

fn cannot_write(target: Target, blocks: Range<u64>) -> Faults {
    Faults { bad: vec![Bad { target, action: Action::Write, blocks }], ..Faults::default() }
}

/// Writes each of these blocks, one after the other.
fn write(rig: &mut Rig, blocks: Range<u64>) {
    for block in blocks {
        while !rig.request(RequestKind::Write, block, u8::MAX) {
            let at = rig.doing.len() - 1;
            rig.end(at);
            rig.take();
        }
        rig.settle();
        rig.machine.audit().unwrap();
    }
}

fn clean_all(rig: &mut Rig) -> (u32, NotCopied) {
    rig.machine.clean_all();
    rig.settle();
    rig.machine.audit().unwrap();
    (rig.machine.dirty_units(), rig.machine.not_copied())
}

fn assert_newest(rig: &mut Rig) {
    for (block, content) in (0..).zip(rig.read_all()) {
        rig.versions.check_newest(block, u8::MAX, &content.unwrap()).unwrap();
    }
}

/// Everything is copied though the store does not take two of its regions. Outcome: all others are there, it is said
/// that it was not everything and what is missing, and when the store takes them they are copied, too.
///
/// Planted breaks that were seen red: the first block that is refused ends the pass; the pass counts.
/// Promise: store-bad-region.
#[test]
fn copying_everything_skips_the_bad_regions_and_names_them() {
    let mut rig = rig("lru", Semantics::WriteCache);
    write(&mut rig, 0..80);
    rig.faults = cannot_write(Target::Store, 20..23);
    rig.faults.bad.extend(cannot_write(Target::Store, 40..41).bad);
    for pass in 0..2 {
        let not_copied = NotCopied { blocks: 4, ranges: vec![20..23, 40..41] };
        assert_eq!(clean_all(&mut rig), (4, not_copied.clone()));
        assert_eq!(rig.machine.take_newly_refused(), (pass == 0).then_some(not_copied), "the log has it once");
        assert!(!rig.machine.is_cleaning_all() && rig.machine.clean_passes() == 0);
    }
    rig.faults = Faults::default();
    assert_eq!(clean_all(&mut rig), (0, NotCopied::default()));
    assert!(rig.machine.clean_passes() > 0);
    assert_eq!(rig.failures, []);
}

/// New blocks come in and others leave for them, beside a bad region of the store with dirty blocks. Outcome: no
/// request hears of it, all that was written is read, and the region's blocks are copied when the store takes them
/// again, though no request comes.
///
/// Planted breaks that were seen red: the syncer stops at a block that is refused, and a request that waits for a unit
/// is told that the store failed; what is aside is not tried again.
/// Promise: store-bad-region.
#[test]
fn a_request_for_a_unit_goes_on_beside_a_bad_region_of_the_store() {
    for (policy, semantics) in [
        ("lru", Semantics::Strict),
        ("selective", Semantics::WriteCache),
        ("credit", Semantics::Strict),
        ("s3_fifo", Semantics::WriteCache),
    ] {
        let mut rig = rig(policy, semantics);
        write(&mut rig, 0..30);
        rig.faults = cannot_write(Target::Store, 4..16);
        let mut random = Random(5);
        for _ in 0..1500 {
            // Blocks of class 2 go past the cache under two of the policies: those of the region would be told.
            let block = 16 + random.below(380);
            if rig.request(RequestKind::Write, block, u8::MAX) {
                for _ in 0..random.below(4) {
                    rig.finish_one();
                }
            } else {
                rig.finish_one();
            }
            rig.take();
        }
        rig.settle();
        assert_eq!(rig.failures, [], "{policy}");
        assert!(policy != "lru" || rig.machine.counters().writes_around == 0, "{:?}", rig.machine.counters());
        assert_newest(&mut rig);
        let held = (4..16).filter(|&block| rig.machine.cache().find(block).is_some()).count();
        assert!(held >= 9, "{policy}: {held}");
        rig.faults = Faults::default();
        for block in 0..2000 {
            write(&mut rig, 16 + block % 380..17 + block % 380);
        }
        let dirty = (4..16).filter(|&block| {
            let cache = rig.machine.cache();
            cache.find(block).is_some_and(|unit| cache.is_aside(unit))
        });
        assert_eq!(dirty.count(), 0, "{policy}");
        assert_eq!(clean_all(&mut rig), (0, NotCopied::default()));
    }
}

/// Some units of the cache's device cannot be written. Outcome: no write hears of it, of a new block or of a cached
/// one, and after a power failure everything is there that was flushed.
///
/// Planted breaks that were seen red: a unit that cannot be written is given away again; the write fails.
/// Promise: store-bad-unit.
#[test]
fn a_unit_that_cannot_be_written_is_gone_past() {
    for semantics in [Semantics::Strict, Semantics::WriteCache] {
        let mut rig = rig("lru", semantics);
        write(&mut rig, 0..60);
        let first = rig.setup.first_unit();
        rig.faults = cannot_write(Target::Cache, first + 50..first + 80);
        write(&mut rig, 0..200);
        write(&mut rig, 20..120);
        assert_eq!(rig.failures, []);
        assert!(rig.machine.bad_units() >= 10, "{}", rig.machine.bad_units());
        assert_newest(&mut rig);
        rig.request(RequestKind::Flush, 0, u8::MAX);
        rig.settle();
        let [cache, store] = [&rig.cache, &rig.store].map(|device| device.after_power_failure(|_, _| 0));
        let mut next = Rig::new(rig.setup.clone(), cache, store, rig.versions.clone(), 1);
        assert_newest(&mut next);
        // It is tried again.
        assert_eq!(next.machine.bad_units(), 0);
    }
}

/// No unit can be written any more, and the journal can. Outcome: writes go past the cache, also those of a part of a
/// block and those of blocks of which the cache has the only version. No write hears of it. In a crash at any moment
/// nothing is lost that was promised.
///
/// Planted breaks that were seen red: what is dirty is forgotten before the store has something newer; only a part of
/// a block is written there.
/// Promise: store-bad-unit.
#[test]
fn where_no_unit_can_be_written_everything_goes_past_the_cache() {
    for semantics in [Semantics::Strict, Semantics::WriteCache] {
        let mut rig = rig("lru", semantics);
        write(&mut rig, 0..60);
        let first = rig.setup.first_unit();
        rig.faults = cannot_write(Target::Cache, first..first + 120);
        let (mut random, mut points) = (Random(7), crate::crash::Points::default());
        for step in 0..800 {
            let sectors = if random.below(3) == 0 { 0b0001_1000 } else { u8::MAX };
            if random.below(3) == 0 {
                rig.request(RequestKind::Write, random.below(80), sectors);
            } else {
                rig.finish_one();
            }
            rig.take();
            rig.machine.audit().unwrap();
            if step % 8 == 0 {
                crate::crash::crash_plainly(&rig, &mut random, &mut points).unwrap();
            }
        }
        rig.settle();
        assert_eq!(rig.failures, [], "{semantics:?}");
        assert!(rig.machine.counters().writes_around > 50 && !rig.machine.has_failed());
        assert_newest(&mut rig);
    }
}

/// The store takes nothing any more, and so it is not a region. Outcome: a write that waits for a unit goes past the
/// cache, where it is told; what is in the cache goes on.
///
/// Planted break that was seen red: a write that waits for a unit waits on.
/// Promise: store-bad-region.
#[test]
fn a_store_that_takes_nothing_fails_writes_past_the_cache() {
    let mut rig = rig("lru", Semantics::WriteCache);
    write(&mut rig, 0..100);
    rig.faults = cannot_write(Target::Store, 0..400);
    let mut random = Random(3);
    for _ in 0..3000 {
        rig.request(RequestKind::Write, 100 + random.below(300), u8::MAX);
        for _ in 0..2 {
            rig.finish_one();
        }
        rig.take();
    }
    rig.settle();
    assert_eq!(rig.under_way(), 0);
    assert!(rig.failures.iter().all(|failure| *failure == Failure::Store) && rig.failures.len() > 100);
    rig.faults = Faults::default();
    assert_eq!(clean_all(&mut rig).0, 0);
}
