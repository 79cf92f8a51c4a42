//! Reading ahead, as clients, other tenants and the device see it.

use plimsoll_cache::policies;
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, Operation, Rate, Span};
use plimsoll_engine::backend::{Volume, VolumeInfo};
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_engine::{EngineConfig, EngineStatus, ReadAheadStatus, RecordedRequest, Recording, SessionConfig};
use plimsoll_protocols::nbd::wire::Request;
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno, Negotiated};
use plimsoll_serve::nbd::client::ClientError;
use plimsoll_serve::nbd::{Client, NbdConnection, export_info};
use plimsoll_testkit::{PATIENCE, Served, file_config, memory, pause, profile, session};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;

const VOLUME_BYTES: u64 = 64 << 20;
const BLOCK: usize = 4096;
const AHEAD: u64 = 1 << 20;
const CHUNK: u32 = 128 << 10;

/// What block `number` holds.
fn block(number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|place| (number * 1_000_003 + place).to_le_bytes()).collect()
}

/// A file with blocks that all differ.
fn make_file(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    (0..VOLUME_BYTES / BLOCK as u64).for_each(|number| {
        file.write_all_at(&block(number), number * BLOCK as u64).unwrap();
    });
}

fn in_file(directory: &tempfile::TempDir) -> Volume {
    let path = directory.path().join("disk");
    make_file(&path);
    Volume::open(file_config("v", &path, None)).unwrap()
}

fn read_ahead(served: &Served, volume: &str) {
    served.engine.set_read_ahead(volume, ReadAhead::new(AHEAD)).unwrap();
}

fn ahead_of(status: &EngineStatus) -> ReadAheadStatus {
    status.volumes[0].read_ahead.expect("the volume is read ahead")
}

fn read_on(client: &mut Client, blocks: std::ops::Range<u64>) {
    let mut bytes = vec![0; BLOCK];
    for number in blocks {
        client.read(number * BLOCK as u64, &mut bytes).unwrap();
        assert!(bytes == block(number), "block {number}");
    }
}

/// A connection past its handshake, with a session of this allocation.
fn connection_in(served: &Served, volume: &VolumeInfo, pool: &str, allocation: Allocation) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    let negotiated =
        Negotiated { export: export_info(volume, false), structured_replies: false, block_size_known: true };
    let connection = Box::new(NbdConnection::new(server.into(), negotiated));
    let session = SessionConfig { allocation, ..session("raw") };
    served.engine.attach_in(&volume.name, pool, session, connection).unwrap();
    client
}

/// A block for each number, none near any of the twenty before.
fn scattered(number: u64) -> u64 {
    number * 7919 % (VOLUME_BYTES / BLOCK as u64)
}

/// What the device was asked since the recording began, once nothing is under way.
fn reads_of(served: &Served, recording: &mut Recording) -> Vec<RecordedRequest> {
    served.wait_until("the end of all requests", |status| status.requests_under_way == 0);
    let mut reads = Vec::new();
    for _ in 0..3 {
        reads.extend(recording.take(usize::MAX));
        pause();
    }
    assert_eq!(recording.lost(), 0);
    reads.retain(|request| request.operation == Operation::Read);
    reads
}

/// Planted break that was seen red: nothing is fetched before it is asked for, and no chunk.
/// Promise: read-ahead-large.
#[test]
fn small_reads_in_sequence_reach_the_device_as_few_large_ones() {
    const BLOCKS: u64 = 4096;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let mut client = served.connect("v", 1, true);
    let mut recording = served.engine.record(65_536).unwrap();
    read_on(&mut client, 0..BLOCKS);
    let reads = reads_of(&served, &mut recording);
    let bytes: u64 = reads.iter().map(|read| u64::from(read.length)).sum();
    let expected = BLOCKS as usize * BLOCK / CHUNK as usize;
    assert!((expected..expected + 16).contains(&reads.len()), "{} reads instead of {BLOCKS}", reads.len());
    let ahead_bytes = bytes - BLOCKS * BLOCK as u64;
    let expected_bytes = AHEAD / 2..=AHEAD + u64::from(CHUNK);
    assert!(expected_bytes.contains(&ahead_bytes), "{ahead_bytes} bytes ahead: a window, and no more");
    let mut parts: Vec<_> = reads.iter().map(|read| (read.offset, read.length)).collect();
    parts.sort_unstable();
    let is_once = parts.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0);
    assert!(is_once, "nothing is read twice or left out: {parts:?}");
    let status = served.engine.status().unwrap();
    let ahead = ahead_of(&status);
    assert_eq!((ahead.used_bytes, ahead.wasted_bytes), ((BLOCKS - 2) * BLOCK as u64, 0), "{ahead:?}");
    assert_eq!((ahead.bytes_max, ahead.memory_bytes), (AHEAD, 2 * AHEAD));
    let of_client = status.accounts.iter().find(|account| account.path.starts_with("pool/client")).unwrap();
    assert_eq!(of_client.requests, BLOCKS, "the client's requests are counted, and no others");
    client.disconnect().unwrap();
    let ahead = ahead_of(&served.wait_until_all_have_gone());
    assert_eq!((ahead.memory_bytes, ahead.fetched_bytes), (0, ahead.used_bytes + ahead.wasted_bytes));
}

