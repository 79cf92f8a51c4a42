//! Devices that rot, and devices that are not the right ones. What is left if losses are accepted: `losses.rs`.

use crate::device::{Content, Device};
use crate::rig::{Random, Rig, Setup, policy};
use plimsoll_cache::store::journal::{self, Record};
use plimsoll_cache::store::{
    BLOCK_BYTES, Failure, Identity, Layout, OpenError, RequestKind, Semantics, Superblock, format, open, probe,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Several pages of the map.
pub fn setup() -> Setup {
    Setup { units: 900, store_blocks: 120, ..Setup::small("credit", Semantics::WriteCache) }
}

/// A cache with data, closed or killed. Everything that was written was flushed.
pub fn used(setup: &Setup, seed: u64, is_closed: bool) -> Rig {
    let mut rig = Rig::fresh(setup.clone(), seed);
    (0..700).for_each(|_| rig.step());
    rig.settle();
    rig.request(RequestKind::Flush, 0, u8::MAX);
    rig.settle();
    if is_closed {
        rig.machine.close();
        rig.settle();
        assert!(rig.machine.is_closed());
    }
    rig
}

pub fn spoil(device: &mut Device, block: u64, random: &mut Random) {
    let mut content: Content = device.get(block).clone();
    let bytes = Arc::make_mut(&mut content);
    match random.below(3) {
        0 => bytes[random.below(BLOCK_BYTES as u64) as usize] ^= 1 << random.below(8),
        1 => bytes.fill(0),
        _ => bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
    }
    device.put(block, content);
}

/// What happened to a block or two that were spoiled.
#[derive(Debug, Default)]
struct Found {
    refused: u32,
    told: u32,
    unharmed: u32,
}

/// Spoils each block of the device in turn. Nothing is served but the newest version, or the word that it is lost.
fn spoil_each(is_closed: bool, seed: u64) -> Found {
    let (setup, mut random, mut found) = (setup(), Random(seed), Found::default());
    let rig = used(&setup, seed, is_closed);
    let (metadata, newest) = (setup.first_unit(), newest_of_journal(&rig.cache, &setup));
    // The newest journal block may always be one that was never finished: then its records are lost, and may be of
    // these blocks.
    let is_newest = |block| !is_closed && block == setup.layout().journal_block(newest);
    let named: Vec<u64> = records_of(&rig.cache, &setup, newest).iter().map(|record| record.block).collect();
    assert!(is_closed || !named.is_empty());
    // Units that hold something, and some others.
    for block in (0..setup.layout().blocks()).filter(|block| *block < metadata + 80) {
        let mut cache = rig.cache.after_kill();
        spoil(&mut cache, block, &mut random);
        match setup.open(&mut cache) {
            Err(OpenError::Damaged { report }) => {
                assert!(block < metadata && report.has_losses() && !is_newest(block), "block {block}: {report:?}");
                found.refused += 1;
                continue;
            }
            Err(error) => panic!("block {block}: {error}"),
            Ok(_) => {}
        }
        let mut next = Rig::new(setup.clone(), cache, rig.store.after_kill(), rig.versions.clone(), seed);
        let contents = next.read_all();
        let mut is_told = false;
        for (at, content) in contents.iter().enumerate() {
            match content {
                Ok(content) if is_newest(block) && named.contains(&(at as u64)) => {
                    rig.versions.check_ever(at as u64, content).unwrap()
                }
                Ok(content) => rig.versions.check_newest(at as u64, u8::MAX, content).unwrap(),
                Err(failure) => {
                    assert_eq!(*failure, Failure::Damaged, "block {block}");
                    assert!(block >= metadata, "block {block} is no unit");
                    is_told = true;
                }
            }
        }
        found.told += u32::from(is_told || next.machine.counters().damaged_clean > 0);
        found.unharmed += u32::from(!is_told);
    }
    found
}

/// Promise: store-damage.
#[test]
fn a_spoiled_block_of_a_closed_cache_is_never_served_as_good() {
    let found = spoil_each(true, 21);
    println!("{found:?}");
    assert!(found.refused >= 3 && found.told > 10 && found.unharmed > 10, "{found:?}");
}

/// Promise: store-damage.
#[test]
fn a_spoiled_block_of_a_killed_cache_is_never_served_as_good() {
    let found = spoil_each(false, 22);
    println!("{found:?}");
    assert!(found.refused >= 5 && found.told > 10, "{found:?}");
}

/// Promise: store-foreign.
#[test]
fn a_cache_of_another_store_or_of_another_size_is_refused() {
    let setup = Setup::small("lru", Semantics::Strict);
    let mut cache = used(&setup, 24, true).cache;
    let opens =
        |cache: &mut Device, identity| open(cache, identity, &setup.config(), policy("lru"), false).err().unwrap();
    let other = Identity { store: [3; 16], ..setup.identity() };
    assert!(matches!(opens(&mut cache, other), OpenError::OtherStore));
    let smaller = Identity { store_blocks: setup.store_blocks - 1, ..setup.identity() };
    assert!(matches!(opens(&mut cache, smaller), OpenError::OtherSize { was_blocks: 48, is_blocks: 47 }));
    let longer = Identity { store_blocks: setup.store_blocks + 1, ..setup.identity() };
    assert!(matches!(opens(&mut cache, longer), OpenError::OtherSize { was_blocks: 48, is_blocks: 49 }));
    let mut truncated = Device::new(cache_blocks(&setup) - 1);
    (0..cache_blocks(&setup) - 1).for_each(|block| truncated.put(block, cache.get(block).clone()));
    assert!(matches!(opens(&mut truncated, setup.identity()), OpenError::TooSmall { .. }));
    assert!(matches!(opens(&mut Device::new(100), setup.identity()), OpenError::NoCache));
    let mut both = cache.clone();
    spoil_superblocks(&mut both);
    assert!(matches!(opens(&mut both, setup.identity()), OpenError::NoSuperblock));
}

fn cache_blocks(setup: &Setup) -> u64 {
    setup.layout().blocks()
}

fn spoil_superblocks(device: &mut Device) {
    for block in 0..2 {
        let mut content = device.get(block).clone();
        Arc::make_mut(&mut content)[20] ^= 1;
        device.put(block, content);
    }
}

/// The last number that can be read, in a block with the right checksum: the next one could not be.
/// Promise: store-numbers.
#[test]
fn numbers_that_no_cache_counts_up_to_are_refused_and_made_anew() {
    let setup = Setup::small("lru", Semantics::Strict);
    let mut rig = used(&setup, 45, true);
    let superblock = probe(&mut rig.cache).unwrap();
    let last = (1 << 63) - 1;
    for spent in [Superblock { generation: last, ..superblock }, Superblock { journal_sequence: last, ..superblock }] {
        // On one of the two only: a crash while it was made anew.
        for slots in [0..2, 1..2] {
            let mut cache = rig.cache.after_kill();
            slots.for_each(|slot| cache.put(slot, Arc::new(spent.encode())));
            assert!(matches!(setup.open(&mut cache).err().unwrap(), OpenError::Spent), "{spent:?}");
            format(&mut cache, setup.identity(), [7; 16], setup.layout()).unwrap();
            assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0);
        }
    }
}

