//! Devices that fail: at each write of each management operation in turn, and the store now and then.

use crate::crash::{Points, crash_plainly};
use crate::device::Device;
use crate::rig::{Random, Rig, Setup, policy};
use crate::versions::Versions;
use plimsoll_cache::store::{
    Failure, Identity, Layout, RequestKind, Semantics, Target, format, give_up, move_to_store, open, probe,
};

/// Runs on a store that loses something: with these each of the planted breaks is found.
const LOSING_RUNS: u64 = 40;

/// A cache that was used and closed, half of it dirty.
fn used(setup: &Setup, seed: u64) -> Rig {
    let mut rig = Rig::fresh(setup.clone(), seed);
    (0..400).for_each(|_| rig.step());
    rig.settle();
    rig.request(RequestKind::Flush, 0, u8::MAX);
    rig.settle();
    rig
}

fn close(rig: &mut Rig) {
    rig.settle();
    rig.machine.close();
    rig.settle();
    assert!(rig.machine.is_closed());
}

/// Opens what is there and compares every block with what it may hold.
fn assert_sound(setup: &Setup, cache: &Device, store: &Device, versions: &Versions) {
    let keeps_nothing = |device: &Device| device.after_power_failure(|_, _| 0);
    let (cache, store) = (keeps_nothing(cache), keeps_nothing(store));
    let mut rig = Rig::new(setup.clone(), cache, store, versions.clone(), 1);
    for (block, content) in rig.read_all().into_iter().enumerate() {
        versions.check(block as u64, &content.unwrap()).unwrap();
    }
}

/// Does `operation` with a cache's device that fails at its first write or flush, at its second, and so on until none
/// fails. Answers how many did.
fn fail_at_each(rig: impl Fn() -> Rig, operation: impl Fn(&mut Rig) -> bool, check: impl Fn(&mut Rig)) -> u64 {
    fail_each_of(Target::Cache, rig, operation, check)
}

/// The same with either device.
fn fail_each_of(
    target: Target,
    rig: impl Fn() -> Rig,
    operation: impl Fn(&mut Rig) -> bool,
    check: impl Fn(&mut Rig),
) -> u64 {
    for fails_at in 0.. {
        let mut rig = rig();
        let device = rig.device(target);
        (device.writes, device.fails_at) = (0, Some(fails_at));
        let has_succeeded = operation(&mut rig);
        let device = rig.device(target);
        let has_failed = device.writes > fails_at;
        device.fails_at = None;
        assert_eq!(has_succeeded, !has_failed, "at write {fails_at}");
        check(&mut rig);
        if !has_failed {
            return fails_at;
        }
    }
    unreachable!("some attempt succeeds")
}

/// Promise: store-management-faults.
#[test]
fn a_shutdown_that_fails_at_any_write_leaves_a_sound_cache() {
    let setup = Setup { units: 900, store_blocks: 60, ..Setup::small("credit", Semantics::WriteCache) };
    let writes = fail_at_each(
        || used(&setup, 3),
        |rig| {
            close(rig);
            !rig.machine.has_failed()
        },
        |rig| assert_sound(&setup, &rig.cache, &rig.store, &rig.versions),
    );
    assert!(writes >= 5, "a snapshot is several writes, {writes} failed");
}

/// Promise: store-management-faults.
#[test]
fn cleaning_everything_that_fails_at_any_write_leaves_a_sound_cache() {
    let setup = Setup::small("lru", Semantics::Strict);
    let writes = fail_at_each(
        || used(&setup, 4),
        |rig| {
            rig.machine.clean_all();
            rig.settle();
            rig.request(RequestKind::Flush, 0, u8::MAX);
            rig.settle();
            !rig.machine.has_failed()
        },
        |rig| assert_sound(&setup, &rig.cache, &rig.store, &rig.versions),
    );
    assert!(writes >= 2, "{writes} failed");
}

