//! Devices that fail: at each write of each management operation in turn, and the store now and then.

use crate::device::Device;
use crate::rig::{Rig, Setup, policy};
use crate::versions::Versions;
use plimsoll_cache::store::{Identity, Layout, RequestKind, Semantics, format, give_up, open, probe};

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

/// Does `operation` with a device that fails at its first write or flush, at its second, and so on until none fails. Answers how many
/// did.
fn fail_at_each(rig: impl Fn() -> Rig, operation: impl Fn(&mut Rig) -> bool, check: impl Fn(&Rig)) -> u64 {
    for fails_at in 0.. {
        let mut rig = rig();
        rig.cache.writes = 0;
        rig.cache.fails_at = Some(fails_at);
        let has_succeeded = operation(&mut rig);
        let has_failed = rig.cache.writes > fails_at;
        rig.cache.fails_at = None;
        assert_eq!(has_succeeded, !has_failed, "at write {fails_at}");
        check(&rig);
        if !has_failed {
            return fails_at;
        }
    }
    unreachable!("some attempt succeeds")
}

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

#[test]
fn making_a_cache_anew_that_fails_at_any_write_leaves_the_old_one_or_none() {
    let setup = Setup::small("lru", Semantics::Strict);
    let remade = |rig: &mut Rig| format(&mut rig.cache, setup.identity(), [9; 16], setup.layout()).is_ok();
    let writes = fail_at_each(
        || used(&setup, 6),
        remade,
        |rig| {
            for keeps in [0, u8::MAX, 0b1010_1100] {
                let mut cache = rig.cache.after_power_failure(|_, _| keeps);
                match probe(&mut cache) {
                    Ok(found) if found.uuid == [1; 16] => assert_sound(&setup, &cache, &rig.store, &rig.versions),
                    // A new one has nothing in it, whatever the device still holds.
                    Ok(_) => assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0),
                    Err(error) => assert!(error.to_string().contains("no cache"), "{error}"),
                }
            }
        },
    );
    assert!(writes >= 9, "{writes} failed");
}

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
    assert_eq!(writes, 4);
    // Then there is none, and what the store has is all that there was.
    let mut rig = cleaned();
    assert!(given_up(&mut rig));
    assert!(probe(&mut rig.cache).is_err());
    for block in 0..setup.store_blocks {
        rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
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
        assert!(!rig.failures.is_empty(), "nobody was told");
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

#[test]
fn a_device_that_is_too_small_is_refused_and_not_written() {
    let mut device = Device::new(20);
    let identity = Identity { store: [0; 16], store_blocks: 100 };
    let error = format(&mut device, identity, [1; 16], Layout { units: 10, journal_blocks: 16 }).unwrap_err();
    assert_eq!(error.to_string(), "the device has 20 blocks of 4096 bytes, and the cache needs 30");
    assert_eq!(device.writes, 0);
}
