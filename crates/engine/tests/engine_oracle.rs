//! Whatever several clients do at once to a volume, it behaves like a plain vector of bytes.

use plimsoll_cache::policies;
use plimsoll_cache::store::Semantics;
use plimsoll_core::class::Scheme;
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::cache::{self, CacheSettings, FoundCache};
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_engine::{CacheStatus, EngineConfig, ServiceRequest};
use plimsoll_executor::{Executor, ExecutorConfig, Policy, Rules, ThreadFigures};
use plimsoll_protocols::nbd::wire::{Request, SIMPLE_REPLY_BYTES, simple_reply};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{Random, Served, encrypted_config, file_config, memory, profile, raw_connection};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const VOLUME_BYTES: u64 = 32 << 20;
const DEPTH: u32 = 24;
const CONNECTIONS: usize = 4;
const STEPS: usize = 3000;
/// Of a cache that is too small for the volume, so that it always cleans.
const CACHE_BYTES: u64 = 8 << 20;

/// A piece of a request at the most.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// How many requests were made, each of a block and more.
#[derive(Default)]
struct Made {
    reads: u64,
    writes: u64,
}

/// What one tag of one client is doing.
struct UnderWay {
    command: Command,
    range: Range<usize>,
    /// What a read must bring, as it was when the read was submitted: no client writes there meanwhile.
    got: Vec<u8>,
}

struct Tenant {
    client: Client,
    under_way: Vec<Option<UnderWay>>,
    /// Where the last read ended, if most of them go on there.
    reads_on_at: Option<u64>,
}

/// A range that no request under way changes, or reads if this one changes it; `near` a place, most times.
fn free_range(random: &mut Random, tenants: &[Tenant], is_change: bool, near: Option<u64>) -> Option<Range<usize>> {
    let block_bytes = u64::from(tenants[0].client.export().minimum_block_bytes);
    let bytes_max = match random.below(20) {
        0 => 4 << 20,
        1..4 => 256 << 10,
        _ => 8 << 10,
    };
    let length = (1 + random.below(bytes_max / block_bytes)) * block_bytes;
    let anywhere = random.below((VOLUME_BYTES - length) / block_bytes + 1) * block_bytes;
    let near = near.filter(|near| length <= 8 << 10 && near + length <= VOLUME_BYTES && random.below(8) > 0);
    let offset = near.unwrap_or(anywhere);
    let range = offset as usize..(offset + length) as usize;
    let mut others = tenants.iter().flat_map(|tenant| tenant.under_way.iter().flatten());
    let is_disturbed = others.any(|other| {
        let overlaps = range.start < other.range.end && other.range.start < range.end;
        overlaps && (is_change || other.command != Command::Read)
    });
    (!is_disturbed).then_some(range)
}

fn submit(random: &mut Random, tenants: &mut [Tenant], number: usize, oracle: &mut [u8], made: &mut Made) {
    let Some(tag) = tenants[number].under_way.iter().position(Option::is_none) else {
        return receive(&mut tenants[number], oracle);
    };
    let command = match random.below(12) {
        0..5 => Command::Read,
        5..9 => Command::Write,
        9 => Command::Trim,
        10 => Command::WriteZeroes,
        _ => Command::Flush,
    };
    // Changes come up to a quarter of a megabyte before and behind what is read on.
    let reads_on_at = tenants[number].reads_on_at;
    let near = reads_on_at.map(|at| match command {
        Command::Read => at,
        _ => (at + random.below(128) * 4096).saturating_sub(64 * 4096),
    });
    let range = match command {
        Command::Flush => Some(0..0),
        _ => free_range(random, tenants, command.is_write(), near),
    };
    let Some(range) = range else { return };
    if reads_on_at.is_some() && command == Command::Read {
        tenants[number].reads_on_at = Some(range.end as u64);
    }
    let flags = if random.below(8) == 0 { CommandFlags::FUA } else { CommandFlags::NONE };
    let Tenant { client, under_way, .. } = &mut tenants[number];
    let (offset, length) = (range.start as u64, range.len() as u32);
    if command == Command::Write {
        let mut byte = random.below(256) as u8;
        for target in &mut oracle[range.clone()] {
            byte = byte.wrapping_mul(31).wrapping_add(17);
            *target = byte;
        }
        client.submit_write(tag as u32, flags, offset, &oracle[range.clone()]).unwrap();
    } else {
        if command != Command::Read {
            oracle[range.clone()].fill(0);
        }
        client.submit(tag as u32, command, flags, offset, length).unwrap();
    }
    made.reads += u64::from(command == Command::Read);
    made.writes += u64::from(command == Command::Write);
    let got = if command == Command::Read { vec![0xEE; range.len()] } else { Vec::new() };
    under_way[tag] = Some(UnderWay { command, range, got });
}