/// Promise: read-ahead-large.
#[test]
fn a_stream_with_eight_under_way_in_any_order_is_read_ahead() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let mut client = served.connect("v", 8, true);
    let mut recording = served.engine.record(65_536).unwrap();
    let order = [3, 0, 7, 1, 5, 2, 4, 6];
    for round in 0..256u64 {
        for (tag, place) in (0..).zip(order) {
            client
                .submit(tag, Command::Read, CommandFlags::NONE, (8 * round + place) * BLOCK as u64, BLOCK as u32)
                .unwrap();
        }
        client.send_submitted().unwrap();
        let mut got: Vec<Vec<u8>> = vec![vec![0; BLOCK]; 8];
        while client.under_way_count() > 0 {
            let answer =
                client.receive(|tag, at, bytes| got[tag as usize][at as usize..][..bytes.len()].copy_from_slice(bytes));
            assert_eq!(answer.unwrap().result, Ok(()));
        }
        for (tag, place) in order.into_iter().enumerate() {
            assert!(got[tag] == block(8 * round + place), "round {round}, block {place}");
        }
    }
    let reads = reads_of(&served, &mut recording);
    assert!(reads.len() < 120, "{} reads instead of 2048", reads.len());
}

/// Promise: read-ahead-large.
#[test]
fn random_reads_cause_no_others() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let mut client = served.connect("v", 1, true);
    let mut recording = served.engine.record(65_536).unwrap();
    (0..1000).map(scattered).for_each(|at| read_on(&mut client, at..at + 1));
    let reads = reads_of(&served, &mut recording);
    assert_eq!(reads.len(), 1000);
    let ahead = ahead_of(&served.engine.status().unwrap());
    assert_eq!(
        (ahead.fetched_bytes, ahead.memory_bytes),
        (0, 0),
        "who reads nothing in sequence gets no memory either"
    );
}

/// Planted break that was seen red: fetches are charged to the device's own account.
/// Promise: read-ahead-charge.
#[test]
fn what_is_read_ahead_is_charged_to_its_reader() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let (mut reader, mut other) = (served.connect("v", 1, true), served.connect("v", 1, true));
    let mut recording = served.engine.record(65_536).unwrap();
    read_on(&mut reader, 0..2000);
    read_on(&mut other, 9000..9001);
    let reads = reads_of(&served, &mut recording);
    let bytes: u64 = reads.iter().map(|read| u64::from(read.length)).sum();
    let status = served.engine.status().unwrap();
    let mut of_sessions: Vec<u64> = status.accounts.iter().filter(|a| a.path.contains('#')).map(|a| a.bytes).collect();
    of_sessions.sort_unstable();
    assert_eq!(of_sessions, [BLOCK as u64, bytes - BLOCK as u64]);
}

/// Promise: read-ahead-charge.
#[test]
fn a_limit_holds_for_what_is_read_ahead_and_no_session_waits_for_one_that_ends() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = in_file(&directory);
    let info = volume.info().clone();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![volume]);
    read_ahead(&served, "v");
    // Four reads of 4 KiB and a chunk are more than a second of it.
    let allocation = Allocation { limit: Some(Rate::RunsPerSecond(4.0)), ..Allocation::default() };
    let client = connection_in(&served, &info, "pool", allocation);
    for number in 0..40u64 {
        let (flags, command) = (CommandFlags::NONE, Command::Read);
        let read = Request { flags, command, cookie: number, offset: number * BLOCK as u64, length: BLOCK as u32 };
        (&client).write_all(&read.encode()).unwrap();
    }
    served.wait_until("a fetch that the limit holds back", |status| {
        status.accounts.iter().any(|account| account.path.contains("raw") && account.queued > 0)
    });
    let mut free = served.connect("v", 1, true);
    read_on(&mut free, 4000..4400);
    drop(client);
    free.disconnect().unwrap();
    served.engine.shutdown(Span::from_millis(100)).unwrap();
}

