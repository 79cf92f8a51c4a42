//! What goes past the syncer: flushes that do not wait for it, what is recorded at the end, ranges, bounds on what is
//! dirty, writes through.

use crate::crash::{Points, crash_here};
use crate::device::{Device, zeroes};
use crate::rig::{Random, Rig, Setup};
use plimsoll_cache::Pool;
use plimsoll_cache::store::{
    Action, BLOCK_BYTES, Blocks, CacheStore, Operation, ReadOnly, Request, RequestKind, Semantics, Target, WriteBack,
};
use plimsoll_core::{Class, Span, Time};
use std::io;
use std::sync::Arc;

fn setup() -> Setup {
    Setup { units: 600, store_blocks: 600, ..Setup::small("selective", Semantics::WriteCache) }
}

fn flush(rig: &mut Rig) {
    assert!(rig.request(RequestKind::Flush, 0, u8::MAX));
    rig.settle();
}

fn write(rig: &mut Rig, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        while !rig.request(RequestKind::Write, block, u8::MAX) {
            assert!(rig.finish_one());
        }
    }
    rig.settle();
}

/// Of all kinds but 2, which writes past the cache.
fn taken_in(count: u64) -> impl Iterator<Item = u64> {
    (0..).filter(|block| block % 4 != 2).take(count as usize)
}

/// Ends everything but flushes of the store.
fn settle_but_store_flushes(rig: &mut Rig) {
    loop {
        rig.take();
        let stuck = rig.number_of(Target::Store, Action::Flush);
        let next = rig.doing.iter().position(|doing| Some(doing.number()) != stuck);
        let Some(at) = next else { return };
        rig.end(at);
    }
}

/// The syncer has copied something and waits for its flush of the slow device, which never ends. Outcome: a client's
/// flush ends, as all of what it promises is in the cache; but not if something had been acknowledged past the cache
/// since the last flush.
///
/// Planted break that was seen red: a flush waits for every write of the store.
/// Promise: cache-flush-slow-device.
#[test]
fn a_flush_waits_for_the_slow_device_only_for_what_went_past_the_cache() {
    for goes_past in [false, true] {
        let mut rig = Rig::fresh(setup(), 1);
        write(&mut rig, taken_in(20));
        flush(&mut rig);
        if goes_past {
            assert!(rig.request(RequestKind::Write, 2, u8::MAX));
            rig.settle();
        }
        rig.machine.clean_all();
        settle_but_store_flushes(&mut rig);
        assert!(rig.number_of(Target::Store, Action::Flush).is_some(), "the syncer's own");
        assert!(rig.request(RequestKind::Flush, 0, u8::MAX));
        settle_but_store_flushes(&mut rig);
        assert_eq!(rig.under_way(), usize::from(goes_past), "past the cache: {goes_past}");
        rig.settle();
        assert_eq!((rig.under_way(), rig.machine.dirty_units()), (0, 0));
    }
}

/// What reads bring in is recorded while the store has nothing that is not flushed. Outcome: what they brought in all
/// the same is there after a clean end, all of it; and it is what the store has.
///
/// Planted break that was seen red: nothing is recorded at the end (128 of 450).
/// Promise: cache-clean-end.
#[test]
fn what_reads_brought_in_is_there_after_a_clean_end() {
    let mut rig = Rig::fresh(setup(), 2);
    write(&mut rig, (0..600).filter(|block| block % 4 == 2));
    for block in (0..600).filter(|block| block % 4 != 2) {
        rig.read(block).unwrap();
    }
    rig.machine.close();
    rig.settle();
    assert!(rig.machine.is_closed());
    let keeps_nothing = |device: &Device| device.after_power_failure(|_, _| 0);
    let (cache, store) = (keeps_nothing(&rig.cache), keeps_nothing(&rig.store));
    let mut next = Rig::new(setup(), cache, store, rig.versions.clone(), 3);
    let found = (0..600).filter(|&block| next.machine.cache().find(block).is_some()).count();
    assert_eq!((found, next.machine.dirty_units()), (450, 0));
    for block in 0..600 {
        let content = next.read(block).unwrap();
        assert!(content[..] == next.store.get(block)[..], "block {block}");
    }
}

