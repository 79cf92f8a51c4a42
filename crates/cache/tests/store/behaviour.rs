//! What the cache does when nothing goes wrong: it stays warm, knows classes again, and is a cache.

use crate::device::Device;
use crate::rig::{Rig, Setup, policy};
use plimsoll_cache::store::{Counters, RequestKind, Semantics};
use plimsoll_core::Class;

fn setup() -> Setup {
    Setup { units: 64, store_blocks: 60, ..Setup::small("credit", Semantics::WriteCache) }
}

/// The blocks in the cache, their classes, and which of them are dirty.
fn contents(rig: &Rig) -> Vec<(u64, Class, bool)> {
    let cache = rig.machine.cache();
    let cached = (0..rig.setup.store_blocks).filter_map(|block| Some((block, cache.find(block)?)));
    cached.map(|(block, unit)| (block, cache.describe(unit).class, cache.is_dirty(unit))).collect()
}

fn reopened(rig: &Rig, cache: Device, store: Device) -> Rig {
    Rig::new(rig.setup.clone(), cache, store, rig.versions.clone(), 77)
}

/// Promise: store-warm.
#[test]
fn a_shutdown_keeps_everything_that_was_in_the_cache() {
    let mut rig = Rig::fresh(setup(), 50);
    (0..600).for_each(|_| rig.step());
    rig.read_all();
    rig.machine.close();
    rig.settle();
    let next = reopened(&rig, rig.cache.after_power_failure(|_, _| 0), rig.store.after_power_failure(|_, _| 0));
    assert_eq!(contents(&rig), contents(&next));
    assert!(contents(&rig).len() > 30 && rig.machine.dirty_units() > 5, "{:?}", contents(&rig));
    assert_eq!(rig.machine.dirty_units(), next.machine.dirty_units());
}

/// Promise: store-warm.
#[test]
fn a_crash_keeps_everything_that_was_flushed_clean_units_too() {
    let mut rig = Rig::fresh(setup(), 51);
    rig.is_rough = false;
    (0..600).for_each(|_| rig.step());
    rig.read_all();
    // What reads brought is recorded when the store has been flushed; the second flush is for their records.
    for _ in 0..2 {
        rig.request(RequestKind::Flush, 0, u8::MAX);
        rig.settle();
    }
    let next = reopened(&rig, rig.cache.after_power_failure(|_, _| 0), rig.store.after_power_failure(|_, _| 0));
    let clean = |rig: &Rig| contents(rig).iter().filter(|(_, _, is_dirty)| !is_dirty).count();
    assert!(clean(&next) * 10 >= clean(&rig) * 9 && clean(&next) > 5, "{} of {}", clean(&next), clean(&rig));
    assert_eq!(rig.machine.dirty_units(), next.machine.dirty_units());
}

/// Also during a snapshot, when the journal has gone on since its beginning. Another snapshot is due then, and no
/// other event could begin it.
#[test]
fn a_shutdown_comes_to_its_end_whenever_it_begins() {
    for seed in 70..76 {
        let mut rig = Rig::fresh(setup(), seed);
        for step in 0..400 {
            rig.step();
            if step % 5 == 0 && rig.machine.counters().commits > 4 {
                let mut last = Rig::fresh(setup(), seed);
                (0..=step).for_each(|_| last.step());
                last.machine.close();
                last.settle();
                assert!(last.machine.is_closed(), "seed {seed}, step {step}");
            }
        }
    }
}