fn receive(tenant: &mut Tenant, oracle: &[u8]) {
    let Tenant { client, under_way, .. } = tenant;
    let completed = client.receive(|tag, at, bytes| {
        let read = under_way[tag as usize].as_mut().expect("data for a read that is under way");
        read.got[at as usize..][..bytes.len()].copy_from_slice(bytes);
    });
    let completed = completed.unwrap();
    assert_eq!(completed.result, Ok(()));
    let UnderWay { command, range, got } = under_way[completed.tag as usize].take().expect("a reply to a request");
    if command == Command::Read {
        assert!(got == oracle[range.clone()], "a read of {range:?} brought something else");
    }
}

fn compare_with_a_vector(served: &Served, volume: &str, seed: u64) -> Made {
    compare(served, volume, seed, STEPS, false)
}

/// With tenants that read on where they were, most times.
fn compare_while_reading_on(served: &Served, volume: &str, seed: u64) {
    compare(served, volume, seed, STEPS, true);
}

fn compare(served: &Served, volume: &str, seed: u64, steps: usize, is_reading_on: bool) -> Made {
    let failed_before = served.engine.status().unwrap().accounts[0].failed;
    let (mut random, mut made) = (Random(seed), Made::default());
    let mut oracle = vec![0u8; VOLUME_BYTES as usize];
    let tenant = |number| Tenant {
        client: served.connect(volume, DEPTH, number % 2 == 0),
        under_way: (0..DEPTH).map(|_| None).collect(),
        reads_on_at: is_reading_on.then_some(number as u64 * (VOLUME_BYTES / CONNECTIONS as u64)),
    };
    let mut tenants: Vec<Tenant> = (0..CONNECTIONS).map(tenant).collect();
    for _ in 0..steps {
        let number = random.below(CONNECTIONS as u64) as usize;
        submit(&mut random, &mut tenants, number, &mut oracle, &mut made);
        if random.below(6) == 0 && tenants[number].client.under_way_count() > 0 {
            receive(&mut tenants[number], &oracle);
        }
    }
    for tenant in &mut tenants {
        while tenant.client.under_way_count() > 0 {
            receive(tenant, &oracle);
        }
    }
    let mut all = vec![0u8; VOLUME_BYTES as usize];
    tenants[0].client.read(0, &mut all).unwrap();
    assert!(all == oracle);
    tenants.into_iter().for_each(|tenant| tenant.client.disconnect().unwrap());
    let status = served.wait_until_all_have_gone();
    assert_eq!(status.accounts[0].failed, failed_before);
    made
}

#[test]
fn a_volume_in_memory_behaves_like_a_vector() {
    let served = Served::plain(vec![memory("v", VOLUME_BYTES, 1 << 30)]);
    compare_with_a_vector(&served, "v", 1);
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}

/// Promise: volume-oracle.
#[test]
fn a_volume_in_a_file_behaves_like_a_vector_under_every_scheduler() {
    // Not in /tmp, which may be a tmpfs without O_DIRECT.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (number, entry) in plimsoll_schedulers::registry().iter().enumerate() {
        let path = directory.path().join(entry.name);
        let volume = Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap();
        let served = Served::new(EngineConfig::new(profile(), entry.name), vec![volume]);
        compare_with_a_vector(&served, "v", 2 + number as u64);
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
    }
}

