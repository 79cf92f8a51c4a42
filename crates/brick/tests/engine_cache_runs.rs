//! What a cache asks of its volume: blocks of one class that lie one behind the other in one request, and each with an answer of its own.

mod engine_support;

use engine_support::{BLOCK, PATIENCE, Served, cache_of, cached, content, file_config, memory, pause, profile};
use plimsoll_brick::backend::{Backing, Volume, VolumeConfig};
use plimsoll_brick::engine::{BlockTag, BlockTags, EngineConfig, RECORDER_EVENTS_DEFAULT, RecordedRequest, Recording};
use plimsoll_brick::nbd::Client;
use plimsoll_core::{Class, Operation};
use plimsoll_executor::{Executor, ExecutorConfig, Policy, Rules};
use std::sync::Arc;

const BLOCKS: u64 = 1024;
/// Clients' requests at once; more than the blocks of one of them.
const DEPTH: u32 = 4;

fn blocks(range: std::ops::Range<u64>) -> Vec<u8> {
    range.flat_map(content).collect()
}

/// Fills the volume past its cache: by a write that is larger than the cache, whose last part is all that stays.
fn fill(client: &mut Client) {
    for first in (0..BLOCKS).step_by(64) {
        client.write(first * BLOCK, &blocks(first..first + 64), true).unwrap();
    }
}

/// Requests of an operation that the store got, in the order in which they came.
fn recorded(recording: &mut Recording, operation: Operation) -> Vec<RecordedRequest> {
    recording.stop();
    let mut all = Vec::new();
    while !recording.is_over() {
        all.extend(recording.take(1000));
        pause();
    }
    all.extend(recording.take(usize::MAX));
    all.retain(|record| record.operation == operation);
    all
}

/// Where they are, and of how many bytes.
fn asked(recording: &mut Recording, operation: Operation) -> Vec<(u64, u32)> {
    recorded(recording, operation).iter().map(|record| (record.offset, record.length)).collect()
}

/// Everything clean and nothing in the cache of what is read next.
fn filled(config: EngineConfig, volume: Volume) -> (Served, Client, tempfile::TempDir) {
    let (served, directory) = cached(config, volume, |settings| settings.size_bytes = Some(2 << 20));
    let mut client = served.connect("v", DEPTH, true);
    fill(&mut client);
    served.engine.flush_cache("v").unwrap();
    (served, client, directory)
}

fn hits_of(served: &Served) -> u64 {
    cache_of(served).classes.iter().map(|class| class.read_hits).sum()
}

/// Red if each block is a request, and if its bytes are those of another slot.
#[test]
fn what_misses_one_behind_the_other_is_read_at_once() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = Volume::open(file_config("v", &directory.path().join("store"), Some(BLOCKS * BLOCK))).unwrap();
    let backing = Backing::CompressedMemory { size_bytes: BLOCKS * BLOCK, level: 1 };
    let config = VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let compressed = Volume::open(config).unwrap();
    let rules = Rules::Fixed(Policy::COMBO);
    let executor =
        Arc::new(Executor::start(ExecutorConfig { threads: 2, rules, requests_max: 1024, seed: 1 }).unwrap());
    for volume in [memory("v", BLOCKS * BLOCK, 0), file, compressed] {
        let config = EngineConfig { executor: Some(executor.clone()), ..EngineConfig::new(profile(), "noop") };
        let (served, mut client, _directory) = filled(config, volume);
        let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        let mut found = vec![0; 75 * BLOCK as usize];
        client.read(10 * BLOCK, &mut found).unwrap();
        assert!(found == blocks(10..85));
        let reads = asked(&mut recording, Operation::Read);
        assert_eq!(reads, [(10 * BLOCK, 256 << 10), (74 * BLOCK, 44 << 10)]);
        served.engine.shutdown(PATIENCE).unwrap();
    }
}

/// Where the store ends in the middle of a run. Red if what failed is not asked for once more.
#[test]
fn a_block_that_fails_takes_no_other_with_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("store");
    let file = Volume::open(file_config("v", &path, Some(BLOCKS * BLOCK))).unwrap();
    let (served, mut client, _directory) = filled(EngineConfig::new(profile(), "noop"), file);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(12 * BLOCK).unwrap();
    let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    let mut found = vec![0; 4 * BLOCK as usize];
    assert!(client.read(10 * BLOCK, &mut found).is_err());
    let (hits, mut block) = (hits_of(&served), vec![0; BLOCK as usize]);
    for at in [10, 11] {
        client.read(at * BLOCK, &mut block).unwrap();
        assert!(block == content(at));
    }
    assert_eq!(hits_of(&served), hits + 2, "those that could be read are in the cache");
    assert!(client.read(12 * BLOCK, &mut block).is_err());
    let reads = asked(&mut recording, Operation::Read);
    let each = [10, 11, 12, 13].map(|at| (at * BLOCK, BLOCK as u32));
    let expected = [&[(10 * BLOCK, 4 * BLOCK as u32)][..], &each, &[(12 * BLOCK, BLOCK as u32)]].concat();
    assert_eq!(reads, expected);
}

/// Says the class of each block by its place.
struct ByPlace(fn(u64) -> u8);

impl BlockTags for ByPlace {
    fn tag(&self, _: Operation, offset: u64) -> BlockTag {
        BlockTag { class: Class::new((self.0)(offset / BLOCK)).unwrap(), ..BlockTag::default() }
    }
}

/// Classes are never merged. Planted break that was seen red: all blocks of a request are of the class of the last of them.
#[test]
fn what_misses_is_asked_for_by_the_class_of_each_block() {
    const CLASSES: fn(u64) -> u8 = |block| if block < 12 { 4 } else { 10 };
    let (served, mut client, _directory) = filled(EngineConfig::new(profile(), "noop"), memory("v", BLOCKS * BLOCK, 0));
    served.engine.set_tags("v", Some(Box::new(ByPlace(CLASSES)))).unwrap();
    let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    let mut found = vec![0; 6 * BLOCK as usize];
    client.read(9 * BLOCK, &mut found).unwrap();
    assert!(found == blocks(9..15));
    let reads = recorded(&mut recording, Operation::Read);
    let reads: Vec<_> = reads.iter().map(|read| (read.offset / BLOCK, read.length, read.class.number())).collect();
    assert_eq!(reads, [(9, 3 * BLOCK as u32, 4), (12, 3 * BLOCK as u32, 10)]);
    let status = cache_of(&served);
    let counted =
        |number: u8| status.classes.iter().find(|class| class.number == number).map_or(0, |class| class.reads);
    assert_eq!((counted(4), counted(10)), (3, 3), "as the cache counts them");
}