/// What was to be copied stays dirty, and is copied when that is asked for again.
/// Promise: store-management-faults.
#[test]
fn cleaning_everything_onto_a_store_that_fails_at_any_write_leaves_a_sound_cache() {
    let setup = Setup::small("lru", Semantics::Strict);
    let cleaned = |rig: &mut Rig| {
        rig.machine.clean_all();
        rig.settle();
        rig.machine.dirty_units() == 0
    };
    let writes = fail_each_of(
        Target::Store,
        || used(&setup, 4),
        cleaned,
        |rig| {
            assert_sound(&setup, &rig.cache, &rig.store, &rig.versions);
            assert!(cleaned(rig), "{} units stay dirty", rig.machine.dirty_units());
            for block in 0..setup.store_blocks {
                rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
            }
        },
    );
    assert!(writes >= 5, "{writes} failed");
}

/// Promise: store-management-faults.
#[test]
fn opening_that_fails_at_any_write_leaves_a_sound_cache() {
    let setup = Setup::small("lru", Semantics::Strict);
    let opened = |rig: &mut Rig| open(&mut rig.cache, setup.identity(), &setup.config(), policy("lru"), false).is_ok();
    let torn_superblock = || {
        let mut rig = used(&setup, 5);
        close(&mut rig);
        rig.cache.put(1, crate::device::zeroes());
        rig
    };
    let writes =
        fail_at_each(torn_superblock, opened, |rig| assert_sound(&setup, &rig.cache, &rig.store, &rig.versions));
    assert!(writes >= 3, "both superblocks are written and flushed, {writes} failed");
}

/// Promise: store-management-faults.
#[test]
fn making_a_cache_anew_that_fails_at_any_write_leaves_the_old_one_or_none() {
    let setup = Setup::small("lru", Semantics::Strict);
    let remade = |rig: &mut Rig| format(&mut rig.cache, setup.identity(), [9; 16], setup.layout()).is_ok();
    // Of the two superblocks one may be lost already.
    for lost in [None, Some(0), Some(1)] {
        let used = || {
            let mut rig = used(&setup, 6);
            lost.into_iter().for_each(|slot| rig.cache.put(slot, crate::device::zeroes()));
            rig
        };
        let writes = fail_at_each(used, remade, |rig| {
            for keeps in [0, u8::MAX, 0b1010_1100] {
                let mut cache = rig.cache.after_power_failure(|_, _| keeps);
                match probe(&mut cache) {
                    Ok(found) if found.uuid == [1; 16] => assert_sound(&setup, &cache, &rig.store, &rig.versions),
                    // A new one has nothing in it, whatever the device still holds.
                    Ok(_) => assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0),
                    Err(error) => assert!(error.to_string().contains("no cache"), "{error}"),
                }
            }
        });
        assert!(writes >= 9, "{writes} failed");
    }
}

/// Promise: store-management-faults.
#[test]
fn giving_a_cache_up_that_fails_at_any_write_leaves_the_old_one_or_none() {
    let setup = Setup::small("lru", Semantics::Strict);
    let cleaned = || {
        let mut rig = used(&setup, 7);
        rig.machine.clean_all();
        close(&mut rig);
        rig
    };
    let given_up = |rig: &mut Rig| give_up(&mut rig.cache, setup.identity(), [9; 16], setup.layout()).is_ok();
    let writes = fail_at_each(cleaned, given_up, |rig| {
        for keeps in [0, u8::MAX] {
            let mut cache = rig.cache.after_power_failure(|_, _| keeps);
            if probe(&mut cache).is_ok() {
                assert_sound(&setup, &cache, &rig.store, &rig.versions);
            }
        }
    });
    assert_eq!(writes, 5);
    // Then there is none, and what the store has is all that there was.
    let mut rig = cleaned();
    assert!(given_up(&mut rig));
    assert!(probe(&mut rig.cache).is_err());
    for block in 0..setup.store_blocks {
        rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
    }
}