/// A device that cannot be written any more, and be read. Outcome: what is dirty comes to the store and is not dirty
/// any more, though the journal is not told; the next start finds it dirty, and the same.
///
/// Planted breaks that were seen red: a cache that has failed copies nothing; its marks stay dirty.
/// Promise: store-rescue.
#[test]
fn what_is_dirty_on_a_device_that_can_only_be_read_comes_to_the_store() {
    let mut rig = Rig::fresh(setup(), 4);
    write(&mut rig, taken_in(100));
    flush(&mut rig);
    rig.machine.refuse_writes();
    assert!(rig.machine.has_failed() && rig.machine.dirty_units() == 100);
    let written = rig.cache.writes;
    rig.machine.clean_all();
    rig.settle();
    assert_eq!((rig.machine.dirty_units(), rig.machine.is_cleaning_all(), rig.cache.writes), (0, false, written));
    for block in taken_in(100) {
        rig.versions.check_newest(block, u8::MAX, &rig.store.after_power_failure(|_, _| 0).get(block)[..]).unwrap();
    }
    let keeps_nothing = |device: &Device| device.after_power_failure(|_, _| 0);
    let (cache, store) = (keeps_nothing(&rig.cache), keeps_nothing(&rig.store));
    let mut next = Rig::new(setup(), cache, store, rig.versions.clone(), 5);
    assert_eq!(next.machine.dirty_units(), 100);
    for block in taken_in(100) {
        assert!(next.read(block).unwrap()[..] == next.store.get(block)[..]);
    }
}

/// What the journal may not know of stays until the cache was given up elsewhere; then it is copied, too.
/// Promise: store-rescue.
#[test]
fn what_the_journal_may_not_know_of_is_copied_when_the_cache_was_given_up() {
    let mut rig = Rig::fresh(setup(), 6);
    write(&mut rig, taken_in(10));
    flush(&mut rig);
    // Acknowledged, and recorded in memory only.
    for block in taken_in(10).skip(5) {
        assert!(rig.request(RequestKind::Write, block, u8::MAX));
        while rig.under_way() > 0 {
            let at = rig.doing.iter().position(|doing| doing.number() < 9).expect("a slot's");
            rig.end(at);
            rig.take();
        }
    }
    rig.machine.refuse_writes();
    rig.machine.clean_all();
    rig.settle();
    assert_eq!((rig.machine.dirty_units(), rig.machine.is_cleaning_all()), (5, false));
    rig.machine.note_given_up();
    rig.machine.clean_all();
    rig.settle();
    assert_eq!(rig.machine.dirty_units(), 0);
    for block in taken_in(10) {
        rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
    }
}

/// Writes more than may be dirty. Outcome: at no moment is more dirty, all of it is written, and nothing goes past the
/// cache.
///
/// Planted break that was seen red: no write waits for the bound.
/// Promise: cache-dirty-bounds.
#[test]
fn no_more_is_dirty_than_may_be() {
    for most in [1, 7, 60] {
        let mut rig = Rig::fresh(setup(), 7);
        rig.machine.set_write_back(WriteBack { dirty_units_max: Some(most), ..WriteBack::default() });
        for block in taken_in(300).chain(taken_in(300)) {
            while !rig.request(RequestKind::Write, block, u8::MAX) {
                let at = rig.random.below(rig.doing.len() as u64) as usize;
                rig.end(at);
                assert!(rig.machine.dirty_units() <= most, "{} of {most}", rig.machine.dirty_units());
                rig.take();
            }
        }
        rig.settle();
        assert_eq!((rig.under_way(), rig.machine.counters().writes_around), (0, 0));
        for block in taken_in(300) {
            let content = rig.read(block).unwrap();
            rig.versions.check_newest(block, u8::MAX, &content).unwrap();
        }
    }
}

/// Time passes without requests, or with some. Outcome: a dirty block is clean after its age, at the latest; and after
/// a while without a request, but not before.
///
/// Planted breaks that were seen red: a sweep begins each age; a request does not count.
/// Promise: cache-dirty-bounds.
#[test]
fn what_is_dirty_is_written_back_at_its_age_and_without_requests() {
    let at = |seconds: u64| Time::ZERO + Span::from_secs(seconds);
    let mut rig = Rig::fresh(setup(), 8);
    rig.machine.set_write_back(WriteBack { age_max: Some(Span::from_secs(60)), ..WriteBack::default() });
    rig.machine.tick(at(0));
    for second in 1..200 {
        rig.machine.asked(at(second));
        write(&mut rig, taken_in(100).skip(second as usize % 50).take(1));
        let next = rig.machine.tick(at(second)).expect("something is dirty");
        assert!(next <= at(second + 30));
        rig.settle();
        // One a second, and none of them is older than that.
        assert!(rig.machine.dirty_units() <= 31, "{} after {second} s", rig.machine.dirty_units());
    }
    assert!(rig.machine.counters().cleaned > 100);
    let mut rig = Rig::fresh(setup(), 9);
    rig.machine.set_write_back(WriteBack { idle_after: Some(Span::from_secs(5)), ..WriteBack::default() });
    write(&mut rig, taken_in(100));
    for second in 0..20 {
        rig.machine.asked(at(second));
        rig.machine.tick(at(second + 4));
        rig.settle();
        assert_eq!(rig.machine.dirty_units(), 100);
    }
    rig.machine.tick(at(24));
    rig.settle();
    assert_eq!(rig.machine.dirty_units(), 0);
    assert_eq!(rig.machine.tick(at(25)), None);
}