/// The journal and the map of the cache that was there before are all over the device.
/// Promise: store-foreign.
#[test]
fn nothing_of_an_older_cache_is_adopted() {
    let setup = Setup::small("lru", Semantics::Strict);
    for seed in 30..36 {
        let mut cache = used(&setup, seed, seed % 2 == 0).cache;
        format(&mut cache, setup.identity(), [7; 16], setup.layout()).unwrap();
        assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0);
        // With a journal elsewhere, its blocks are where others were.
        let layout = Layout { units: 15, journal_blocks: 17 };
        format(&mut cache, setup.identity(), [8; 16], layout).unwrap();
        assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0);
    }
}

/// An older copy of a journal's block, which is whole and of this cache, is not taken for the one that should be there.
/// Promise: store-damage.
#[test]
fn an_older_copy_of_the_journal_is_noticed() {
    let setup = Setup::small("lru", Semantics::Strict);
    let mut rig = Rig::fresh(setup.clone(), 40);
    let ring = u64::from(setup.journal_blocks);
    let sequence = |content: &Content| u64::from_le_bytes(content[16..24].try_into().unwrap());
    let mut copies: BTreeMap<u64, Content> = BTreeMap::new();
    let mut noticed = 0;
    for _ in 0..900 {
        rig.step();
        for block in 2..2 + ring {
            let content = rig.cache.get(block);
            copies.insert(sequence(content), content.clone());
        }
        let newest = *copies.keys().last().unwrap();
        let live = probe(&mut rig.cache).unwrap().journal_sequence.max(ring + 1)..newest;
        let random = rig.random.below(ring);
        for sequence in live.filter(|sequence| sequence % ring == random) {
            let mut cache = rig.cache.after_kill();
            cache.put(2 + sequence % ring, copies[&(sequence - ring)].clone());
            assert!(matches!(
                setup.open(&mut cache).err().unwrap(),
                OpenError::Damaged { report } if report.lost_journal_blocks > 0
            ));
            noticed += 1;
        }
    }
    assert!(noticed > 20, "{noticed}");
}