/// The cache gets another name of its store; any write or flush of that fails, and the power with it. One superblock
/// may be lost before. Outcome: the cache is of the store under its old name or its new one, and has everything.
///
/// Planted breaks that were seen red: a lost superblock is not written again first; nothing is flushed between the two.
#[test]
fn giving_a_store_another_name_that_fails_at_any_write_leaves_the_cache_whole() {
    let setup = Setup::small("lru", Semantics::Strict);
    let (old, new) = (setup.identity().store, [8; 16]);
    for lost in [None, Some(0), Some(1)] {
        let used = || {
            let mut rig = used(&setup, 6);
            lost.into_iter().for_each(|slot| rig.cache.put(slot, crate::device::zeroes()));
            rig
        };
        let renamed = |rig: &mut Rig| move_to_store(&mut rig.cache, new).is_ok();
        let writes = fail_at_each(used, renamed, |rig| {
            for keeps in [0, u8::MAX, 0b1010_1100, 0b0101_0011] {
                let mut cache = rig.cache.after_power_failure(|_, _| keeps);
                let found = probe(&mut cache).unwrap();
                assert!(found.store == old || found.store == new, "{found:?}");
                // The next start looks for it by its old name.
                if found.store == new {
                    move_to_store(&mut cache, old).unwrap();
                }
                assert_sound(&setup, &cache, &rig.store, &rig.versions);
            }
        });
        assert!(writes >= 4, "{writes} failed");
        let mut rig = used();
        let before = probe(&mut rig.cache).unwrap();
        let after = move_to_store(&mut rig.cache, new).unwrap();
        assert_eq!((after.store, after.starts, after.uuid), (new, before.starts + 1, before.uuid));
        assert_eq!(probe(&mut rig.cache).unwrap(), after);
    }
}

/// Another size is: clean, give up, make anew.
#[test]
fn a_cache_gets_another_size_by_being_cleaned_and_made_anew() {
    let setup = Setup::small("credit", Semantics::WriteCache);
    for units in [12, 40] {
        let mut rig = used(&setup, 8);
        rig.machine.clean_all();
        close(&mut rig);
        assert_eq!(rig.machine.dirty_units(), 0);
        let larger = Setup { units, ..setup.clone() };
        let mut cache = Device::new(larger.layout().blocks());
        for block in 0..larger.layout().blocks().min(setup.layout().blocks()) {
            cache.put(block, rig.cache.get(block).clone());
        }
        format(&mut cache, larger.identity(), [2; 16], larger.layout()).unwrap();
        let mut rig = Rig::new(larger, cache, rig.store.clone(), rig.versions.clone(), 9);
        (0..100).for_each(|_| rig.step());
        for (block, content) in rig.read_all().into_iter().enumerate() {
            rig.versions.check_newest(block as u64, u8::MAX, &content.unwrap()).unwrap();
        }
    }
}

/// Writes that the store refuses are told, and what was copied stays dirty until it is there.
#[test]
fn a_store_that_fails_now_and_then_loses_nothing_that_was_acknowledged() {
    for semantics in [Semantics::Strict, Semantics::WriteCache] {
        let setup = Setup::small("selective", semantics);
        let mut rig = Rig::fresh(setup.clone(), 10);
        rig.store_fails_one_in = 12;
        for _ in 0..2000 {
            rig.step();
        }
        rig.settle();
        rig.store_fails_one_in = 0;
        assert!(!rig.failures.is_empty(), "no client was told");
        rig.request(RequestKind::Flush, 0, u8::MAX);
        rig.settle();
        let found = rig.read_all();
        for (block, content) in found.iter().enumerate() {
            rig.versions.check(block as u64, content.as_ref().unwrap()).unwrap();
        }
        rig.machine.clean_all();
        rig.settle();
        assert_eq!(rig.machine.dirty_units(), 0);
    }
}

