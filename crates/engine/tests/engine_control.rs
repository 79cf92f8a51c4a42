//! What administrators do while requests go on: promises, schedulers, the end.

use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, DeviceProfile, Rate, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::{EmulationStatus, EngineConfig, EngineError, spawn};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{Served, file_config, memory, monotonic_ns, profile};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VOLUME_BYTES: u64 = 4 << 20;
const SERVICE: Span = Span::from_millis(2);

/// A device that needs the same time for every request, one after the other.
struct Steady {
    profile: DeviceProfile,
    queue: VecDeque<(Time, u64)>,
    first_ns: Option<u64>,
    /// From the first request to the last completion of the schedule.
    busy_ns: Arc<AtomicU64>,
}

impl DeviceModel for Steady {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
    fn submit(&mut self, now: Time, request: DeviceRequest) {
        let first_ns = *self.first_ns.get_or_insert(now.as_nanos());
        let done = self.queue.back().map_or(now, |last| last.0.max(now)) + SERVICE;
        self.busy_ns.store(done.as_nanos() - first_ns, Ordering::Relaxed);
        self.queue.push_back((done, request.token));
    }
    fn next_completion(&self) -> Option<Time> {
        self.queue.front().map(|first| first.0)
    }
    fn complete(&mut self, now: Time) -> Option<Finished> {
        let &(at, token) = self.queue.front().filter(|first| first.0 <= now)?;
        self.queue.pop_front();
        Some(Finished { token, at })
    }
    fn outstanding(&self) -> usize {
        self.queue.len()
    }
}

fn steady(scheduler: &str) -> (EngineConfig, Arc<AtomicU64>) {
    let busy_ns = Arc::new(AtomicU64::new(0));
    let model = Steady { profile: profile(), queue: VecDeque::new(), first_ns: None, busy_ns: busy_ns.clone() };
    (EngineConfig::emulated(Box::new(model), scheduler), busy_ns)
}

fn submit_reads(client: &mut Client, count: u32) {
    for tag in 0..count {
        client.submit(tag, Command::Read, CommandFlags::NONE, u64::from(tag) * 4096, 4096).unwrap();
    }
    client.send_submitted().unwrap();
}

#[test]
fn an_emulated_device_is_as_slow_as_its_model_and_lateness_does_not_add_up() {
    const READS: u32 = 100;
    let (config, busy_ns) = steady("noop");
    let served = Served::new(config, vec![memory("v", VOLUME_BYTES, 0)]);
    let mut client = served.connect("v", READS, true);
    let start_ns = monotonic_ns();
    submit_reads(&mut client, READS);
    for tag in 0..READS {
        let completed = client.receive(|_, _, _| {}).unwrap();
        assert_eq!((completed.tag, completed.result), (tag, Ok(())), "in the order of the schedule");
    }
    let expected_ns = SERVICE.as_nanos() * u64::from(READS);
    assert!(monotonic_ns() - start_ns >= expected_ns, "nothing is answered before the device would be done");
    assert_eq!(busy_ns.load(Ordering::Relaxed), expected_ns, "however late the thread was, the schedule was not");
    let status = served.engine.status().unwrap();
    let session = &status.accounts[2];
    assert_eq!((session.path.as_str(), session.requests), ("pool/client#1", u64::from(READS)));
    assert!(session.read_latency.max_ns >= expected_ns && session.read_latency.p50_ns >= expected_ns / 2 * 98 / 100);
    assert_eq!(status.accounts[1].bytes, u64::from(READS) * 4096);
    let emulation = status.emulation.unwrap();
    assert_eq!(emulation.replies, u64::from(READS));
    // A reply or two of a hundred may be late on a busy machine and the 99th not.
    let is_late = emulation.lateness_ns_p99 > emulation.lateness_ns_bound;
    assert!(if is_late { emulation.late_replies > 0 } else { emulation.late_replies < 5 }, "{emulation:?}");
}