#[test]
fn an_emulated_device_behaves_like_a_vector() {
    let model = plimsoll_devices::build("nvme", 1).expect("the model is in the registry");
    let served = Served::new(EngineConfig::emulated(model, "zygaria"), vec![memory("v", VOLUME_BYTES, 0)]);
    compare_with_a_vector(&served, "v", 9);
    assert!(served.engine.status().unwrap().emulation.is_some());
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}

fn compressed() -> Volume {
    let backing = Backing::CompressedMemory { size_bytes: VOLUME_BYTES, level: 3 };
    let (name, pool) = ("v".into(), "pool".into());
    Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap()
}

fn with_executor(config: EngineConfig, rules: Rules, threads: usize, requests_max: usize) -> EngineConfig {
    let executor = Executor::start(ExecutorConfig { threads, rules, requests_max, seed: 1 }).unwrap();
    EngineConfig { executor: Some(Arc::new(executor)), ..config }
}

/// Planted break: a piece's pages begin at the request's start. Broken on purpose and seen red: the engine does itself
/// what finds no room.
/// Promise: compressed-oracle.
#[test]
fn a_compressed_volume_behaves_like_a_vector_on_any_thread() {
    let plain = || EngineConfig::new(profile(), "noop");
    let nvme = || EngineConfig::emulated(plimsoll_devices::build("nvme", 1).unwrap(), "zygaria");
    let configs = [
        plain(),
        with_executor(plain(), Rules::Fixed(Policy::BASELINE), 1, 65_536),
        with_executor(plain(), Rules::Adaptive, 3, 65_536),
        // Room for two: what does not fit waits in the engine's line.
        with_executor(plain(), Rules::Fixed(Policy::COMBO), 2, 2),
        with_executor(nvme(), Rules::Fixed(Policy::COMBO), 2, 65_536),
    ];
    for (number, config) in configs.into_iter().enumerate() {
        let executor = config.executor.clone();
        let served = Served::new(config, vec![compressed()]);
        let made = compare_with_a_vector(&served, "v", 40 + number as u64);
        let compressed = |executor: &Arc<Executor<ServiceRequest>>| executor.figures().alive == 0;
        let status = served.wait_until("the end of the backlog", |status| {
            status.volumes[0].backlog_bytes == Some(0) && executor.as_ref().is_none_or(compressed)
        });
        let stored = status.volumes[0].stored_bytes.unwrap();
        assert!(stored > 0 && stored < VOLUME_BYTES, "{stored}");
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
        if let Some(executor) = executor {
            let figures = executor.figures();
            let done: u64 = figures.threads.iter().map(|thread| thread.done).sum();
            // A piece of each, however little room there is: the engine does none of them.
            let least = made.reads + made.writes;
            assert!(least > 1000 && done >= least && figures.alive == 0, "{least}: {figures:?}");
        }
    }
}