/// A flush of the store that fails loses a part of what the store was told, also of what it is being told meanwhile;
/// no later flush says so. Outcome: copied blocks are copied again, and a client that wrote past the cache gets one
/// failed flush. What a crash leaves then is between what was promised and what was written.
///
/// Planted breaks that were seen red: of what was copied, only what the flush was to make durable stays dirty; what
/// the store was writing meanwhile counts as written; a flush is a promise though no client was told of a doubt; what
/// a read brings in later is recorded.
/// Promise: store-failed-flush.
#[test]
fn what_a_store_loses_when_it_cannot_flush_is_told_or_copied_again() {
    let mut doubts = [0; 2];
    for seed in 0..LOSING_RUNS {
        let semantics = [Semantics::Strict, Semantics::WriteCache][seed as usize % 2];
        let policy = ["lru", "selective"][seed as usize / 2 % 2];
        let setup = Setup { units: 14, store_blocks: 32, ..Setup::small(policy, semantics) };
        let (mut rig, mut random) = (Rig::fresh(setup, seed), Random(seed));
        // What was written before the start is of no account here.
        rig.request(RequestKind::Flush, 0, u8::MAX);
        rig.settle();
        rig.store_fails_one_in = 6;
        for step in 0..600 {
            rig.step();
            if step % 40 == 20 {
                rig.machine.clean_all();
            }
            if step % 3 == 0 {
                let found = crash_plainly(&rig, &mut random, &mut Points::default());
                found.unwrap_or_else(|error| panic!("{semantics:?}, seed {seed}, step {step}: {error}"));
            }
        }
        doubts[seed as usize % 2] += rig.machine.doubts();
    }
    // With strict semantics nothing is acknowledged before it is durable.
    // Of the others each second run has one at least. How many there are is a matter of chance: it was two in each run
    // when some units were copied twice, and each copy brought a flush.
    assert!(doubts[0] == 0 && doubts[1] >= LOSING_RUNS / 4, "{doubts:?}");
}

/// The first flush of the store fails. Outcome: that is a doubt, with either semantics, though nothing has gone past
/// this cache. Writes from before the start, perhaps without a cache, may be lost, and their writer has to hear of it.
/// There is no other doubt.
///
/// Planted break that was seen red: what was written before the start was not acknowledged.
/// Promise: store-first-flush.
#[test]
fn a_first_flush_that_fails_is_told_to_clients_from_before_the_start() {
    for semantics in [Semantics::Strict, Semantics::WriteCache] {
        let mut rig = Rig::fresh(Setup::small("lru", semantics), 12);
        rig.store.fails_at = Some(rig.store.writes);
        for _ in 0..2 {
            rig.request(RequestKind::Flush, 0, u8::MAX);
            rig.settle();
        }
        assert_eq!((&rig.failures[..], rig.machine.doubts()), (&[Failure::Store][..], 1), "{semantics:?}");
        rig.store.fails_at = Some(rig.store.writes);
        rig.request(RequestKind::Write, 0, u8::MAX);
        rig.settle();
        rig.machine.clean_all();
        rig.settle();
        assert_eq!(rig.machine.doubts(), 1, "{semantics:?}: what is in the cache is copied again");
    }
}

/// A write past the cache fails and was done nevertheless; what it wrote is read, and comes into the cache. Outcome: it
/// is not in the cache after a power failure unless the store has it then, too.
///
/// Planted break that was seen red: a write that fails does not count as one that has to be flushed.
/// Promise: store-failed-flush.
#[test]
fn what_a_write_that_failed_left_on_the_store_is_not_taken_for_durable() {
    // Of a class that writes past the cache and reads through it.
    const BLOCK: u64 = 2;
    let (setup, mut was_done) = (Setup::small("selective", Semantics::WriteCache), 0);
    for seed in 0..8 {
        let mut rig = Rig::fresh(setup.clone(), seed);
        let flush = |rig: &mut Rig| {
            rig.request(RequestKind::Flush, 0, u8::MAX);
            rig.settle();
        };
        rig.request(RequestKind::Write, BLOCK, u8::MAX);
        rig.settle();
        flush(&mut rig);
        let before = rig.store.get(BLOCK).clone();
        rig.store.fails_at = Some(rig.store.writes);
        rig.request(RequestKind::Write, BLOCK, u8::MAX);
        rig.settle();
        assert_eq!(rig.failures.len(), 1);
        was_done += u32::from(*rig.store.get(BLOCK) != before);
        rig.read(BLOCK).unwrap();
        assert!(rig.machine.cache().find(BLOCK).is_some());
        (0..2).for_each(|_| flush(&mut rig));
        let keeps_nothing = |device: &Device| device.after_power_failure(|_, _| 0);
        let (cache, store) = (keeps_nothing(&rig.cache), keeps_nothing(&rig.store));
        let mut next = Rig::new(setup.clone(), cache, store, rig.versions, seed);
        assert!(next.read(BLOCK).unwrap()[..] == next.store.get(BLOCK)[..], "the cache has what the store never had");
    }
    assert!((1..8).contains(&was_done), "{was_done}");
}

