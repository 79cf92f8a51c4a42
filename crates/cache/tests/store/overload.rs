//! More than the store can take, and more than the journal has room for, in a time of their own: a wait is counted in
//! what the devices do meanwhile. The rules, the bounds and the outcomes: `docs/cache.md`, overload.

use crate::device;
use crate::rig::{Random, Rig, Setup};
use crate::timed::Line;
use plimsoll_cache::store::{Action, Depth, Failure, RequestKind, Semantics};
use proptest::prelude::*;

/// What the store takes for anything, and the cache's device: a disk and an SSD.
const SLOW: u64 = 100;
const FAST: u64 = 1;
const DEPTH: Depth = Depth { requests: 16, cleaning: 4 };
/// The longest time for which a request is the first of those that wait for a unit: as many copies as there can be at
/// once and two flushes, and what the cache's device does meanwhile.
const WAIT_MAX: u64 = (DEPTH.cleaning as u64 + 2) * SLOW + 50 * FAST;

fn setup(semantics: Semantics) -> Setup {
    Setup { units: 600, journal_blocks: 64, store_blocks: 2400, depth: DEPTH, ..Setup::small("lru", semantics) }
}

fn rig(setup: Setup, seed: u64) -> Rig {
    let mut rig = Rig::fresh(setup, seed);
    (rig.timing.fast, rig.timing.map, rig.timing.slow) = (FAST, FAST, SLOW);
    rig
}

/// So many clients, each of which writes a new block as soon as its last write was let in, until `count` were.
fn write(rig: &mut Rig, line: &mut Line, clients: usize, count: usize) {
    let (mut random, until) = (Random(9), line.let_in.len() + count);
    while line.let_in.len() < until {
        while line.len() < clients && line.let_in.len() < until {
            let block = random.below(rig.setup.store_blocks);
            line.come(rig, block);
        }
        if line.let_in.len() < until {
            assert!(rig.end_next(), "a request waits, and nothing is under way");
            line.let_in_who_may(rig);
        }
    }
}

/// Outcome: writes go at the speed of the device as long as there is room, then ever slower, then at that of the
/// store. No write is ever the first in line for longer than the bound, and none goes past the cache.
///
/// Planted breaks that were seen red: a unit costs nothing; no units are kept; a write without a unit goes past the
/// cache.
/// Promise: cache-overload.
#[test]
fn more_writes_than_the_store_takes_slow_down_and_never_stand_still() {
    for semantics in [Semantics::WriteCache, Semantics::Strict] {
        let (mut rig, mut line) = (rig(setup(semantics), 5), Line::new());
        write(&mut rig, &mut line, 16, 3000);
        assert!(line.longest(0) <= WAIT_MAX, "{semantics:?}: {} of {WAIT_MAX}", line.longest(0));
        assert_eq!(rig.machine.counters().writes_around, 0, "{semantics:?}");
        // How long each 25 took, in order.
        let times: Vec<u64> = line.let_in.chunks_exact(25).map(|chunk| chunk[24].0 - chunk[0].0).collect();
        let last = times[times.len() - 20..].iter().sum::<u64>() / 20;
        assert!(times[0] * 20 < last && last < 25 * SLOW * 2, "{semantics:?}: {times:?}");
        // Not at once: some in between.
        let between = times.iter().filter(|&&took| took > last / 10 && took < last * 8 / 10).count();
        assert!(between >= 2, "{semantics:?}: {between} of {times:?}");
        let percent = rig.machine.paced_percent();
        assert!(percent >= 50, "{percent} %");
        while rig.end_next() {}
        assert_eq!(
            (rig.machine.paced_percent(), rig.under_way()),
            (0, 0),
            "once the syncer is through, nobody is paced"
        );
    }
}

/// Of so few units that a hundredth of them is less than one. Outcome: they leave for new ones all the same.
///
/// Planted break: the syncer wakes up when no unit is free.
/// Promise: cache-overload.
#[test]
fn a_cache_of_a_few_units_takes_new_blocks_in_for_ever() {
    let (mut rig, mut line) = (rig(Setup { units: 8, ..setup(Semantics::WriteCache) }, 13), Line::new());
    assert_eq!(rig.setup.config().watermark_low, 1);
    write(&mut rig, &mut line, 4, 200);
    assert_eq!(rig.machine.counters().writes_around, 0);
    while rig.end_next() {}
    assert_eq!(rig.under_way(), 0);
}

