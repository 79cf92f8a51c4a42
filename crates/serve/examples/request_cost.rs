//! Drives the engine with a fixed number of requests of 4 KiB at random places, without a socket: for counting the
//! instructions that the engine's thread spends on one.
//!
//! ```text
//! request_cost <memory | file | cached> <scheduler> <read | write> <requests> [directory]
//! ```
//!
//! The cost of one request is the difference of two runs with different numbers of requests, divided by the difference
//! of the numbers. `cached` reads what a cache has, so each read is a hit. Counts do not depend on what else the
//! machine does, because the requests of one run come in the same order and in the same turns as those of another one.

use plimsoll_cache::policies;
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, Class, DeviceProfile, Operation, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::cache::{self, CacheSettings, FoundCache};
use plimsoll_engine::{
    BufferClass, EngineConfig, EngineHandle, Finished, FrontEnd, Port, SessionConfig, Submission, spawn,
};
use rustix::io::Errno;
use std::path::Path;
use std::sync::mpsc::{self, Sender};

const VOLUME_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: u32 = 4096;
const DEPTH: u64 = 16;
const CLASSES: [BufferClass; 1] = [BufferClass { bytes: BLOCK_BYTES, count: DEPTH as u16 }];

/// A front end that keeps [`DEPTH`] requests under way until it has made as many as it should.
struct Load {
    operation: Operation,
    /// Requests that are not yet made.
    left: u64,
    under_way: u64,
    /// Each block once, in order; otherwise at random.
    is_in_order: bool,
    place: u64,
    is_stopped: bool,
    done: Option<Sender<()>>,
}

impl Load {
    fn go_on(&mut self, port: &mut Port<'_>) {
        while self.left > 0 && self.under_way < DEPTH {
            let blocks = VOLUME_BYTES / u64::from(BLOCK_BYTES);
            let block = if self.is_in_order { self.place } else { self.place >> 33 } % blocks;
            let offset = block * u64::from(BLOCK_BYTES);
            let payload = match self.operation {
                Operation::Read => port.take_read_payload(offset, BLOCK_BYTES),
                _ => port.take_buffer(BLOCK_BYTES).map(|buffer| plimsoll_engine::Payload::Buffer { buffer, at: 0 }),
            };
            let Some(payload) = payload else { return };
            self.place = match self.is_in_order {
                true => self.place + 1,
                false => self.place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
            };
            (self.left, self.under_way) = (self.left - 1, self.under_way + 1);
            port.submit(Submission {
                token: self.left,
                operation: self.operation,
                offset,
                length: BLOCK_BYTES,
                is_forced: false,
                class: Class::UNCLASSIFIED,
                payload,
            });
        }
    }
}

impl FrontEnd for Load {
    fn buffer_classes(&self) -> &[BufferClass] {
        &CLASSES
    }

    fn started(&mut self, port: &mut Port<'_>) {
        self.go_on(port);
    }

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        assert_eq!(finished.result, Ok(()));
        port.give_payload(finished.payload);
        self.under_way -= 1;
        if self.left == 0 && self.under_way == 0 {
            self.done.take();
        }
    }

    fn turn_ended(&mut self, port: &mut Port<'_>) {
        self.go_on(port);
    }

    fn stop(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn cut(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn is_finished(&self) -> bool {
        self.under_way == 0 && (self.is_stopped || self.left == 0)
    }
}

fn engine(scheduler: &str) -> EngineHandle {
    let profile = DeviceProfile {
        name: "cost".into(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: 1e6,
        sequential_bytes_per_second: 1e11,
        sequential_write_bytes_per_second: 1e11,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    };
    let engine = spawn(EngineConfig::new(profile, scheduler)).expect("io_uring, and a scheduler of this name");
    engine.open_pool("pool", Allocation::default()).expect("an empty tree");
    engine
}

/// Makes so many requests, and waits for the last one's end.
fn load(engine: &EngineHandle, operation: Operation, requests: u64, is_in_order: bool) {
    let (done, hear) = mpsc::channel();
    let (place, under_way, is_stopped) = (u64::from(!is_in_order), 0, false);
    let load = Load { operation, left: requests, under_way, is_in_order, place, is_stopped, done: Some(done) };
    let session = SessionConfig { name: "client".into(), allocation: Allocation::default() };
    engine.attach("v", session, Box::new(load)).expect("the volume is there");
    let _ = hear.recv();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, scheduler, operation, requests, rest @ ..] = arguments.as_slice() else {
        panic!("request_cost <memory | file | cached> <scheduler> <read | write> <requests> [directory]")
    };
    let directory = rest.first().map_or("/dev/shm", String::as_str);
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    let operation = if operation == "read" { Operation::Read } else { Operation::Write };
    let backing = match kind.as_str() {
        "memory" => Backing::Memory { size_bytes: VOLUME_BYTES },
        _ => {
            let path = directory.path().join("slow");
            Backing::File { path, size_bytes: Some(VOLUME_BYTES), creates: true, encryption: None }
        }
    };
    let config = VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let volume = Volume::open(config).expect("a new volume");
    let engine = engine(scheduler);
    let found = (kind == "cached").then(|| found_cache(&volume, directory.path()));
    engine.add_volume(volume).expect("an empty device");
    if let Some(found) = found {
        engine.attach_cache("v", found).expect("a volume without a cache");
    }
    load(&engine, Operation::Write, VOLUME_BYTES / u64::from(BLOCK_BYTES), true);
    load(&engine, operation, requests.parse().expect("a number of requests"), false);
    if kind == "cached" {
        let status = &engine.caches().expect("it runs")[0].1;
        println!("{} of {} reads were hits", status.classes[0].read_hits, status.classes[0].reads);
    }
    engine.shutdown(Span::from_secs(5)).expect("nothing hangs");
}

/// An empty cache for a volume, larger than it.
fn found_cache(volume: &Volume, directory: &Path) -> FoundCache {
    let policy = policies().iter().find(|entry| entry.name == "credit").expect("it is registered");
    let (path, size_bytes) = (directory.join("fast"), Some(CACHE_BYTES));
    let settings = CacheSettings { size_bytes, ..CacheSettings::new("fast", path, policy, Scheme::default()) };
    cache::make(&settings, volume.config(), VOLUME_BYTES, false).expect("a new file");
    FoundCache::find(settings, volume).expect("it was made just now")
}
