//! A volume with a cache: the device with the block serves each request once, and the right blocks stay in the cache.

use plimsoll_cache::{CacheConfig, PolicyEntry, policies};
use plimsoll_core::class::{CLASSES, Scheme};
use plimsoll_core::{Class, Operation, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};
use plimsoll_sim::cached_volume::{CacheFigures, CachedVolume, Elevator};
use proptest::prelude::*;
use std::collections::BTreeSet;

const BLOCK: u64 = 4096;
/// Files up to 4 KiB, and over 1 GiB (`classes/ext4.toml`).
const SMALL: u8 = 8;
const LARGE: u8 = 18;

fn class(number: u8) -> Class {
    Class::new(number).unwrap()
}

/// The paper's priorities, as the scheme of this repository has them.
fn ext4() -> Scheme {
    let text = include_str!("../../../classes/ext4.toml").parse::<toml::Table>().unwrap();
    let mut scheme = Scheme::default();
    for (name, entry) in text["class"].as_table().unwrap() {
        let number = |key: &str| entry[key].as_integer().unwrap() as u8;
        let mut described = plimsoll_core::class::ClassEntry::new(class(number("number")), name, number("priority"));
        for (key, admission) in [("reads", &mut described.reads), ("writes", &mut described.writes)] {
            if entry.get(key).and_then(toml::Value::as_str) == Some("while-idle") {
                *admission = plimsoll_core::class::Admission::WhileIdle;
            }
        }
        scheme.set(described);
    }
    scheme
}

fn policy(name: &str) -> &'static PolicyEntry {
    policies().iter().find(|policy| policy.name == name).unwrap()
}

fn volume(policy_name: &str, units: u32) -> CachedVolume {
    let build = |name| -> Box<dyn DeviceModel> { plimsoll_devices::build(name, 7).unwrap() };
    let config = CacheConfig::new(units, ext4());
    CachedVolume::new(&config, policy(policy_name), build("ssd.x25-e"), build("raid1e-5")).unwrap()
}

fn request(token: u64, operation: Operation, block: u64, blocks: u64) -> DeviceRequest {
    DeviceRequest { token, operation, offset: block * BLOCK, length: (blocks * BLOCK) as u32, is_forced: false }
}

/// Runs until nothing is outstanding; tokens in the order of their ends.
fn finish(device: &mut dyn DeviceModel) -> Vec<(u64, Time)> {
    let mut finished = Vec::new();
    while device.outstanding() > 0 {
        let at = device.next_completion().expect("something is under way");
        while let Some(done) = device.complete(at) {
            assert!(done.at <= at);
            finished.push((done.token, done.at));
        }
    }
    finished
}

/// How long one request takes, beginning at `now`; then goes on to the next second, when all is quiet.
fn take(device: &mut dyn DeviceModel, now: &mut Time, operation: Operation, at: (u64, u64), class: Class) -> Span {
    device.submit_classified(*now, request(1, operation, at.0, at.1), class);
    let (_, end) = finish(device)[0];
    let took = end.since(*now);
    *now = end + Span::from_secs(1);
    while device.next_completion().is_some_and(|at| at <= *now) {
        assert!(device.complete(*now).is_none());
    }
    took
}

/// Promise: sim-cached-volume.
#[test]
fn what_was_read_is_on_the_fast_device_and_what_is_written_goes_there() {
    let (mut volume, mut now) = (volume("lru", 10_000), Time::ZERO);
    let far = 100_000_000;
    let first = take(&mut volume, &mut now, Operation::Read, (far, 16), class(SMALL));
    let second = take(&mut volume, &mut now, Operation::Read, (far, 16), class(SMALL));
    let write = take(&mut volume, &mut now, Operation::Write, (far / 2, 16), class(SMALL));
    let other = take(&mut volume, &mut now, Operation::Read, (far / 3, 16), class(SMALL));
    assert!(first > Span::from_millis(2) && other > Span::from_millis(2), "a disk seeks: {first}, {other}");
    assert!(second < Span::from_millis(1) && write < Span::from_millis(1), "nothing seeks: {second}, {write}");
    let counts = volume.figures().classes[usize::from(SMALL)];
    assert_eq!((counts.reads, counts.read_hits, counts.writes, counts.write_hits), (48, 16, 16, 0));
    assert_eq!((counts.taken, counts.units), (48, 48));
}