/// The load goes on for a while, and ends. Then every request has its answer, a later one too.
fn assert_nobody_waits(rig: &mut Rig, when: &str) {
    (0..300).for_each(|_| rig.step());
    rig.settle();
    assert_eq!(rig.under_way(), 0, "{when}: some are not answered");
    for (block, content) in rig.read_all().into_iter().enumerate() {
        let found = content.map_err(|failure| format!("block {block}: {failure:?}"));
        let found = found.and_then(|content| rig.versions.check_acknowledged(block as u64, &content));
        found.unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    for block in 0..rig.setup.store_blocks {
        for (kind, sectors) in [(RequestKind::Read, u8::MAX), (RequestKind::Write, 1), (RequestKind::Trim, u8::MAX)] {
            assert!(rig.request(kind, block, sectors), "{when}: {kind:?} of {block} waits for nothing");
        }
        rig.settle();
        assert_eq!(rig.under_way(), 0, "{when}: block {block} is held up");
    }
    assert_sound(&rig.setup, &rig.cache, &rig.store, &rig.versions);
}

/// The cache's device fails under load: once at each of its writes and flushes, and after each step for good. Outcome:
/// every request is answered, before or after, whatever it waited for. Reads find what was acknowledged last, or
/// newer. What was durable is there after the next start.
///
/// Planted breaks that were seen red: a request that needs a unit, or the journal before the store, waits for it
/// though the device has failed; a trim is acknowledged that the device was not told.
/// Promise: store-failing-device.
#[test]
fn a_device_that_fails_under_load_leaves_no_request_without_an_answer() {
    for semantics in [Semantics::Strict, Semantics::WriteCache] {
        for moment in 0..250 {
            // Of so few units even what was written a moment ago has to leave.
            let units = if moment % 2 == 0 { 20 } else { 8 };
            let rig = || Rig::fresh(Setup { units, ..Setup::small("lru", semantics) }, moment);
            let mut at_write = rig();
            at_write.cache.fails_at = Some(moment);
            let has_failed = (0..20_000).any(|_| {
                at_write.step();
                at_write.cache.writes > moment
            });
            assert!(has_failed, "nothing is written any more, before write {moment}");
            assert_nobody_waits(&mut at_write, &format!("{semantics:?}, a failure at write {moment}"));
            let mut after_step = rig();
            (0..moment * 3).for_each(|_| after_step.step());
            if moment % 3 == 0 {
                // What was written a moment ago is copied, too.
                after_step.machine.clean_all();
                after_step.take();
            }
            after_step.machine.refuse_writes();
            assert_nobody_waits(&mut after_step, &format!("{semantics:?}, a failure after {} steps", moment * 3));
        }
    }
}

#[test]
fn a_device_that_is_too_small_is_refused_and_not_written() {
    let mut device = Device::new(20);
    let identity = Identity { store: [0; 16], store_blocks: 100 };
    let error = format(&mut device, identity, [1; 16], Layout { units: 10, journal_blocks: 16 }).unwrap_err();
    assert_eq!(error.to_string(), "the device has 20 blocks of 4096 bytes, and the cache needs 30");
    assert_eq!(device.writes, 0);
}

/// Planted break that was seen red: the limit is not known, and both superblocks are damaged at the next start.
/// Promise: store-superblock.
#[test]
fn a_store_that_is_larger_than_the_format_can_say_is_refused_and_nothing_is_written() {
    let (layout, most) = (Layout { units: 10, journal_blocks: 16 }, (1 << 36) - 1);
    let mut device = Device::new(layout.blocks());
    let error = format(&mut device, Identity { store: [0; 16], store_blocks: most + 1 }, [1; 16], layout).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store has 68719476736 blocks of 4096 bytes, and a cache can be of one with at most 68719476735 (less than 256 TiB)"
    );
    assert_eq!(device.writes, 0);
    format(&mut device, Identity { store: [0; 16], store_blocks: most }, [1; 16], layout).unwrap();
    assert_eq!(probe(&mut device).unwrap().store_blocks, most);
}
