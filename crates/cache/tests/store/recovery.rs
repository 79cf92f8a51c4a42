//! Crashes and failures in the midst of a start, at each of its writes and flushes.

use crate::damage::{newest_of_journal, setup, used};
use crate::device::{Device, Recorded, zeroes};
use crate::rig::{Random, Rig, Setup};
use crate::versions::Versions;
use plimsoll_cache::store::{Failure, OpenError, Semantics, format, give_up, map, probe};
use std::sync::Arc;

type Contents = Vec<Result<Box<[u8]>, Failure>>;

/// What all blocks hold after a start.
fn contents_of(setup: &Setup, cache: Device, store: &Device) -> Result<Contents, String> {
    setup.find(&mut cache.clone()).map_err(|error| format!("it is not opened: {error}"))?;
    Ok(Rig::new(setup.clone(), cache, store.clone(), Versions::new(setup.store_blocks), 1).read_all())
}

/// Whether all blocks hold what they did. If pages were `torn` that an unfinished snapshot had written, they are lost
/// with those that were before: then what the store has is right, too.
fn assert_same(found: &Contents, expected: &Contents, torn: Option<&Device>) -> Result<(), String> {
    let is_lost = |block: usize| {
        torn.is_some_and(|store| found[block].as_ref().is_ok_and(|content| content[..] == store.get(block as u64)[..]))
    };
    let differs = |block: &usize| found[*block] != expected[*block] && !is_lost(*block);
    (0..found.len()).find(differs).map_or(Ok(()), |block| Err(format!("block {block} is not what it was before")))
}

/// Ways in which a device may look after a crash: a kill; nothing, all or some of what was not flushed; or, and that is
/// said, some of it torn.
fn ways(moment: &Device, random: &mut Random) -> Vec<(Device, bool)> {
    let mut ways = vec![(moment.after_kill(), false)];
    ways.extend([0, u8::MAX].map(|sectors| (moment.after_power_failure(|_, _| sectors), false)));
    for _ in 0..2 {
        ways.push((moment.after_power_failure(|_, _| random.below(2) as u8 * u8::MAX), false));
        ways.push((moment.after_power_failure(|_, _| random.below(256) as u8), true));
    }
    ways
}

/// Whether a snapshot was under way, and pages are lost: what is torn of the first is lost with the others.
fn may_lose_more(setup: &Setup, cache: &Device) -> bool {
    setup.accepts_losses && !unfinished(setup, cache).is_empty()
}

/// All that was done is durable.
fn durable(device: &Device) -> Device {
    device.after_power_failure(|_, write| if write.is_done { u8::MAX } else { 0 })
}

/// Starts a cache, and crashes that after each of its writes and flushes, in several ways. Another start has to find of
/// each block what the first one found that was not disturbed. Answers how many crashes there were.
pub fn crash_inside(setup: &Setup, cache: &Device, store: &Device, random: &mut Random) -> Result<u64, String> {
    let (mut recorded, store) = (Recorded::new(cache.after_kill()), durable(store));
    setup.find(&mut recorded).map_err(|error| format!("it is not opened: {error}"))?;
    let expected = contents_of(setup, recorded.device, &store)?;
    let (may_lose_more, mut crashes) = (may_lose_more(setup, cache), 0);
    for (at, moment) in recorded.moments.iter().enumerate() {
        for (crashed, is_torn) in ways(moment, random) {
            let found = contents_of(setup, crashed, &store)
                .and_then(|found| assert_same(&found, &expected, (is_torn && may_lose_more).then_some(&store)))
                .map_err(|error| format!("crashed after operation {at} of a start: {error}"));
            found?;
            crashes += 1;
        }
    }
    Ok(crashes)
}

/// The same, but each write and flush in turn fails, and then the power, or not. Answers how many failed.
fn fail_inside(name: &str, setup: &Setup, cache: &Device, store: &Device, random: &mut Random) -> u64 {
    let (cache, store) = (durable(cache), durable(store));
    let expected = contents_of(setup, cache.clone(), &store).unwrap();
    let may_lose_more = may_lose_more(setup, &cache);
    for fails_at in 0.. {
        let mut device = cache.clone();
        (device.writes, device.fails_at) = (0, Some(fails_at));
        match setup.find(&mut device) {
            Ok(_) => {
                assert_eq!(device.writes, fails_at, "a failure was not noticed");
                return fails_at;
            }
            Err(error) => assert!(matches!(error, OpenError::Device(_)), "operation {fails_at}: {error}"),
        }
        device.fails_at = None;
        for (after, is_torn) in ways(&device, random) {
            let torn = (is_torn && may_lose_more).then_some(&store);
            let found = contents_of(setup, after, &store).and_then(|found| assert_same(&found, &expected, torn));
            found.unwrap_or_else(|error| panic!("{name}: operation {fails_at} failed: {error}"));
        }
    }
    unreachable!("some start succeeds")
}