/// Many small files, then `pieces` of a large one, of which the cache has room for 31, then each small file again: the
/// part that was a hit.
fn small_hits_after_a_large_file(policy_name: &str, pieces: u64) -> (f64, CacheFigures) {
    let (mut volume, mut now) = (volume(policy_name, 4000), Time::ZERO);
    for file in 0..1000 {
        take(&mut volume, &mut now, Operation::Write, (file * 50, 1), class(SMALL));
    }
    for piece in 0..pieces {
        take(&mut volume, &mut now, Operation::Write, (1_000_000 + piece * 128, 128), class(LARGE));
    }
    let before = volume.figures();
    for file in 0..1000 {
        take(&mut volume, &mut now, Operation::Read, (file * 50, 1), class(SMALL));
    }
    let since = volume.figures().since(&before);
    (since.read_hit_part(), volume.figures())
}

/// The planted break: give `file-up-to-4KiB` in `classes/ext4.toml` the priority of `file-over-1GiB`, or the other way
/// round, and this is red.
/// Promise: sim-cached-volume.
#[test]
fn a_large_file_sends_small_ones_away_under_lru_and_not_by_priority() {
    let (lru, figures) = small_hits_after_a_large_file("lru", 40);
    assert_eq!(lru, 0.0, "all small files left, and came back one by one");
    assert!(figures.syncer_part() > 0.3, "what left was dirty: {}", figures.syncer_part());
    for name in ["selective", "credit"] {
        let (part, figures) = small_hits_after_a_large_file(name, 160);
        assert_eq!(part, 1.0, "{name}");
        let held = figures.classes[usize::from(SMALL)].units;
        assert!(held >= 990, "{name} holds {held} small files");
    }
}

/// Promise: sim-cached-volume.
#[test]
fn readers_do_not_wait_for_all_writes_before_them() {
    let build = || Elevator::new(plimsoll_devices::build("raid1e-5", 3).unwrap());
    let mut quiet = build();
    quiet.submit(Time::ZERO, request(0, Operation::Read, 1_000_000, 1));
    let alone = finish(&mut quiet)[0].1;
    let mut busy = build();
    (1..=200).for_each(|number| busy.submit(Time::ZERO, request(number, Operation::Write, number * 77_777, 1)));
    busy.submit(Time::ZERO, request(0, Operation::Read, 1_000_000, 1));
    let finished = finish(&mut busy);
    assert_eq!(finished.iter().map(|(token, _)| *token).collect::<BTreeSet<_>>(), (0..=200).collect());
    let beside = finished.iter().find(|(token, _)| *token == 0).unwrap().1;
    let before = finished.iter().filter(|(_, at)| *at < beside).count();
    assert!(before < 40, "{before} of 200 writes were done before it");
    assert!(beside > alone);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Requests of any place, length, class and kind: each is done once, every block is counted once, the cache is
    /// never larger than it is, and cleaning ends.
    /// Promise: sim-cached-volume.
    #[test]
    fn whatever_comes_is_done_once(
        name in prop::sample::select(vec!["lru", "s3_fifo", "selective", "credit"]),
        requests in prop::collection::vec((0u64..4000, 1u64..200, 0u8..CLASSES as u8, 0u8..8, 0u64..3_000_000), 1..150),
    ) {
        let mut volume = volume(name, 600);
        let (mut now, mut done, mut blocks) = (Time::ZERO, BTreeSet::new(), 0);
        for (token, &(block, length, number, kind, pause_ns)) in (0..).zip(&requests) {
            let operation = [Operation::Read, Operation::Write, Operation::Flush, Operation::Trim];
            let operation = operation[usize::from(kind.saturating_sub(4))];
            let operation = if kind == 0 { Operation::Write } else { operation };
            now += Span::from_nanos(pause_ns);
            while let Some(end) = volume.complete(now) {
                prop_assert!(done.insert(end.token), "{} twice", end.token);
            }
            blocks += if matches!(operation, Operation::Read | Operation::Write) { length } else { 0 };
            volume.submit_classified(now, request(token, operation, block, length), class(number));
        }
        for (token, _) in finish(&mut volume) {
            prop_assert!(done.insert(token), "{token} twice");
        }
        prop_assert_eq!(done.len(), requests.len());
        let figures = volume.figures();
        prop_assert_eq!(figures.sum(|counts| counts.reads + counts.writes), blocks);
        prop_assert!(figures.sum(|counts| counts.units) <= 600);
        prop_assert!(figures.sum(|counts| counts.read_hits + counts.write_hits + counts.taken) <= blocks);
        while let Some(at) = volume.next_completion() {
            prop_assert!(volume.complete(at).is_none(), "no request waits any more");
        }
    }
}
