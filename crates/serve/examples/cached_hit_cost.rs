//! What a hit in a cache costs the engine's thread over the I/O itself: CPU time for 4 KiB of a random read over NBD,
//! of a volume without a cache and of one with a cache that has all of it. Both files are in memory, so both read
//! through the same kind of file.
//!
//! ```text
//! cargo run --profile quick -p plimsoll-serve --example cached_hit_cost [DIRECTORY]
//! ```
//!
//! The two are measured in turns, so that whatever else the machine does falls on both; medians are printed.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use plimsoll_cache::policies;
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig, VolumeInfo};
use plimsoll_engine::cache::{self, CacheSettings, FoundCache};
use plimsoll_engine::{EngineConfig, EngineHandle, SessionConfig, spawn};
use plimsoll_protocols::nbd::{Command, CommandFlags, SharedExports};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use plimsoll_serve::nbd::{Address, Listener, NbdConnection, export_info, serve};
use std::path::Path;

const VOLUME_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 80 << 20;
const BLOCK_BYTES: u32 = 4096;
const DEPTH: u32 = 16;
const READS: u64 = 100_000;
const ROUNDS: usize = 9;

fn engine(name: &str) -> EngineHandle {
    let profile = DeviceProfile {
        name: name.into(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: 10_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    };
    let engine = spawn(EngineConfig::new(profile, "noop")).expect("io_uring");
    engine.open_pool("pool", Allocation::default()).expect("an empty tree");
    engine
}

fn volume(directory: &Path, name: &str) -> Volume {
    let path = directory.join(format!("{name}.slow"));
    let backing = Backing::File { path, size_bytes: Some(VOLUME_BYTES), creates: true, encryption: None };
    Volume::open(VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false })
        .expect("a new file")
}

/// Serves the engine's volume at `path`, and connects to it.
fn connect(engine: &EngineHandle, volume: &VolumeInfo, path: &Path) -> (Serving, Client) {
    let (address, exports) = (Address::Unix(path.to_owned()), SharedExports::new());
    exports.add(export_info(volume, false)).expect("the only export");
    let listener = Listener::bind(&address, ListenerOptions::default()).expect("a new socket");
    let engine = engine.clone();
    let serving = serve(listener, exports, move |socket, negotiated, _| {
        let session = SessionConfig { name: "client".into(), allocation: Allocation::default() };
        engine.attach("v", session, Box::new(NbdConnection::new(socket, negotiated))).expect("the volume is there");
    });
    let options = ClientOptions { export_name: "v".into(), depth_max: DEPTH, ..ClientOptions::default() };
    (serving.expect("a thread"), Client::connect(&address, &options).expect("it is served"))
}

/// CPU time of the engine's thread so far, nanoseconds (`/proc/PID/task/TID/schedstat`).
fn cpu_ns(engine: &str) -> u64 {
    for task in std::fs::read_dir("/proc/self/task").expect("/proc").flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim() == format!("engine-{engine}") {
            return read("schedstat").split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
        }
    }
    panic!("there is no thread of engine {engine}")
}

/// Reads random blocks; answers the CPU time of the engine for one, nanoseconds.
fn measure(client: &mut Client, engine: &str, random: &mut u64) -> f64 {
    let before = cpu_ns(engine);
    let (mut submitted, mut received) = (0, 0);
    while received < READS {
        while submitted < READS && submitted - received < u64::from(DEPTH) {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (*random >> 33) % (VOLUME_BYTES / u64::from(BLOCK_BYTES)) * u64::from(BLOCK_BYTES);
            let tag = (submitted % u64::from(DEPTH)) as u32;
            client.submit(tag, Command::Read, CommandFlags::NONE, offset, BLOCK_BYTES).expect("connected");
            submitted += 1;
        }
        for _ in 0..submitted - received {
            client.receive(|_, _, _| {}).expect("connected");
            received += 1;
        }
    }
    (cpu_ns(engine) - before) as f64 / READS as f64
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    let (plain, cached) = (engine("plain"), engine("cached"));
    let slow = volume(directory.path(), "plain");
    let info = slow.info().clone();
    plain.add_volume(slow).expect("an empty device");
    let slow = volume(directory.path(), "cached");
    let policy = policies().iter().find(|entry| entry.name == "credit").expect("it is registered");
    let path = directory.path().join("fast");
    let settings =
        CacheSettings { size_bytes: Some(CACHE_BYTES), ..CacheSettings::new("fast", path, policy, Scheme::default()) };
    cache::make(&settings, slow.config(), VOLUME_BYTES, false).expect("a new file");
    let found = FoundCache::find(settings, &slow).expect("it was made just now");
    cached.add_volume(slow).expect("an empty device");
    cached.attach_cache("v", found).expect("a volume without a cache");
    let at = |name: &str| directory.path().join(name);
    let (of_plain, of_cached) =
        (connect(&plain, &info, &at("plain.sock")), connect(&cached, &info, &at("cached.sock")));
    let (servings, mut clients) = ([of_plain.0, of_cached.0], [of_plain.1, of_cached.1]);
    let data = vec![1; 1 << 20];
    for client in &mut clients {
        (0..VOLUME_BYTES >> 20).for_each(|at| client.write(at << 20, &data, false).expect("room"));
    }
    let (mut random, mut costs) = (1, [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        for (client, (name, costs)) in clients.iter_mut().zip(["plain", "cached"].into_iter().zip(&mut costs)) {
            costs.push(measure(client, name, &mut random));
        }
    }
    let [plain_ns, cached_ns] = costs.map(|mut costs| {
        costs.sort_by(f64::total_cmp);
        costs[ROUNDS / 2]
    });
    let status = &cached.caches().expect("it runs")[0].1;
    let (reads, hits) = (status.classes[0].reads, status.classes[0].read_hits);
    println!("{hits} of {reads} reads were hits");
    println!(
        "engine's CPU for a read of 4 KiB: {plain_ns:.0} ns without a cache, {cached_ns:.0} ns for a hit, {:.0} ns more",
        cached_ns - plain_ns
    );
    drop((clients, servings));
    plain.shutdown(Span::from_secs(5)).expect("nothing hangs");
    cached.shutdown(Span::from_secs(5)).expect("nothing hangs");
}