/// With writes through the cache nothing is dirty, and what was written is read there. What was dirty before is written
/// back, and a write of it meanwhile is not lost.
///
/// Planted breaks: see the test of crashes below, which finds them.
/// Promise: cache-write-through.
#[test]
fn what_is_written_through_is_on_the_store_and_clean_in_the_cache() {
    let mut rig = Rig::fresh(Setup { semantics: Semantics::WriteThrough, ..setup() }, 10);
    for step in 0..3000 {
        rig.step();
        assert_eq!(rig.machine.dirty_units(), 0, "step {step}");
    }
    rig.settle();
    for block in 0..600 {
        rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
        let content = rig.read(block).unwrap();
        rig.versions.check_newest(block, u8::MAX, &content).unwrap();
    }
    assert!(rig.machine.counters().writes_taken > 100 && rig.machine.counters().read_hits > 50);

    for seed in 0..20 {
        let mut rig = Rig::fresh(Setup { units: 60, store_blocks: 60, ..setup() }, seed);
        (0..300).for_each(|_| rig.step());
        assert!(rig.machine.dirty_units() > 0);
        rig.machine.set_semantics(Semantics::WriteThrough);
        (0..400).for_each(|_| rig.step());
        rig.settle();
        assert_eq!(rig.machine.dirty_units(), 0);
        flush(&mut rig);
        for block in 0..60 {
            rig.versions.check_newest(block, u8::MAX, &rig.store.get(block)[..]).unwrap();
        }
    }
}

/// Does everything that the cache wants at once, and counts requests of the store.
fn settle(machine: &mut CacheStore, asked: &mut Vec<Operation>) -> Vec<u64> {
    let mut answers = Vec::new();
    loop {
        while let Some(operation) = machine.next_operation() {
            if operation.target == Target::Store {
                asked.push(operation);
            }
            machine.completed(operation.id, true);
        }
        if !machine.next_answer(|token, failure, _| {
            assert_eq!(failure, None);
            answers.push(token);
        }) {
            return answers;
        }
    }
}

/// Outcome: a range of which the cache has nothing is one request of the store, and ends where a block is cached or in
/// use. A request for one of its blocks meanwhile waits for its end.
///
/// Planted breaks that were seen red: a range's blocks are not locked; those behind its first are not unlocked for the
/// requests that wait.
/// Promise: cache-discard.
#[test]
fn a_range_of_which_nothing_is_cached_is_trimmed_at_once_and_held_meanwhile() {
    let setup = Setup { store_blocks: 100_000, ..setup() };
    let mut machine = setup.open(&mut setup.devices().0).unwrap();
    let (class, pool, to) = (Class::UNCLASSIFIED, Pool::default(), BLOCK_BYTES as u16);
    let request = |token, kind, block| Request { token, kind, block, from: 0, to, class, pool };
    let mut asked = Vec::new();
    assert!(machine.submit(&request(1, RequestKind::Write, 5000), &[7; BLOCK_BYTES]));
    assert_eq!(settle(&mut machine, &mut asked), [1]);
    assert_eq!(machine.free_run(1000..90_000), 4000);
    assert_eq!(machine.free_run(5000..90_000), 0);
    assert_eq!(machine.free_run(5001..90_000), 8192);
    assert_eq!(machine.free_run(99_990..100_000), 10);
    assert!(machine.submit_trim(2, 1000, 4000, class));
    let trim = machine.next_operation().unwrap();
    assert_eq!((trim.action, trim.offset_bytes, trim.length_bytes), (Action::Trim, 1000 * 4096, 4000 * 4096));
    assert_eq!((machine.free_run(0..90_000), machine.free_run(4999..5000)), (1000, 0));
    for (token, block) in [(3, 1000), (4, 4999), (5, 4999)] {
        assert!(machine.submit(&request(token, RequestKind::Write, block), &[8; BLOCK_BYTES]));
    }
    assert!(machine.submit(&request(6, RequestKind::Write, 999), &[9; BLOCK_BYTES]));
    assert!(!machine.let_past(2000..2001, |_| (class, pool)), "a read waits, too");
    assert_eq!(settle(&mut machine, &mut asked), [6]);
    machine.completed(trim.id, true);
    let mut answers = settle(&mut machine, &mut asked);
    answers.sort_unstable();
    assert_eq!(answers, [2, 3, 4, 5]);
    // It was acknowledged past the cache, so a flush waits for the store.
    let before = asked.len();
    assert!(machine.submit(&request(7, RequestKind::Flush, 0), &[]));
    assert_eq!(settle(&mut machine, &mut asked), [7]);
    assert!(asked[before..].iter().any(|operation| operation.action == Action::Flush));
}