/// Outcome: a read or a rewrite of a cached block does not wait behind writes of new blocks.
///
/// Planted break that was seen red: writes that wait have a place.
/// Promise: cache-overload.
#[test]
fn what_is_in_the_cache_is_read_and_written_at_its_speed_meanwhile() {
    let (mut rig, mut line) = (rig(setup(Semantics::WriteCache), 6), Line::new());
    write(&mut rig, &mut line, 16, 1500);
    let mut random = Random(3);
    for round in 0..400 {
        while line.len() < 8 {
            let block = random.below(rig.setup.store_blocks);
            line.come(&mut rig, block);
        }
        let start = random.below(rig.setup.store_blocks);
        // A block that is not being copied just now: a write would wait for the copy.
        let cache = rig.machine.cache();
        let cached = |block: &u64| cache.find(*block).is_some_and(|unit| !cache.is_being_cleaned(unit));
        let hit = (start..rig.setup.store_blocks).chain(0..start).find(cached).unwrap();
        let kind = if round % 2 == 0 { RequestKind::Read } else { RequestKind::Write };
        let (answered, since) = (rig.answered.len(), rig.timing.now);
        while !rig.request(kind, hit, u8::MAX) {
            assert!(rig.end_next());
        }
        let is_answered = |rig: &Rig| rig.answered[answered..].iter().any(|one| one.kind == kind && one.since >= since);
        while !is_answered(&rig) {
            assert!(rig.end_next());
        }
        let took = rig.timing.now - since;
        assert!(took <= 20 * FAST, "{kind:?}: {took}");
        line.let_in_who_may(&mut rig);
    }
}

/// Outcome: the store fails while writes wait for it. None waits any longer: they are told, and when the store works
/// again they go on.
///
/// Planted break that was seen red: a write that waits does not look whether the syncer has stopped.
/// Promise: cache-stuck.
#[test]
fn a_request_that_waits_for_a_store_that_fails_is_told() {
    let (mut rig, mut line) = (rig(setup(Semantics::WriteCache), 7), Line::new());
    write(&mut rig, &mut line, 16, 1500);
    rig.store_fails_one_in = 1;
    let mut random = Random(4);
    while rig.failures.len() < 20 {
        while line.len() < 16 {
            let block = random.below(rig.setup.store_blocks);
            line.come(&mut rig, block);
        }
        assert!(rig.end_next());
        line.let_in_who_may(&mut rig);
    }
    rig.store_fails_one_in = 0;
    write(&mut rig, &mut line, 16, 300);
    while line.len() > 0 {
        assert!(rig.end_next());
        line.let_in_who_may(&mut rig);
    }
    while rig.end_next() {}
    assert_eq!(rig.under_way(), 0);
}

/// Spoils the content that the cache's device holds of a cached block.
fn rot(rig: &mut Rig, block: u64) {
    let unit = rig.machine.cache().find(block).expect("it is in the cache");
    let at = rig.setup.layout().unit_block(unit);
    rig.cache.put(at, device::zeroes());
}

/// Blocks that only the cache has, and that the syncer does not copy at the moment.
fn dirty_blocks(rig: &Rig) -> Vec<u64> {
    let cache = rig.machine.cache();
    let is_dirty =
        |block: &u64| cache.find(*block).is_some_and(|unit| cache.is_dirty(unit) && !cache.is_being_cleaned(unit));
    (0..rig.setup.store_blocks).filter(is_dirty).collect()
}

