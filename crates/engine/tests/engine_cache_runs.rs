//! What a cache asks of its volume: blocks of one class that lie one behind the other in one request, and each with an
//! answer of its own.

use plimsoll_core::{Class, Operation};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::{BlockTag, BlockTags, EngineConfig, RECORDER_EVENTS_DEFAULT, RecordedRequest, Recording};
use plimsoll_executor::{Executor, ExecutorConfig, Policy, Rules};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{
    BLOCK, PATIENCE, Served, cache_of, cache_settings, cached, content, file_config, memory, pause, profile,
};
use std::sync::Arc;

const BLOCKS: u64 = 1024;
/// Clients' requests at once; more than the blocks of one of them.
const DEPTH: u32 = 4;

fn blocks(range: std::ops::Range<u64>) -> Vec<u8> {
    range.flat_map(content).collect()
}

/// Fills the volume past its cache: by a write that is larger than the cache; only the last part of it stays.
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

/// Clients that go on asking: places become free one after the other, as blocks that were read come into their units.
///
/// Red if blocks are submitted one by one as there is room, and if they are put anywhere, into places that are not
/// together.
#[test]
fn what_is_read_in_a_stream_is_not_asked_for_block_by_block() {
    const EACH: u64 = 2048;
    const STREAMS: u64 = 3;
    let volume = memory("v", STREAMS * EACH * BLOCK, 0);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let settings = CacheSettings { size_bytes: Some(2 << 20), ..cache_settings(directory.path().join("fast")) };
    let found = FoundCache::find(settings, &volume).unwrap();
    let model = |name: &str| plimsoll_devices::build(name, 1).unwrap();
    let served = Served::new(EngineConfig::emulated(model("raid1e-5"), "noop"), vec![volume]);
    served.engine.attach_cache("v", found.emulated(model("ssd.x25-e"), PATIENCE)).unwrap();
    let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    std::thread::scope(|scope| {
        for stream in 0..STREAMS {
            let served = &served;
            scope.spawn(move || {
                let mut client = served.connect("v", DEPTH, true);
                let mut found = vec![0; 128 * BLOCK as usize];
                for first in (stream * EACH..(stream + 1) * EACH).step_by(128) {
                    client.read(first * BLOCK, &mut found).unwrap();
                }
            });
        }
    });
    let reads = asked(&mut recording, Operation::Read);
    assert_eq!(reads.iter().map(|&(_, length)| u64::from(length)).sum::<u64>(), STREAMS * EACH * BLOCK);
    assert!((reads.len() as u64) < STREAMS * EACH / 32, "{} requests for {} blocks", reads.len(), STREAMS * EACH);
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Written here and there, and copied to the store in its order.
///
/// Red if each is copied when it has been read, and if those of a turn are taken in the order of their units.
#[test]
fn what_is_dirty_one_behind_the_other_is_written_to_the_store_at_once() {
    const DIRTY: u64 = 256;
    let (served, _directory) =
        cached(EngineConfig::new(profile(), "noop"), memory("v", BLOCKS * BLOCK, 0), |settings| {
            settings.size_bytes = Some(4 << 20)
        });
    let mut client = served.connect("v", DEPTH, true);
    // Within each 128 KiB by turns from the front and from behind: units are not in the order of blocks.
    for group in (0..DIRTY).step_by(32) {
        for at in 0..32 {
            let block = group + if at % 2 == 0 { at / 2 } else { 31 - at / 2 };
            client.write(block * BLOCK, &content(block), false).unwrap();
        }
    }
    // Nothing waits for the journal.
    client.flush().unwrap();
    let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    served.engine.flush_cache("v").unwrap();
    let mut writes = asked(&mut recording, Operation::Write);
    writes.sort();
    let expected: Vec<_> = (0..DIRTY).step_by(32).map(|first| (first * BLOCK, 128 << 10)).collect();
    assert_eq!(writes, expected);
    // From the store itself.
    served.engine.detach_cache("v").unwrap();
    let mut found = vec![0; (DIRTY * BLOCK) as usize];
    client.read(0, &mut found).unwrap();
    assert!(found == blocks(0..DIRTY));
    served.engine.shutdown(PATIENCE).unwrap();
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

/// Classes are never merged. Planted break that was seen red: all blocks of a request are of the class of the last of
/// them.
/// Promise: classes-misses.
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

/// A client discards 256 MiB, of which the cache has nothing but a block here and there. Outcome: the slow device is
/// asked for as few requests as without a cache, and for those blocks: in pieces of 16 MiB, or of 1 MiB where zeroes
/// are written. What is beside is still there.
///
/// Planted break that was seen red: no range goes past the cache (1,123 requests).
/// Promise: cache-discard.
#[test]
fn a_discard_of_what_is_not_in_the_cache_is_a_few_requests() {
    const TRIMMED: u64 = 65_536;
    let volume = memory("v", 2 * TRIMMED * BLOCK, 0);
    let (served, _directory) = cached(EngineConfig::new(profile(), "noop"), volume, |_| {});
    let mut client = served.connect("v", DEPTH, true);
    for block in [0, 1000, 1001, 30_000, TRIMMED + 1] {
        client.write(block * BLOCK, &content(block), false).unwrap();
    }
    for command in [Command::Trim, Command::WriteZeroes] {
        let mut recording = served.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        // Neither its first block nor its last is a whole one.
        let (offset, length) = (BLOCK / 2, (TRIMMED * BLOCK) as u32);
        client.submit(0, command, CommandFlags::NONE, offset, length).unwrap();
        client.send_submitted().unwrap();
        assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
        let (operation, most) = match command {
            Command::Trim => (Operation::Trim, 16 + 8),
            _ => (Operation::WriteZeroes, 256 + 8),
        };
        let asked = asked(&mut recording, operation);
        assert!(asked.len() <= most, "{} requests: {asked:?}", asked.len());
        assert!(asked.iter().map(|&(_, length)| u64::from(length)).sum::<u64>() >= (TRIMMED - 5) * BLOCK, "{asked:?}");
    }
    let mut found = vec![1; 2 * BLOCK as usize];
    for block in [1, 1000, 29_999] {
        client.read(block * BLOCK, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == 0), "block {block}");
    }
    client.read((TRIMMED + 1) * BLOCK, &mut found[..BLOCK as usize]).unwrap();
    assert!(found[..BLOCK as usize] == content(TRIMMED + 1));
    client.flush().unwrap();
    served.engine.shutdown(PATIENCE).unwrap();
}