/// Planted breaks: what is read is decrypted at the begin of its request; a second turn of a scratch buffer begins
/// where the first did. Broken on purpose and seen red: the engine does itself what finds no room.
/// Promise: encrypted-oracle.
#[test]
fn an_encrypted_volume_behaves_like_a_vector_on_any_thread() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plain = || EngineConfig::new(profile(), "noop");
    let nvme = || EngineConfig::emulated(plimsoll_devices::build("nvme", 1).unwrap(), "zygaria");
    let configs = [
        (plain(), None),
        (with_executor(plain(), Rules::Fixed(Policy::BASELINE), 1, 65_536), None),
        (with_executor(plain(), Rules::Adaptive, 3, 65_536), ReadAhead::new(1 << 20)),
        // Room for two: what does not fit waits in the engine's line.
        (with_executor(plain(), Rules::Fixed(Policy::COMBO), 2, 2), ReadAhead::new(1 << 20)),
        (with_executor(plain(), Rules::Fixed(Policy::COMBO), 1, 2), None),
        (with_executor(nvme(), Rules::Fixed(Policy::SORD), 2, 65_536), None),
    ];
    for (number, (config, read_ahead)) in configs.into_iter().enumerate() {
        let path = directory.path().join(number.to_string());
        let volume_config = encrypted_config("v", &path, VOLUME_BYTES);
        let (executor, volume) = (config.executor.clone(), Volume::open(volume_config.clone()).unwrap());
        let served = Served::new(config, vec![volume]);
        served.engine.set_read_ahead("v", read_ahead).unwrap();
        let made = compare(&served, "v", 70 + number as u64, STEPS, read_ahead.is_some());
        let mut all = vec![0; VOLUME_BYTES as usize];
        served.connect("v", 1, true).read(0, &mut all).unwrap();
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
        if let Some(executor) = executor {
            let figures = executor.figures();
            let [resumed, done] = [|thread: &ThreadFigures| thread.resumed, |thread: &ThreadFigures| thread.done]
                .map(|count| figures.threads.iter().map(count).sum::<u64>());
            // A piece of each read; where it is read ahead, one may bring what several want, and all of the volume was
            // read at the end.
            let least = if read_ahead.is_some() { VOLUME_BYTES / PIECE_BYTES_MAX } else { made.reads };
            assert!(least > 100 && resumed >= least && figures.alive == 0, "{least}: {figures:?}");
            assert!(done >= least + made.writes, "{least}, {} writes: {figures:?}", made.writes);
        }
        // The next engine that opens it, with the same key, finds the same.
        let served = Served::plain(vec![Volume::open(volume_config).unwrap()]);
        let mut again = vec![0; VOLUME_BYTES as usize];
        served.connect("v", 1, true).read(0, &mut again).unwrap();
        assert!(again == all);
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
    }
}

/// Promise: compressed-oracle.
#[test]
fn a_client_that_goes_away_while_its_work_is_done_disturbs_no_other() {
    let config = with_executor(EngineConfig::new(profile(), "noop"), Rules::Adaptive, 2, 65_536);
    let served = Served::new(config, vec![compressed()]);
    for round in 0..20 {
        let mut client = served.connect("v", DEPTH, true);
        let data = vec![round as u8 + 1; 1 << 20];
        for tag in 0..DEPTH {
            client.submit_write(tag, CommandFlags::NONE, u64::from(tag) << 20, &data).unwrap();
        }
        client.send_submitted().unwrap();
        drop(client);
    }
    served.wait_until_all_have_gone();
    // All zeroes again, as the vector is at the beginning.
    served.connect("v", 1, true).trim(0, VOLUME_BYTES as u32).unwrap();
    compare_with_a_vector(&served, "v", 50);
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}

/// Planted breaks that were seen red: what is written is not cut off; a read that waits for a fetch gets the chunk's
/// first bytes.
/// Promise: read-ahead-fresh.
#[test]
fn a_volume_that_is_read_ahead_behaves_like_a_vector() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let in_file =
        |name: &str| Volume::open(file_config("v", &directory.path().join(name), Some(VOLUME_BYTES))).unwrap();
    let emulated = |model| EngineConfig::emulated(plimsoll_devices::build(model, 1).unwrap(), "zygaria");
    let plain = || EngineConfig::new(profile(), "noop");
    let served = [
        Served::new(plain(), vec![in_file("plain")]),
        Served::new(EngineConfig::new(profile(), "zygaria"), vec![in_file("ordered")]),
        Served::new(emulated("nvme"), vec![in_file("emulated")]),
        Served::new(emulated("nvme"), vec![memory("v", VOLUME_BYTES, 0)]),
        Served::new(with_executor(plain(), Rules::Adaptive, 2, 65_536), vec![compressed()]),
    ];
    for (number, served) in served.into_iter().enumerate() {
        let bytes = if number % 2 == 0 { ReadAhead::BYTES_MIN } else { 1 << 20 };
        served.engine.set_read_ahead("v", ReadAhead::new(bytes)).unwrap();
        compare_while_reading_on(&served, "v", 60 + number as u64);
        let ahead = served.engine.status().unwrap().volumes[0].read_ahead.unwrap();
        assert!(ahead.used_bytes > 128 << 10, "volume {number}: {ahead:?}");
        assert_eq!(ahead.memory_bytes, 0, "nobody is left");
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
    }
}