/// The number of the newest block of the journal.
pub fn newest_of_journal(cache: &Device, setup: &Setup) -> u64 {
    let sequence = |block| u64::from_le_bytes(cache.get(block)[16..24].try_into().unwrap());
    (2..2 + u64::from(setup.journal_blocks)).map(sequence).max().unwrap()
}

/// What the block of the journal with that number says.
pub fn records_of(cache: &Device, setup: &Setup, sequence: u64) -> Vec<Record> {
    let (block, uuid) = (cache.get(setup.layout().journal_block(sequence)), probe(&mut cache.clone()).unwrap().uuid);
    let head = journal::head(block, &uuid).filter(|head| head.sequence == sequence);
    head.map_or(Vec::new(), |head| journal::records(block, &head).collect())
}

/// Two histories of one cache, as when its device was copied: a block of the one may have the number that comes next in
/// the other, and is not taken for what comes next.
#[test]
fn a_journal_of_another_history_is_noticed() {
    let setup = Setup::small("lru", Semantics::Strict);
    let ring = u64::from(setup.journal_blocks);
    for seed in 46..56 {
        let common = used(&setup, seed, false);
        let history = |seed, is_over: &dyn Fn(u64) -> bool| {
            let devices = (common.cache.after_kill(), common.store.after_kill());
            let mut rig = Rig::new(setup.clone(), devices.0, devices.1, common.versions.clone(), seed);
            while !is_over(newest_of_journal(&rig.cache, &setup)) {
                rig.step();
            }
            rig
        };
        let began = newest_of_journal(&common.cache, &setup);
        let mut ours = history(1, &|newest| newest == began + 3);
        ours.settle();
        let next = newest_of_journal(&ours.cache, &setup) + 1;
        let theirs = history(2, &|newest| newest == next);
        let mut cache = ours.cache.after_kill();
        assert!(setup.open(&mut cache.after_kill()).is_ok());
        cache.put(2 + next % ring, theirs.cache.get(2 + next % ring).clone());
        let error = setup.open(&mut cache).err().expect("a block of another history is taken for the next");
        assert!(matches!(&error, OpenError::Damaged { report } if report.lost_journal_blocks == 1), "{error}");
        // It is unknown which of the two is true: nothing of either is kept.
        let accepted = setup.accepting().find(&mut cache).unwrap().report;
        assert_eq!((accepted.units, accepted.lost_journal_blocks), (0, 1), "{accepted:?}");
        assert!(accepted.given_up_units > 0);
    }
}

/// A page of the map that the device never wrote though it said so: the older page in its place is whole. Outcome: the
/// start notices it. Since it cannot tell which page is old, it refuses the cache, with losses accepted, too, and does
/// not touch it.
///
/// Planted break: a map of whole pages is believed.
/// Promise: store-damage.
#[test]
fn an_older_copy_of_a_page_is_noticed_and_nothing_of_that_map_believed() {
    let (setup, mut noticed) = (setup(), 0);
    for seed in 90..94 {
        let mut rig = used(&setup, seed, true);
        let older = rig.cache.after_kill();
        rig.machine.resume();
        (0..700).for_each(|_| rig.step());
        rig.settle();
        rig.machine.close();
        rig.settle();
        for block in setup.layout().map_start(0)..setup.first_unit() {
            let mut cache = rig.cache.after_kill();
            cache.put(block, older.get(block).clone());
            (cache.writes, cache.fails_at) = (0, None);
            for setup in [setup.clone(), setup.accepting()] {
                match setup.find(&mut cache) {
                    Err(OpenError::OtherMap) => noticed += 1,
                    Err(error) => panic!("page at {block}: {error}"),
                    Ok(_) => continue,
                }
                assert_eq!(cache.writes, 0);
            }
        }
    }
    assert!(noticed >= 8, "{noticed}");
}