/// The first client of a volume that is read ahead reads on, until a limit holds back what comes next, and nothing that
/// it waits for.
fn read_until_held(served: &Served, client: &mut Client) {
    read_on(client, 0..400);
    served.wait_until("the end of all fetches", |status| status.requests_under_way == 0);
    let allocation = Allocation { limit: Some(Rate::RunsPerSecond(0.01)), ..Allocation::default() };
    served.engine.change_account("pool/client#1", allocation).unwrap();
    // What it reads is there; what should come after that waits sooner or later.
    let is_held = |status: &EngineStatus| status.accounts[0].queued > 0 && status.accounts[0].in_flight == 0;
    let held = (400..1000).find(|&number| {
        read_on(client, number..number + 1);
        is_held(&served.engine.status().unwrap())
    });
    assert!(held.is_some(), "the limit holds nothing back");
}

/// Planted break that was seen red: what is read ahead for a client that is cut off is not given up.
/// Promise: read-ahead-charge.
#[test]
fn what_waits_in_the_scheduler_for_a_session_that_has_ended_never_reaches_the_device() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let mut client = served.connect("v", 1, true);
    read_until_held(&served, &mut client);
    let before = ahead_of(&served.engine.status().unwrap());
    served.engine.stop_pool("pool", Span::ZERO).unwrap();
    // A turn later it is cut off.
    drop(served.engine.status().unwrap());
    served.engine.switch_scheduler("noop").unwrap();
    let after = ahead_of(&served.wait_until_all_have_gone());
    assert_eq!(after.fetched_bytes, before.fetched_bytes);
}

/// Planted break that was seen red: all sessions share the slots of one.
/// Promise: read-ahead-places.
#[test]
fn streams_of_one_tenant_leave_those_of_another_what_was_read_for_them() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let (mut one, mut other) = (served.connect("v", 1, true), served.connect("v", 1, true));
    read_on(&mut one, 0..64);
    let before = ahead_of(&served.wait_until("no fetch under way", |status| status.requests_under_way == 0));
    // As many streams as there can be, begun again and again.
    for round in 0..8 {
        (0..8).map(|stream| 2000 + stream * 1500 + round * 8).for_each(|at| read_on(&mut other, at..at + 8));
    }
    served.wait_until("no fetch under way", |status| status.requests_under_way == 0);
    let mut recording = served.engine.record(65_536).unwrap();
    read_on(&mut one, 64..66);
    assert!(before.memory_bytes == 2 * AHEAD, "{before:?}");
    let reads = reads_of(&served, &mut recording);
    // What it goes on with is there; at most something further ahead is read.
    assert!(reads.iter().all(|read| read.offset >= 66 * BLOCK as u64), "{reads:?}");
}

/// Planted break that was seen red: a pool gets places as long as there are any.
/// Promise: read-ahead-places.
#[test]
fn a_tenant_with_many_connections_leaves_places_to_others() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = in_file(&directory);
    let info = volume.info().clone();
    let served = Served::plain(vec![volume]);
    read_ahead(&served, "v");
    let places = || ahead_of(&served.engine.status().unwrap()).memory_bytes / (2 * AHEAD);
    let mut greedy: Vec<Client> = (0..40).map(|_| served.connect("v", 1, true)).collect();
    greedy.iter_mut().for_each(|client| read_on(client, 0..8));
    assert_eq!(places(), 32, "half of what there is");
    served.engine.open_pool("other", Allocation::default()).unwrap();
    let mut client = connection_in(&served, &info, "other", Allocation::default());
    for number in 0..3u64 {
        let (flags, command) = (CommandFlags::NONE, Command::Read);
        let read = Request { flags, command, cookie: number, offset: number * BLOCK as u64, length: BLOCK as u32 };
        client.write_all(&read.encode()).unwrap();
        let mut answer = [0; 16 + BLOCK];
        client.read_exact(&mut answer).unwrap();
        assert!(answer[16..] == block(number));
    }
    assert_eq!(places(), 33, "and another one has his");
    drop((greedy, client));
    assert_eq!(ahead_of(&served.wait_until_all_have_gone_of(&["pool", "other"])).memory_bytes, 0);
}