/// Writes go through the cache and then not, by turns, with something dirty. Outcome: whatever a crash leaves is
/// between what was promised and what was written.
///
/// Planted breaks that were seen red: a clean version is not forgotten before the store changes; a copy of the old
/// version is recorded as clean; a write that reads the rest of its block goes on by the semantics that came meanwhile.
/// Promise: cache-write-through.
#[test]
fn a_crash_between_writes_through_the_cache_and_others_loses_nothing() {
    let mut points = Points::default();
    for seed in 0..6 {
        let setup = Setup { units: 14, store_blocks: 24, ..Setup::small("lru", Semantics::WriteCache) };
        let (mut rig, mut random) = (Rig::fresh(setup, seed), Random(seed));
        for step in 0..300 {
            rig.step();
            if step % 40 == 39 {
                rig.setup.semantics = if step % 80 == 39 { Semantics::WriteThrough } else { Semantics::WriteCache };
                rig.machine.set_semantics(rig.setup.semantics);
            }
            if step % 3 == 0 {
                let found = crash_here(&rig, &mut random, &mut points);
                found.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            }
        }
    }
    assert!(points.all() > 5_000, "{points:?}");
}

/// A device that can only be read: each write to it fails.
struct WornOut(Device);

impl Blocks for WornOut {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(first, into)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("it is written to")
    }

    fn flush(&mut self) -> io::Result<()> {
        panic!("it is flushed")
    }
}

/// The device of a cache is worn out, and two of its units are bad. Outcome: everything else that only it had is on the
/// store, also if that was stopped at any moment and done again; what is lost is named; nothing is written to the
/// device.
///
/// Planted breaks that were seen red: a unit that is clean is copied; what is wrong in a unit is copied.
/// Promise: store-rescue.
#[test]
fn what_only_a_worn_out_device_has_is_rescued_and_what_cannot_be_read_is_named() {
    let setup = Setup { units: 60, store_blocks: 60, ..setup() };
    let mut rig = Rig::fresh(setup.clone(), 11);
    (0..500).for_each(|_| rig.step());
    rig.settle();
    flush(&mut rig);
    let dirty = rig.machine.dirty_units();
    let (cache, store) = (rig.cache.after_power_failure(|_, _| 0), rig.store.after_power_failure(|_, _| 0));
    let mut worn_out = WornOut(cache);
    let bad: Vec<u64> = (0..60)
        .filter(|&block| rig.machine.cache().find(block).is_some_and(|unit| rig.machine.cache().is_dirty(unit)))
        .take(2)
        .collect();
    let place = |block: u64| setup.first_unit() + u64::from(rig.machine.cache().find(block).unwrap().0);
    worn_out.0.unreadable.insert(place(bad[0]), u32::MAX);
    worn_out.0.put(place(bad[1]), zeroes());
    assert!(dirty > 8 && bad.len() == 2, "{dirty} units are dirty");
    for stops_after in 0..=dirty - 2 {
        let mut store = store.clone();
        for left in [stops_after, u32::MAX] {
            let mut left = left;
            let opened = setup.find(&mut ReadOnly(&mut worn_out)).unwrap();
            let rescued = opened.rescue(&mut worn_out, |block, data| {
                left = left.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
                store.put(block, Arc::new(*data));
                Ok(())
            });
            match rescued {
                Ok(rescued) => assert_eq!((rescued.copied, &rescued.lost), (dirty - 2, &bad)),
                Err(error) => assert!(stops_after < dirty - 2 && error.to_string() == "killed"),
            }
        }
        for block in (0..60).filter(|block| !bad.contains(block)) {
            rig.versions.check_newest(block, u8::MAX, &store.get(block)[..]).unwrap();
        }
    }
}