/// Red if a hit is answered when its bytes are there.
/// Promise: cache-emulated.
#[test]
fn an_emulated_cache_answers_no_hit_before_its_device_would() {
    const READS: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let volume = memory("v", VOLUME_BYTES, 0);
    let policy = plimsoll_cache::policies().iter().find(|entry| entry.name == "lru").unwrap();
    let settings = CacheSettings::new("fast", directory.path().join("fast"), policy, Scheme::default());
    let found = FoundCache::find(CacheSettings { size_bytes: Some(8 << 20), ..settings }, &volume).unwrap();
    let (config, _) = steady("noop");
    let served = Served::new(EngineConfig { model: None, ..config }, vec![volume]);
    let (config, busy_ns) = steady("noop");
    served.engine.attach_cache("v", found.emulated(config.model.unwrap(), SERVICE)).unwrap();
    let mut client = served.connect("v", 1, true);
    client.write(0, &[1; 4096], false).unwrap();
    let (start_ns, busy_before) = (monotonic_ns(), busy_ns.load(Ordering::Relaxed));
    (0..READS).for_each(|_| client.read(0, &mut [0; 4096]).unwrap());
    let expected_ns = SERVICE.as_nanos() * READS;
    assert!(monotonic_ns() - start_ns >= expected_ns, "nothing is answered before the device would be done");
    assert!(busy_ns.load(Ordering::Relaxed) - busy_before >= expected_ns);
    let cache = served.engine.caches().unwrap().remove(0).1;
    assert_eq!((cache.classes[0].reads, cache.classes[0].read_hits), (READS, READS));
    assert!(cache.emulation.unwrap().replies > READS);
}

#[test]
fn an_emulation_that_was_late_for_a_while_is_true_again_afterwards() {
    let after = |replies, late_replies| EmulationStatus { replies, late_replies, ..EmulationStatus::default() };
    let (calm, stalled, calm_again) = (after(1_000, 10), after(1_100, 40), after(1_200, 41));
    assert!(calm.is_true() && !stalled.is_true() && !calm_again.is_true());
    assert!(!stalled.was_true_since(&calm) && calm_again.was_true_since(&stalled));
    assert!(calm.was_true_since(&calm), "without replies nothing was late");
}

/// Promise: volume-switch.
#[test]
fn a_switch_of_the_scheduler_under_load_loses_nothing() {
    const ROUNDS: u32 = 400;
    let mut model = plimsoll_devices::build("ssd.x25-e", 1);
    let config = EngineConfig::emulated(model.take().expect("the model is in the registry"), "noop");
    let served = Served::new(config, vec![memory("v", VOLUME_BYTES, 0)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let (engine, seen) = (served.engine.clone(), is_over.clone());
    let switching = std::thread::spawn(move || {
        for (switches, entry) in plimsoll_schedulers::registry().iter().cycle().enumerate() {
            if seen.load(Ordering::Relaxed) {
                return switches;
            }
            engine.switch_scheduler(entry.name).unwrap();
            assert_eq!(engine.status().unwrap().scheduler, entry.name);
            plimsoll_testkit::pause();
        }
        unreachable!("the registry is not empty")
    });
    let mut clients: Vec<Client> = (0..3).map(|_| served.connect("v", 100, true)).collect();
    for _ in 0..ROUNDS / 100 {
        clients.iter_mut().for_each(|client| submit_reads(client, 100));
        for client in &mut clients {
            let mut answered: Vec<u32> = (0..100).map(|_| client.receive(|_, _, _| {}).unwrap().tag).collect();
            answered.sort_unstable();
            assert_eq!(answered, (0..100).collect::<Vec<_>>());
        }
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(switching.join().unwrap() > 0);
    assert!(matches!(served.engine.switch_scheduler("none"), Err(EngineError::UnknownScheduler { .. })));
    drop(clients);
    let status = served.wait_until_all_have_gone();
    assert_eq!((status.accounts[0].requests, status.accounts[0].failed), (u64::from(3 * ROUNDS), 0));
}

#[test]
fn a_switch_moves_requests_that_a_limit_holds_back() {
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![memory("v", VOLUME_BYTES, 0)]);
    let limit = Some(Rate::RunsPerSecond(0.001));
    served.engine.change_account("pool", Allocation { limit, ..Allocation::default() }).unwrap();
    let mut client = served.connect("v", 50, true);
    submit_reads(&mut client, 50);
    let status = served.wait_until("fifty requests", |status| status.requests_under_way > 40);
    assert!(status.accounts[1].queued > 0, "the limit holds requests back: {status:?}");
    served.engine.switch_scheduler("noop").unwrap();
    (0..50).for_each(|_| assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(())));
}

#[test]
fn the_end_finishes_what_is_under_way_and_keeps_what_was_acknowledged() {
    const WRITES: u32 = 64;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("disk");
    let volume = Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap();
    let (config, _) = steady("zygaria");
    let served = Served::new(config, vec![volume]);
    let mut client = served.connect("v", WRITES, true);
    for tag in 0..WRITES {
        client.submit_write(tag, CommandFlags::NONE, u64::from(tag) * 4096, &[tag as u8 + 1; 4096]).unwrap();
    }
    client.send_submitted().unwrap();
    let first = client.receive(|_, _, _| {}).unwrap();
    let engine = served.engine.clone();
    let ending = std::thread::spawn(move || engine.shutdown(plimsoll_testkit::PATIENCE));
    let mut acknowledged = vec![first.tag];
    while let Ok(completed) = client.receive(|_, _, _| {}) {
        assert_eq!(completed.result, Ok(()));
        acknowledged.push(completed.tag);
    }
    ending.join().unwrap().unwrap();
    assert!(matches!(served.engine.status(), Err(EngineError::Stopped)));
    let file = std::fs::File::open(&path).unwrap();
    for tag in acknowledged {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, u64::from(tag) * 4096).unwrap();
        assert_eq!(bytes, [tag as u8 + 1; 4096]);
    }
    Volume::open(file_config("again", &path, None)).expect("the lock is gone");
}