/// A program that dies leaves its writes in the device's volatile cache, where the next program reads them. A client
/// that was served such a block must not lose it to a power failure.
/// Promise: store-warm.
#[test]
fn what_is_found_after_a_kill_outlives_a_power_failure() {
    let mut compared = 0;
    for seed in 60..68 {
        let mut rig = Rig::fresh(Setup { store_blocks: 400, ..setup() }, seed);
        (0..150).for_each(|_| rig.step());
        let mut next = reopened(&rig, rig.cache.after_kill(), rig.store.after_kill());
        let mut last =
            reopened(&rig, next.cache.after_power_failure(|_, _| 0), next.store.after_power_failure(|_, _| 0));
        for (block, _, _) in contents(&next).into_iter().filter(|(_, _, is_dirty)| *is_dirty) {
            assert_eq!(next.read(block).unwrap(), last.read(block).unwrap(), "seed {seed}, block {block}");
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} blocks were compared");
}

/// The block is in the cache, clean, and is written again. If the new version came to the store before the journal knew
/// of it, a crash would bring the old one back, clean: it would be read until its unit is given up, and then the new
/// one.
/// Promise: cache-flush.
#[test]
fn a_unit_is_copied_to_the_store_only_when_its_record_is_durable() {
    let mut rig = Rig::fresh(setup(), 53);
    rig.request(RequestKind::Write, 3, u8::MAX);
    rig.settle();
    rig.machine.clean_all();
    rig.settle();
    rig.request(RequestKind::Flush, 0, u8::MAX);
    rig.settle();
    rig.request(RequestKind::Write, 3, u8::MAX);
    rig.settle();
    rig.machine.clean_all();
    let mut clean = 0;
    while rig.finish_one() {
        let store = rig.store.after_power_failure(|_, _| u8::MAX);
        let mut next = reopened(&rig, rig.cache.after_power_failure(|_, _| 0), store.clone());
        if let [(3, _, false)] = contents(&next)[..] {
            clean += 1;
            assert!(
                next.read(3).unwrap()[..] == store.get(3)[..],
                "the cache has it clean, and the store another version"
            );
        }
    }
    assert!(clean > 1, "it was clean at {clean} points only");
}

/// Important blocks are still kept when the cache fills up after a crash, or after a shutdown: their class came back
/// with them, by the journal or by the map.
/// Promise: store-warm.
#[test]
fn classes_survive_a_crash_and_decide_which_blocks_stay() {
    for is_closed in [false, true] {
        let setup = Setup { units: 30, store_blocks: 400, ..Setup::small("selective", Semantics::Strict) };
        let mut rig = Rig::fresh(setup, 52);
        // Class 1 has the highest priority, class 0 a low one.
        let important: Vec<u64> = (0..5).map(|at| at * 4 + 1).collect();
        for &block in &important {
            assert!(rig.request(RequestKind::Write, block, u8::MAX));
            rig.settle();
        }
        if is_closed {
            rig.machine.close();
            rig.settle();
        }
        assert_eq!(rig.machine.counters().snapshots > 0, is_closed);
        let mut next = reopened(&rig, rig.cache.after_power_failure(|_, _| 0), rig.store.after_power_failure(|_, _| 0));
        for block in (100..400).filter(|block| block % 4 == 0) {
            next.request(RequestKind::Write, block, u8::MAX);
            next.settle();
        }
        assert!(important.iter().all(|&block| next.machine.cache().find(block).is_some()), "{:?}", contents(&next));
        assert!((100..400).any(|block| next.machine.cache().find(block).is_none()));
    }
}

/// Promise: store-crash.
#[test]
fn strict_writes_are_durable_when_they_are_acknowledged() {
    let mut rig = Rig::fresh(Setup::small("lru", Semantics::Strict), 53);
    rig.is_rough = false;
    for step in 0..300 {
        rig.step();
        if step % 10 == 0 {
            let mut next =
                reopened(&rig, rig.cache.after_power_failure(|_, _| 0), rig.store.after_power_failure(|_, _| 0));
            for (block, content) in next.read_all().into_iter().enumerate() {
                rig.versions.check(block as u64, &content.unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn another_policy_while_it_works_changes_no_data() {
    let mut rig = Rig::fresh(setup(), 54);
    for round in 0..16 {
        (0..60).for_each(|_| rig.step());
        let name = ["lru", "selective", "credit", "s3_fifo"][round % 4];
        let (config, before) = (rig.setup.config(), contents(&rig));
        rig.machine.set_policy(&config, policy(name)).unwrap();
        assert_eq!(contents(&rig), before);
    }
    for (block, content) in rig.read_all().into_iter().enumerate() {
        rig.versions.check_newest(block as u64, u8::MAX, &content.unwrap()).unwrap();
    }
}

/// Everything is counted: each read and write is a hit, a miss, taken in or past the cache.
#[test]
fn a_long_run_uses_every_way_of_a_request_and_counts_it() {
    let setup = setup();
    let mut rig = Rig::fresh(Setup { units: 24, ..setup }, 55);
    for _ in 0..6000 {
        rig.step();
    }
    for (block, content) in rig.read_all().into_iter().enumerate() {
        rig.versions.check_newest(block as u64, u8::MAX, &content.unwrap()).unwrap();
    }
    let Counters {
        read_hits, read_misses, write_hits, writes_taken, writes_around, cleaned, commits, snapshots, ..
    } = *rig.machine.counters();
    for count in [read_hits, read_misses, write_hits, writes_taken, writes_around, cleaned, commits, snapshots] {
        assert!(count > 10, "{:?}", rig.machine.counters());
    }
    assert_eq!((rig.machine.counters().damaged_clean, rig.machine.counters().damaged_dirty), (0, 0));
    rig.machine.clean_all();
    rig.settle();
    assert_eq!(rig.machine.dirty_units(), 0);
}

/// Blocks of class 3 come in while the syncer sleeps. The policy hears of those, too, that do not come in: otherwise a
/// class that was taken in for nothing once would stay out for ever.
/// Promise: cache-unused-class.
#[test]
fn a_class_that_leaves_unused_is_not_taken_in_any_more_until_it_is_used() {
    let mut rig = Rig::fresh(Setup { store_blocks: 8000, ..setup() }, 52);
    let mut fresh = (0..2000).map(|number| number * 4 + 3);
    let mut read = |block| {
        rig.request(RequestKind::Read, block, u8::MAX);
        rig.settle();
        rig.machine.cache().find(block).is_some()
    };
    assert!(read(fresh.next().unwrap()));
    for _ in 0..12 {
        (0..40).for_each(|number| _ = read(number * 4 + 1));
        fresh.by_ref().take(100).for_each(|block| _ = read(block));
    }
    assert!(!read(fresh.next().unwrap()));
    let used: Vec<_> = fresh.by_ref().take(10).collect();
    (0..20).for_each(|_| used.iter().for_each(|&block| _ = read(block)));
    assert!(read(fresh.next().unwrap()));
}