/// A cache that works until it is so.
fn until(setup: &Setup, seed: u64, mut is_so: impl FnMut(&Device) -> bool) -> Rig {
    let mut rig = used(setup, seed, false);
    for _ in 0..50_000 {
        rig.step();
        if is_so(&rig.cache) {
            return rig;
        }
    }
    panic!("it is never so")
}

/// A cache with so many blocks of its journal in use.
fn with_journal(setup: &Setup, seed: u64, blocks: u64) -> Rig {
    until(setup, seed, |cache| {
        let start = probe(&mut cache.clone()).unwrap().journal_sequence;
        newest_of_journal(cache, setup) + 1 >= start + blocks
    })
}

/// The pages that a snapshot has written which is not finished.
fn unfinished(setup: &Setup, cache: &Device) -> Vec<u32> {
    let (superblock, layout) = (probe(&mut cache.clone()).unwrap(), setup.layout());
    let blocks = layout.map_start(0)..layout.map_start(2);
    let heads = blocks.filter_map(|block| map::head(cache.get(block), &superblock.uuid));
    heads.filter(|head| head.generation > superblock.generation).map(|head| head.page).collect()
}

/// A cache with so much of its journal in use that a start writes the map as a whole: seven blocks are kept for the
/// end of a snapshot.
fn with_full_journal(setup: &Setup, seed: u64) -> Rig {
    with_journal(setup, seed, u64::from(setup.journal_blocks) - 7 + 1)
}

/// Nothing of the block is as it was: else what is torn while it is written anew may be whole again, by chance.
fn spoil(cache: &mut Device, block: u64) {
    let mut content = cache.get(block).clone();
    Arc::make_mut(&mut content).iter_mut().for_each(|byte| *byte ^= 0x55);
    cache.put(block, content);
}

/// One block of the journal that others follow.
fn spoil_tail(cache: &mut Device, setup: &Setup, random: &mut Random) {
    let (start, newest) = (probe(cache).unwrap().journal_sequence, newest_of_journal(cache, setup));
    assert!(newest > start, "the journal has one block");
    spoil(cache, setup.layout().journal_block(start + random.below(newest - start)));
}

/// Both slots of one page and one of another.
fn spoil_pages(cache: &mut Device, setup: &Setup, random: &mut Random) {
    let (layout, page) = (setup.layout(), random.below(u64::from(setup.layout().map_pages())) as u32);
    let other = (page + 1) % layout.map_pages();
    for block in [layout.map_block(0, page), layout.map_block(1, page), layout.map_block(1, other)] {
        spoil(cache, block);
    }
}

/// What a start has to write: superblocks, pages of the map, the whole map, and all that beside what is lost.
fn devices(seed: u64) -> Vec<(&'static str, Setup, Device, Device)> {
    let (wide, mut random) = (setup(), Random(seed));
    let accepting = wide.accepting();
    let full = with_full_journal(&wide, seed);
    let killed = with_journal(&wide, seed, 4);
    let small = with_full_journal(&Setup::small("lru", Semantics::Strict), seed);
    let made = |rig: &Rig, change: &mut dyn FnMut(&mut Device)| {
        let mut cache = durable(&rig.cache);
        change(&mut cache);
        (cache, durable(&rig.store))
    };
    let mut all = Vec::new();
    let mut add = |name, setup: &Setup, (cache, store)| all.push((name, setup.clone(), cache, store));
    add("a superblock", &wide, made(&killed, &mut |cache| cache.put(1, zeroes())));
    add("full", &wide, made(&full, &mut |_| {}));
    add("full, small, a superblock", &small.setup.clone(), made(&small, &mut |cache| cache.put(0, zeroes())));
    add("tail", &accepting, made(&killed, &mut |cache| spoil_tail(cache, &wide, &mut random)));
    add("pages", &accepting, made(&killed, &mut |cache| spoil_pages(cache, &wide, &mut random)));
    add("pages, full", &accepting, made(&full, &mut |cache| spoil_pages(cache, &wide, &mut random)));
    let midway = until(&wide, seed, |cache| !unfinished(&wide, cache).is_empty());
    add(
        "pages, an unfinished snapshot",
        &accepting,
        made(&midway, &mut |cache| {
            let page = (unfinished(&wide, cache)[0] + 1) % wide.layout().map_pages();
            (0..2).for_each(|slot| spoil(cache, wide.layout().map_block(slot, page)));
        }),
    );
    let everything = &mut |cache: &mut Device| {
        cache.put(1, zeroes());
        spoil_tail(cache, &wide, &mut random);
        spoil_pages(cache, &wide, &mut random);
    };
    add("tail, pages, a superblock", &accepting, made(&full, everything));
    all
}