#[test]
fn the_end_comes_though_a_limit_or_a_client_would_hold_it_up() {
    let volume = memory("v", VOLUME_BYTES, 0);
    let info = volume.info().clone();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![volume]);
    let limit = Some(Rate::RunsPerSecond(0.001));
    served.engine.change_account("pool", Allocation { limit, ..Allocation::default() }).unwrap();
    let mut client = served.connect("v", 50, true);
    submit_reads(&mut client, 50);
    served.wait_until("fifty requests", |status| status.requests_under_way > 40);
    let _silent = plimsoll_testkit::raw_connection(&served.engine, &info);
    served.engine.shutdown(Span::from_millis(50)).unwrap();
    while client.receive(|_, _, _| {}).is_ok() {}
}

#[test]
fn the_last_handle_ends_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let engine = spawn(EngineConfig::new(profile(), "noop")).unwrap();
    engine.open_pool("pool", Allocation::default()).unwrap();
    engine.add_volume(Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap()).unwrap();
    drop(engine);
    for _ in 0..10_000 {
        if Volume::open(file_config("v", &path, None)).is_ok() {
            return;
        }
        plimsoll_testkit::pause();
    }
    panic!("the volume stayed locked");
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let reserve = |percent| Allocation { reserve: Rate::DevicePercent(percent), ..Allocation::default() };
    let served = Served::plain(vec![memory("v", VOLUME_BYTES, 0)]);
    let engine = &served.engine;
    let said = |result: Result<(), EngineError>| result.unwrap_err().to_string();
    engine.open_pool("web", reserve(80.0)).unwrap();
    engine.open_pool("web/db", reserve(50.0)).unwrap();
    assert_eq!(
        said(engine.open_pool("mail", reserve(30.0))),
        "mail: a reserve of 3000 runs/s does not fit: device has 10000 runs/s, 8000 are promised to others, 1000 too many"
    );
    assert!(said(engine.change_account("web", reserve(40.0))).contains("1000 too few"));
    engine.change_account("web", reserve(60.0)).unwrap();
    engine.open_pool("mail", reserve(30.0)).unwrap();
    assert_eq!(said(engine.open_pool("no/such", reserve(1.0))), "there is no pool \"no\"");
    assert_eq!(said(engine.close_pool("pool")), "pool pool is used by volume v");
    assert!(said(engine.close_pool("web")).contains("members"));
    engine.close_pool("web/db").unwrap();
    engine.close_pool("web").unwrap();
    engine.close_pool("mail").unwrap();

    assert_eq!(said(engine.add_volume(memory("v", VOLUME_BYTES, 1 << 30))), "there is a volume v already");
    assert_eq!(
        said(engine.add_volume(memory("w", VOLUME_BYTES, VOLUME_BYTES / 2))),
        "volume w would overlap volume v on the device"
    );
    assert_eq!(
        said(engine.add_volume(memory("w", VOLUME_BYTES, 64 << 30))),
        "volume w would end at 64 GiB (68723671040 B), the device has 64 GiB (68719476736 B)"
    );
    let client = served.connect("v", 1, true);
    served.wait_until("the client", |status| status.volumes[0].front_ends == 1);
    assert_eq!(said(engine.remove_volume("v")), "volume v is in use: 1 attached");
    engine.stop_volume("v", Span::from_millis(1)).unwrap();
    drop(client);
    served.wait_until_all_have_gone();
    engine.remove_volume("v").unwrap();
    assert_eq!(said(engine.stop_volume("v", Span::ZERO)), "there is no volume \"v\"");
    assert_eq!(said(engine.stop_pool("web", Span::ZERO)), "there is no pool \"web\"");
}