/// Planted break that was seen red: fetches go to the scheduler whatever waits there.
/// Promise: read-ahead-charge.
#[test]
fn while_a_read_waits_for_the_device_nothing_is_read_ahead() {
    // Many times as many as the disk does while the reader is served.
    const DEPTH: u32 = 4096;
    let model = plimsoll_devices::build("hdd.wd-aakx", 1).expect("the model is in the registry");
    let mut config = EngineConfig::emulated(model, "zygaria");
    config.profile.outstanding_max = 1;
    let served = Served::new(config, vec![memory("v", VOLUME_BYTES, 0)]);
    read_ahead(&served, "v");
    let (mut other, mut reader) = (served.connect("v", DEPTH, true), served.connect("v", 1, true));
    for tag in 0..DEPTH {
        let offset = scattered(tag.into()) * BLOCK as u64;
        other.submit(tag, Command::Read, CommandFlags::NONE, offset, BLOCK as u32).unwrap();
    }
    other.send_submitted().unwrap();
    served.wait_until("a queue", |status| status.accounts[0].queued > 0);
    let mut bytes = vec![0; BLOCK];
    (0..300).for_each(|number| reader.read(number * BLOCK as u64, &mut bytes).unwrap());
    let status = served.engine.status().unwrap();
    assert!(status.accounts[0].queued > 0, "the other one waits all the time");
    let ahead = ahead_of(&status);
    assert_eq!(ahead.used_bytes, 298 * BLOCK as u64, "all but the two that made the stream");
    assert_eq!(ahead.fetched_bytes, 10 * u64::from(CHUNK), "in chunks, and none before it is asked for");
    let sessions = status.accounts.iter().filter(|account| account.path.contains('#'));
    let of_reader = sessions.min_by_key(|account| account.queued).unwrap();
    assert_eq!((of_reader.queued, of_reader.in_flight), (0, 0), "nor is one on its way");
    drop((other, reader));
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Promise: read-ahead-fails.
#[test]
fn what_cannot_be_read_ahead_is_read_as_far_as_it_can_be() {
    // In the middle of a chunk, whichever way chunks are cut.
    const GOOD_BLOCKS: u64 = 1013;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let file = std::fs::File::options().write(true).open(directory.path().join("disk")).unwrap();
    file.set_len(GOOD_BLOCKS * BLOCK as u64).unwrap();
    let mut client = served.connect("v", 8, true);
    read_on(&mut client, 0..GOOD_BLOCKS);
    assert!(ahead_of(&served.engine.status().unwrap()).used_bytes > 900 * BLOCK as u64);
    assert_eq!(
        served.engine.status().unwrap().accounts[0].failed,
        0,
        "a read that no client asked for fails no client"
    );
    let failed = client.read(GOOD_BLOCKS * BLOCK as u64, &mut [0; BLOCK]);
    assert!(matches!(failed, Err(ClientError::Answered(Errno::InputOutput))), "{failed:?}");
    read_on(&mut client, 500..GOOD_BLOCKS);
    client.disconnect().unwrap();
    served.wait_until_all_have_gone();
}

/// Promise: read-ahead-fresh.
#[test]
fn what_another_client_wrote_is_read_and_not_what_was_read_ahead() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::plain(vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let (mut reader, mut writer) = (served.connect("v", 1, true), served.connect("v", 1, true));
    for round in 0..20u64 {
        let at = round * 512;
        read_on(&mut reader, at..at + 100);
        // Ahead of it: there, or under way.
        let offset = |block: u64| (at + block) * BLOCK as u64;
        writer.write(offset(100), &[1; BLOCK], false).unwrap();
        writer.trim(offset(101), BLOCK as u32).unwrap();
        writer.write(offset(110), &[3; 3 * BLOCK], true).unwrap();
        let mut bytes = vec![9; 13 * BLOCK];
        for (number, bytes) in (100..).zip(bytes.chunks_mut(BLOCK)) {
            reader.read(offset(number), bytes).unwrap();
        }
        assert!(bytes[..BLOCK] == [1; BLOCK] && bytes[BLOCK..2 * BLOCK] == [0; BLOCK]);
        assert!(bytes[10 * BLOCK..] == [3; 3 * BLOCK] && bytes[2 * BLOCK..3 * BLOCK] == block(at + 102));
    }
}

/// Planted break that was seen red: what is written is cut off when the write is sent, and not when it is done.
/// Promise: read-ahead-fresh.
#[test]
fn what_was_read_ahead_while_a_write_of_it_waited_is_not_handed_out() {
    const WRITES: u64 = 10;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = in_file(&directory);
    let info = volume.info().clone();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![volume]);
    read_ahead(&served, "v");
    // The first one goes, the others wait until the limit ends with its scheduler.
    let allocation = Allocation { limit: Some(Rate::RunsPerSecond(0.01)), ..Allocation::default() };
    let mut writer = connection_in(&served, &info, "pool", allocation);
    let offset = |number: u64| if number + 1 < WRITES { 8000 + number } else { 100 } * BLOCK as u64;
    for number in 0..WRITES {
        let (flags, command, length) = (CommandFlags::NONE, Command::Write, BLOCK as u32);
        writer.write_all(&Request { flags, command, cookie: number, offset: offset(number), length }.encode()).unwrap();
        writer.write_all(&[1; BLOCK]).unwrap();
    }
    served.wait_until("writes that the limit holds back", |status| {
        let mut accounts = status.accounts.iter();
        accounts.any(|a| a.path.contains("raw") && a.queued > 0 && u64::from(a.queued) + a.requests == WRITES)
    });
    let mut reader = served.connect("v", 1, true);
    read_on(&mut reader, 0..90);
    served.wait_until("block 100, ahead", |status| ahead_of(status).fetched_bytes >= 100 * BLOCK as u64);
    served.engine.switch_scheduler("noop").unwrap();
    (0..WRITES).for_each(|_| writer.read_exact(&mut [0; 16]).unwrap());
    read_on(&mut reader, 90..100);
    let mut bytes = [0; BLOCK];
    reader.read(100 * BLOCK as u64, &mut bytes).unwrap();
    assert!(bytes == [1; BLOCK], "as it was before");
    read_on(&mut reader, 101..200);
}