/// Writes new blocks and old ones at once, for more units than are ready, while a dirty block rots now and then. Says
/// how many did.
fn write_while_it_rots(rig: &mut Rig, one_in: u64) -> u64 {
    let (mut random, mut line, mut rotten) = (Random(8), Line::new(), 0);
    write(rig, &mut line, 16, 1500);
    for _ in 0..1200 {
        if random.below(one_in) == 0 && rig.failures.is_empty() {
            let dirty = dirty_blocks(rig);
            rot(rig, dirty[random.below(dirty.len() as u64) as usize]);
            rotten += 1;
        }
        // What was written last is in the cache.
        for block in dirty_blocks(rig).into_iter().rev().take(14) {
            rig.request(RequestKind::Write, block, u8::MAX);
        }
        while line.len() < 8 {
            line.come(rig, random.below(rig.setup.store_blocks));
        }
        assert!(rig.end_next(), "a request waits, and nothing is under way");
        line.let_in_who_may(rig);
    }
    while line.len() > 0 {
        assert!(rig.end_next(), "a request waits, and nothing is under way");
        line.let_in_who_may(rig);
    }
    let ended = (0..100_000).take_while(|_| rig.end_next()).count();
    assert!(ended < 100_000, "what cannot be read is read for ever");
    assert_eq!(rig.under_way(), 0);
    rotten
}

/// Outcome: units that the syncer cannot read are lost. A request that waits for a unit does not hear of it; a read of
/// the lost block does.
///
/// Planted breaks that were seen red: the syncer stops, as if the store had failed, and each waiting request is told;
/// such a unit returns into the order, where it is the next of its list again.
/// Promise: store-damaged-unit.
#[test]
fn a_unit_that_rots_fails_requests_for_its_block_and_no_others() {
    for (policy, semantics) in
        [("lru", Semantics::Strict), ("selective", Semantics::WriteCache), ("s3_fifo", Semantics::Strict)]
    {
        let mut rig = rig(Setup { policy, ..setup(semantics) }, 14);
        let rotten = write_while_it_rots(&mut rig, 20);
        assert_eq!(rig.failures, [], "{policy}");
        let counters = *rig.machine.counters();
        assert!((5..=rotten).contains(&counters.damaged_dirty), "{policy}: each is found once: {rotten}, {counters:?}");
        // Under `selective` there is a class that writes past the cache.
        assert!(policy != "lru" || counters.writes_around == 0, "{counters:?}");
        let contents = rig.read_all();
        let lost = contents.iter().filter(|content| content.is_err()).count();
        assert!((1..=rotten).contains(&(lost as u64)), "{policy}: {lost} of {rotten}");
        for (block, content) in (0..).zip(&contents) {
            match content {
                Ok(content) => rig.versions.check_newest(block, u8::MAX, content).unwrap(),
                Err(failure) => assert_eq!(*failure, Failure::Damaged),
            }
        }
    }
}

/// Outcome: if more units rot than is chance, it is the device. Requests that wait for a unit are told, none waits for
/// ever, and what is not rotten goes on.
/// Promise: store-damaged-unit.
#[test]
fn a_device_that_rots_leaves_no_request_without_an_answer() {
    for policy in ["lru", "selective", "credit", "s3_fifo"] {
        let mut rig = rig(Setup { policy, ..setup(Semantics::Strict) }, 15);
        write(&mut rig, &mut Line::new(), 16, 1500);
        dirty_blocks(&rig).into_iter().for_each(|block| rot(&mut rig, block));
        write_while_it_rots(&mut rig, u64::MAX);
        let damaged = rig.machine.counters().damaged_dirty;
        assert!(damaged > 100, "{policy}: {damaged}");
    }
}

/// Outcome: one unit is damaged while everything is copied to the store. All others are copied, and it is said that it
/// was not everything; when the block is written again, it is.
///
/// Planted breaks that were seen red: the first that is damaged ends it; the pass counts.
/// Promise: store-damaged-unit.
#[test]
fn cleaning_everything_copies_all_that_can_be_read() {
    let mut rig = rig(setup(Semantics::WriteCache), 16);
    (0..200).for_each(|block| while !rig.request(RequestKind::Write, block, u8::MAX) && rig.end_next() {});
    while rig.end_next() {}
    let dirty = dirty_blocks(&rig);
    rot(&mut rig, dirty[dirty.len() / 2]);
    let clean_all = |rig: &mut Rig| {
        rig.machine.clean_all();
        while rig.end_next() {}
        (rig.machine.dirty_units(), rig.machine.clean_passes(), rig.machine.is_cleaning_all())
    };
    assert_eq!(clean_all(&mut rig), (1, 0, false));
    assert!(rig.request(RequestKind::Write, dirty[dirty.len() / 2], u8::MAX));
    while rig.end_next() {}
    assert_eq!(clean_all(&mut rig), (0, 2, false));
    assert_eq!(rig.failures, []);
}