fn cache_settings(path: PathBuf, policy: &str) -> CacheSettings {
    let policy = policies().iter().find(|entry| entry.name == policy).unwrap();
    let usual = CacheSettings::new("fast", path, policy, Scheme::default());
    CacheSettings { size_bytes: Some(CACHE_BYTES), seed: Some(1), ..usual }
}

fn cache_of(served: &Served) -> CacheStatus {
    served.engine.status().unwrap().volumes[0].cache.clone().expect("the volume has a cache")
}

/// Promise: cache-oracle-volume.
#[test]
fn a_cached_volume_behaves_like_a_vector_and_so_does_what_is_found_after_a_shutdown() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let choices = [
        ("lru", Semantics::WriteCache),
        ("selective", Semantics::Strict),
        ("credit", Semantics::WriteCache),
        ("s3_fifo", Semantics::Strict),
    ];
    for (number, (policy, semantics)) in choices.into_iter().enumerate() {
        let [slow, fast] = ["slow", "fast"].map(|kind| directory.path().join(format!("{policy}.{kind}")));
        let config = file_config("v", &slow, Some(VOLUME_BYTES));
        let volume = Volume::open(config.clone()).unwrap();
        let settings = CacheSettings { semantics, ..cache_settings(fast, policy) };
        cache::make(&settings, volume.config(), VOLUME_BYTES, false).unwrap();
        let found = FoundCache::find(settings.clone(), &volume).unwrap();
        let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![volume]);
        served.engine.attach_cache("v", found).unwrap();
        compare_with_a_vector(&served, "v", 20 + number as u64);
        let status = cache_of(&served);
        assert!(status.used_units > 1000 && status.classes[0].read_hits > 0 && status.cleaned > 0, "{status:?}");
        let mut all = vec![0; VOLUME_BYTES as usize];
        served.connect("v", 1, true).read(0, &mut all).unwrap();
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();

        let volume = Volume::open(config).unwrap();
        let found = FoundCache::find(settings, &volume).unwrap();
        assert_eq!(found.report.journal_blocks, 0, "a shutdown leaves a snapshot and no journal");
        assert!(found.report.dirty_units > 0, "what is dirty need not be written back before a shutdown");
        let served = Served::plain(vec![volume]);
        served.engine.attach_cache("v", found).unwrap();
        let mut again = vec![0; VOLUME_BYTES as usize];
        served.connect("v", 1, true).read(0, &mut again).unwrap();
        assert!(all == again);
        assert!(cache_of(&served).classes[0].read_hits > 1000, "it is warm");
        served.engine.detach_cache("v").unwrap();
        assert!(std::fs::read(&slow).unwrap() == all, "what a detached cache had is on the slow device");
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
    }
}

/// Red if what an emulated device has done is heard of before it was begun, twice or never (a request is lost, or
/// hangs).
/// Promise: cache-emulated.
#[test]
fn a_volume_whose_cache_is_emulated_behaves_like_a_vector() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = memory("v", VOLUME_BYTES, 0);
    let found = FoundCache::find(cache_settings(directory.path().join("fast"), "lru"), &volume).unwrap();
    let model = |name: &str| plimsoll_devices::build(name, 1).unwrap();
    let served = Served::new(EngineConfig::emulated(model("nvme"), "noop"), vec![volume]);
    served.engine.attach_cache("v", found.emulated(model("nvme"), plimsoll_testkit::PATIENCE)).unwrap();
    compare_with_a_vector(&served, "v", 40);
    let status = cache_of(&served);
    let emulation = status.emulation.unwrap();
    assert!(status.cleaned > 0 && emulation.replies > status.classes[0].read_hits, "{status:?}");
    assert_eq!(emulation.late_replies, 0, "nothing is a minute late");
    served.engine.detach_cache("v").unwrap();
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}