#[test]
fn nothing_is_read_ahead_where_it_is_of_no_use_or_in_use() {
    let served = Served::plain(vec![memory("v", VOLUME_BYTES, 0)]);
    read_ahead(&served, "v");
    assert_eq!(served.engine.status().unwrap().volumes[0].read_ahead, None, "it is in memory");
    let mut client = served.connect("v", 1, true);
    client.read(0, &mut [0; BLOCK]).unwrap();
    let refused = served.engine.set_read_ahead("v", ReadAhead::new(AHEAD)).unwrap_err();
    assert_eq!(refused.to_string(), "volume v is in use: 1 attached");
    drop(client);
    let message = served.engine.set_read_ahead("w", None).unwrap_err().to_string();
    assert_eq!(message, "there is no volume \"w\"");
}

/// Planted break: a cache that begins is not looked at when a fetch has ended.
/// Promise: read-ahead-cache-begins.
#[test]
fn a_cache_that_comes_while_something_is_read_ahead_begins_when_that_has_ended() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![in_file(&directory)]);
    read_ahead(&served, "v");
    let mut client = served.connect("v", 1, true);
    read_until_held(&served, &mut client);
    let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
    let mut settings = CacheSettings::new("fast", directory.path().join("fast"), policy, Scheme::default());
    settings.size_bytes = Some(4 << 20);
    let (config, bytes) = served.engine.volume_config("v").unwrap();
    let found = FoundCache::find_or_make(settings, &config, bytes, true).unwrap();
    let (engine, (begun, has_begun)) = (served.engine.clone(), channel());
    std::thread::spawn(move || begun.send(engine.attach_cache("v", found)));
    served.wait_until("a cache that waits", |status| status.volumes[0].cache.is_some());
    served.engine.switch_scheduler("noop").unwrap();
    let patience = std::time::Duration::from_nanos(PATIENCE.as_nanos());
    has_begun.recv_timeout(patience).expect("it begins").unwrap();
    read_on(&mut client, 0..10);
}

#[test]
fn a_client_that_vanishes_while_it_is_read_ahead_of_leaves_nothing_behind() {
    let model = plimsoll_devices::build("hdd.deskstar-120", 1).expect("the model is in the registry");
    let served = Served::new(EngineConfig::emulated(model, "zygaria"), vec![memory("v", VOLUME_BYTES, 0)]);
    read_ahead(&served, "v");
    for round in 0..10u64 {
        let mut client = served.connect("v", 8, true);
        for number in 0..8 + round {
            if client.under_way_count() == 8 {
                assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
            }
            let tag = (number % 8) as u32;
            let offset = (round * 1000 + number) * BLOCK as u64;
            if client.submit(tag, Command::Read, CommandFlags::NONE, offset, BLOCK as u32).is_err() {
                break;
            }
        }
        client.send_submitted().unwrap();
        drop(client);
    }
    served.wait_until_all_have_gone();
    served.engine.shutdown(PATIENCE).unwrap();
}