/// Two units are damaged. Outcome: they count once each, though passes and reads meet them again, and the owner hears
/// of them once; when one of them is written again, it is damaged no more, and counts again if its new unit rots, too.
///
/// Planted breaks, seen red: each pass and each read counts; the log hears of a unit at each pass.
#[test]
fn a_damaged_unit_counts_once_until_it_is_written_again() {
    let mut rig = rig(setup(Semantics::WriteCache), 16);
    (0..200).for_each(|block| while !rig.request(RequestKind::Write, block, u8::MAX) && rig.end_next() {});
    while rig.end_next() {}
    let dirty = dirty_blocks(&rig);
    let rotten = [dirty[dirty.len() / 2], dirty[dirty.len() / 2 + 2]];
    rotten.into_iter().for_each(|block| rot(&mut rig, block));
    let ask_all = |rig: &mut Rig| {
        rig.machine.clean_all();
        while rig.end_next() {}
        rotten.into_iter().for_each(|block| while !rig.request(RequestKind::Read, block, u8::MAX) && rig.end_next() {});
        while rig.end_next() {}
        (rig.machine.counters().damaged_dirty, rig.machine.damaged().blocks)
    };
    let ranges = rotten.map(|block| block..block + 1).to_vec();
    assert_eq!(ask_all(&mut rig), (2, 2));
    assert_eq!(rig.machine.damaged().ranges, ranges);
    assert_eq!(rig.machine.take_newly_damaged().unwrap().ranges, ranges);
    assert_eq!(ask_all(&mut rig), (2, 2));
    assert_eq!(rig.machine.take_newly_damaged(), None);
    assert!(rig.request(RequestKind::Write, rotten[0], u8::MAX));
    while rig.end_next() {}
    assert_eq!((rig.machine.counters().damaged_dirty, rig.machine.damaged().blocks), (2, 1));
    rot(&mut rig, rotten[0]);
    assert_eq!(ask_all(&mut rig), (3, 2));
    assert_eq!(rig.machine.take_newly_damaged().unwrap().ranges, ranges[..1]);
}

/// Outcome: copies that the store never ends hold up their own blocks, as long as they are no more than half of all
/// that can be under way. All other sessions go on at the store's speed.
///
/// Planted break that was seen red: a flush waits until nothing is being copied.
/// Promise: cache-stuck.
#[test]
fn a_stuck_copy_holds_up_no_other_block() {
    // So small that less than a batch ever waits for a flush.
    let (mut rig, mut line) = (rig(Setup { units: 200, ..setup(Semantics::Strict) }, 8), Line::new());
    write(&mut rig, &mut line, 16, 1500);
    for _ in 0..DEPTH.cleaning / 2 {
        rig.timing.sticks = Some(Action::Write);
        let from = line.let_in.len();
        write(&mut rig, &mut line, 16, 400);
        assert!(line.longest(from) <= WAIT_MAX, "{} of {WAIT_MAX}", line.longest(from));
    }
    assert_eq!(rig.machine.counters().writes_around, 0);
    rig.free_the_stuck();
    write(&mut rig, &mut line, 1, 10);
    while rig.end_next() {}
    assert_eq!(rig.under_way(), 0);
}