/// A start is crashed after each of its writes and flushes: one that repairs a superblock, one that writes the map
/// because the journal is full, and those that give up what is damaged. Outcome: the next one finds of each block what
/// the first one found.
///
/// Planted breaks: the superblock is not written after the map, but before it; a lost page is written into the slot
/// that held, so that the older one is believed after the crash; all pages are written where some are lost; what an
/// unfinished snapshot has written is left as it is beside lost pages, and holds from then on.
/// Promise: store-crashed-start.
#[test]
fn a_start_that_is_crashed_at_any_write_finds_the_same_the_next_time() {
    let mut crashes = 0;
    for seed in 1..5 {
        for (name, setup, cache, store) in devices(seed) {
            let count = crash_inside(&setup, &cache, &store, &mut Random(seed));
            let count = count.unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
            assert!(count >= 21, "{name}, seed {seed}: {count} crashes");
            crashes += count;
        }
    }
    println!("{crashes} crashes");
}

/// Each write and flush of such a start fails. Outcome: it says so, and the next one finds the same.
///
/// Planted break: the flush of the map's pages may fail.
/// Promise: store-crashed-start.
#[test]
fn a_start_that_fails_at_any_write_finds_the_same_the_next_time() {
    for seed in 1..5 {
        for (name, setup, cache, store) in devices(seed) {
            let count = fail_inside(name, &setup, &cache, &store, &mut Random(seed));
            assert!(count >= 5, "{name}, seed {seed}: {count} failed");
        }
    }
}

/// Something that is done with a device; says whether it could be.
type Done<'a> = &'a dyn Fn(&mut Recorded) -> bool;

/// A snapshot is killed when its first superblock is written and not flushed. The next start repairs the other one, or
/// an operator makes the cache anew or gives it up, and the power fails meanwhile. Outcome: one of both is whole,
/// though all is torn that may be.
///
/// Planted breaks that were seen red: the device is not flushed before a superblock is repaired; nor before one is
/// given up.
/// Promise: store-superblock.
#[test]
fn a_superblock_that_may_be_torn_is_durable_before_the_other_one_is_written() {
    let setup = setup();
    let is_loose = |cache: &Device| cache.volatile.iter().any(|write| write.block == 0 && write.is_done);
    let killed = until(&setup, 1, is_loose).cache.after_kill();
    let (identity, layout) = (setup.identity(), setup.layout());
    let operations: [(&str, Done<'_>); 3] = [
        ("start", &|cache| setup.find(cache).is_ok()),
        ("make", &|cache| format(cache, identity, [9; 16], layout).is_ok()),
        ("give up", &|cache| give_up(cache, identity, [9; 16], layout).is_ok()),
    ];
    for (name, operation) in operations {
        let mut recorded = Recorded::new(killed.clone());
        assert!(operation(&mut recorded), "{name}");
        assert!(recorded.moments.len() >= 5, "{name}: {} operations", recorded.moments.len());
        for (at, moment) in recorded.moments.iter().enumerate() {
            // Of a superblock, the first sector says everything, and the last one has the checksum.
            let mut torn = moment.after_power_failure(|_, write| if write.block < 2 { 1 } else { u8::MAX });
            let found = probe(&mut torn);
            assert!(!matches!(found, Err(OpenError::NoSuperblock)), "{name}, operation {at}: neither is whole");
        }
    }
}