/// Promise: cache-oracle-volume, read-ahead-fresh.
#[test]
fn a_cache_comes_and_goes_and_changes_its_policy_under_load() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [slow, ahead, fast] = ["slow", "ahead", "fast"].map(|name| directory.path().join(name));
    let in_file = |path| Volume::open(file_config("v", path, Some(VOLUME_BYTES))).unwrap();
    let volumes =
        [(in_file(&slow), None), (memory("v", VOLUME_BYTES, 0), None), (in_file(&ahead), ReadAhead::new(1 << 20))];
    for (number, (volume, read_ahead)) in volumes.into_iter().enumerate() {
        let served = Served::plain(vec![volume]);
        served.engine.set_read_ahead("v", read_ahead).unwrap();
        let (is_over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let (engine, fast, is_over, rounds) = (served.engine.clone(), &fast, &is_over, &rounds);
            let administrator = scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let (config, bytes) = engine.volume_config("v").unwrap();
                    let settings = cache_settings(fast.clone(), "lru");
                    let found = FoundCache::find_or_make(settings, &config, bytes, true).unwrap();
                    engine.attach_cache("v", found).unwrap();
                    for policy in ["credit", "s3_fifo", "selective"] {
                        engine.flush_cache("v").unwrap();
                        engine.change_cache("v", cache_settings(fast.clone(), policy)).unwrap();
                    }
                    engine.detach_cache("v").unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Until it has come and gone twice: the administrator's thread may be without a processor or its disk for a
            // while.
            while rounds.load(Ordering::Relaxed) < 2 && !administrator.is_finished() {
                served.connect("v", 1, true).trim(0, VOLUME_BYTES as u32).unwrap();
                compare(&served, "v", 30 + number as u64, STEPS, read_ahead.is_some());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // A stream may have found a cache there all the time; now there is none.
        let mut client = served.connect("v", 1, true);
        (0..64).for_each(|block| client.read(block * 4096, &mut [0; 4096]).unwrap());
        let ahead = served.engine.status().unwrap().volumes[0].read_ahead;
        assert!(ahead.is_none_or(|ahead| ahead.used_bytes > 0), "{ahead:?}");
        served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
    }
}

/// A volume in memory answers without buffers, so these answers are all ready at once: 2.2 GiB, of which Linux takes 2
/// GiB in a call.
///
/// Planted break that was seen red: a send is one operation.
/// Promise: volume-oracle.
#[test]
fn answers_that_are_too_much_for_one_send_come_whole() {
    const READS: usize = 70;
    const READ_BYTES: usize = VOLUME_BYTES as usize;
    let volume = memory("v", VOLUME_BYTES, 0);
    let info = volume.info().clone();
    let served = Served::plain(vec![volume]);
    let content: Vec<u8> = (0..VOLUME_BYTES / 8).flat_map(|word| (word * 0x9e37_79b9).to_ne_bytes()).collect();
    served.connect("v", 1, true).write(0, &content, false).unwrap();
    let mut client = raw_connection(&served.engine, &info);
    let read = |cookie| Request {
        flags: CommandFlags::NONE,
        command: Command::Read,
        cookie,
        offset: 0,
        length: READ_BYTES as u32,
    };
    let requests: Vec<u8> = (0..READS as u64).flat_map(|cookie| read(cookie).encode()).collect();
    client.write_all(&requests).unwrap();
    let mut reply = vec![0; SIMPLE_REPLY_BYTES + READ_BYTES];
    for cookie in 0..READS as u64 {
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..SIMPLE_REPLY_BYTES], simple_reply(cookie, Ok(())));
        assert!(reply[SIMPLE_REPLY_BYTES..] == content, "answer {cookie}");
    }
    drop(client);
    served.wait_until_all_have_gone();
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}