/// Outcome: so does a read that the store never answers, though its block has a unit already, which is given up and
/// cannot be given away.
///
/// Planted break that was seen red: units are made ready in their order only.
#[test]
fn a_stuck_read_holds_up_no_other_block() {
    let (mut rig, mut line) = (rig(Setup { units: 200, ..setup(Semantics::WriteCache) }, 12), Line::new());
    rig.timing.sticks = Some(Action::Read);
    assert!(rig.request(RequestKind::Read, 2399, u8::MAX));
    write(&mut rig, &mut line, 15, 1500);
    assert!(line.longest(0) <= WAIT_MAX, "{} of {WAIT_MAX}", line.longest(0));
    assert_eq!(rig.machine.counters().writes_around, 0);
    rig.free_the_stuck();
    while rig.end_next() {}
    assert_eq!(rig.under_way(), 0);
}

/// Outcome: a flush that the store never ends stops what needs the store: new blocks wait, and go on when it ends. What
/// is in the cache is served meanwhile.
/// Promise: cache-stuck.
#[test]
fn a_stuck_flush_stops_new_blocks_and_nothing_else() {
    let (mut rig, mut line) = (rig(setup(Semantics::WriteCache), 9), Line::new());
    write(&mut rig, &mut line, 16, 1500);
    rig.timing.sticks = Some(Action::Flush);
    let mut random = Random(5);
    let before = line.let_in.len();
    while rig.end_next() {
        line.let_in_who_may(&mut rig);
        assert!(line.let_in.len() - before < 600, "more are let in than there are units");
        while line.len() < 16 {
            let block = random.below(rig.setup.store_blocks);
            line.come(&mut rig, block);
        }
    }
    assert_eq!(line.len(), 16, "they wait for the flush");
    for kind in [RequestKind::Read, RequestKind::Write] {
        let hit = (0..rig.setup.store_blocks).find(|&block| rig.machine.cache().find(block).is_some()).unwrap();
        assert!(rig.request(kind, hit, u8::MAX));
        while rig.end_next() {}
        assert_eq!((rig.under_way(), rig.answered.last().unwrap().kind), (0, kind));
    }
    rig.free_the_stuck();
    write(&mut rig, &mut line, 16, 300);
    assert_eq!(rig.machine.counters().writes_around, 0);
}

/// The log filled on purpose. Outcome: while a snapshot makes room in the journal, writes wait for some of its pages,
/// and never for all.
///
/// Planted break that was seen red: the journal is not paced by the map.
/// Promise: store-journal-full.
#[test]
fn a_journal_that_fills_up_slows_writes_down_and_never_stops_them() {
    let (units, journal_blocks, store_blocks) = (12 * 405, 20, 5400);
    let mut rig = rig(Setup { units, journal_blocks, store_blocks, ..setup(Semantics::WriteCache) }, 10);
    rig.timing.slow = FAST;
    // Rewrites go to units all over the cache, so every page has changed when a snapshot begins.
    write(&mut rig, &mut Line::new(), 16, 7000);
    rig.timing.map = 50 * FAST;
    rig.machine.set_semantics(Semantics::Strict);
    let (mut random, before, snapshots) = (Random(6), rig.answered.len(), rig.machine.counters().snapshots);
    while rig.answered.len() < before + 2000 {
        while rig.under_way() < 16 {
            let block = random.below(rig.setup.store_blocks);
            if !rig.request(RequestKind::Write, block, u8::MAX) {
                break;
            }
        }
        assert!(rig.end_next());
    }
    let snapshots = rig.machine.counters().snapshots - snapshots;
    assert!(snapshots >= 5, "{snapshots} snapshots");
    let longest = rig.answered[before..].iter().map(|one| one.at - one.since).max().unwrap();
    // Twelve pages, eight at once: 100. One round of them, and what else a snapshot and a write do.
    assert!(longest <= (50 + 30) * FAST, "{longest}");
}

/// A rig with no room in its journal, because a snapshot takes for ever, and the block of the write that was told to
/// come again.
fn crowded() -> (Rig, u64) {
    let setup = Setup { units: 10 * 405, journal_blocks: 16, store_blocks: 5000, ..setup(Semantics::WriteCache) };
    let mut rig = rig(setup, 11);
    (rig.timing.map, rig.timing.slow) = (1_000_000, FAST);
    let crowded_at = (0..rig.setup.store_blocks).find(|&block| {
        let is_taken = rig.request(RequestKind::Write, block, u8::MAX);
        while rig.under_way() > 0 {
            assert!(rig.end_next());
        }
        !is_taken
    });
    (rig, crowded_at.expect("the journal is full at last"))
}

/// Outcome: a read does not wait for the journal, hit or miss; a write does.
///
/// Planted break that was seen red: reads are refused as long as the journal is crowded.
/// Promise: store-journal-full.
#[test]
fn a_crowded_journal_is_no_matter_for_reads() {
    let (mut rig, crowded_at) = crowded();
    assert_eq!(rig.machine.paced_percent(), 0, "units are not what is lacking");
    let began = rig.timing.now;
    for block in (0..200).chain(crowded_at..crowded_at + 200) {
        assert!(rig.request(RequestKind::Read, block, u8::MAX));
        while rig.under_way() > 0 {
            assert!(rig.end_next());
        }
    }
    assert!(rig.timing.now - began < 400 * 10 * FAST, "{}", rig.timing.now - began);
    assert!(!rig.request(RequestKind::Write, 0, u8::MAX), "the journal is still crowded");
    rig.settle();
}

/// Outcome: the cache's device fails while writes wait for room in the journal, which there will never be. They are
/// told.
///
/// Planted break that was seen red: a journal is crowded though its device has failed.
/// Promise: store-failing-device.
#[test]
fn a_request_that_waits_for_a_journal_that_fails_is_told() {
    let (mut rig, crowded_at) = crowded();
    rig.machine.refuse_writes();
    for (kind, block) in [(RequestKind::Write, 0), (RequestKind::Write, crowded_at), (RequestKind::Trim, 0)] {
        assert!(rig.request(kind, block, u8::MAX), "{kind:?} of {block} waits for ever");
    }
    assert_eq!(rig.failures, [Failure::Device; 3]);
    rig.settle();
    assert!(rig.read(0).is_ok(), "what is in the cache can be read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever comes in which order, on whatever devices: no request is told to come again that has nothing to wait
    /// for (the rig looks), the first in line is let in within the bound, no write of a whole block goes past the
    /// cache, and every request is answered.
    /// Promise: cache-overload.
    #[test]
    fn whatever_comes_the_first_in_line_is_let_in_within_the_bound(
        units in 40u32..600, journal_blocks in 16u32..80, requests in 1u32..24, cleaning in 1u32..12,
        slow in 1u64..400, map in 1u64..40, reads_of_ten in 0u64..8, is_strict in any::<bool>(), seed in any::<u64>(),
    ) {
        let semantics = if is_strict { Semantics::Strict } else { Semantics::WriteCache };
        let depth = Depth { requests, cleaning };
        let setup = Setup { units, journal_blocks, store_blocks: u64::from(units) * 3, depth, ..setup(semantics) };
        let mut rig = rig(setup, seed);
        (rig.timing.slow, rig.timing.map) = (slow, map);
        let (mut line, mut random) = (Line::new(), Random(seed));
        for _ in 0..u64::from(units) * 4 {
            let block = random.below(rig.setup.store_blocks);
            match random.below(12) {
                one if one < reads_of_ten => _ = rig.request(RequestKind::Read, block, u8::MAX),
                10 => _ = rig.request(RequestKind::Flush, 0, u8::MAX),
                11 => _ = rig.end_next(),
                _ => line.come(&mut rig, block),
            }
            line.let_in_who_may(&mut rig);
            while line.len() > 20 {
                prop_assert!(rig.end_next(), "a request waits, and nothing is under way");
                line.let_in_who_may(&mut rig);
            }
        }
        while rig.end_next() {
            line.let_in_who_may(&mut rig);
        }
        prop_assert_eq!((line.len(), rig.under_way()), (0, 0));
        prop_assert_eq!(rig.machine.counters().writes_around, 0);
        // What the syncer does waits on the store for what others asked of it, and a slot for a request that has one.
        let (requests, cleaning) = (u64::from(requests), u64::from(cleaning));
        let bound = 4 * (cleaning + requests + 2) * slow + 5 * map + 50;
        prop_assert!(line.longest(0) <= bound, "{} of {}", line.longest(0), bound);
    }
}
