//! What the tests of the engine and of the front ends share: an engine with volumes, NBD clients, an iSCSI initiator,
//! patience. Only tests depend on this crate.
//!
//! Failures here panic: the test has failed.

#![forbid(unsafe_code)]

pub mod iscsi;
pub mod slow;

use plimsoll_cache::policies;
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Encryption, KEY_BYTES, Volume, VolumeConfig, VolumeInfo};
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::notes::Notes;
use plimsoll_engine::{CacheStatus, EngineConfig, EngineHandle, EngineStatus, SessionConfig, spawn};
use plimsoll_protocols::nbd::{Errno, Negotiated, SharedExports};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use plimsoll_serve::nbd::{Address, Client, Listener, NbdConnection, export_info, serve};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Long enough for a machine that is busy with something else.
pub const PATIENCE: Span = Span::from_secs(300);

/// Bytes of a block of a cache, and of the pieces that most tests write.
pub const BLOCK: u64 = 4096;
/// Of a cache that is too small for most volumes: some 1000 units.
pub const CACHE_BYTES: u64 = 4 << 20;

/// A device of 64 GiB that does whatever is asked.
pub fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 64 << 30,
        worst_case_runs_per_second: 10_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    }
}

/// A session of that name without any promise.
pub fn session(name: &str) -> SessionConfig {
    SessionConfig { name: name.into(), allocation: Allocation::default() }
}

/// A volume of the pool `pool` in memory, of `size_bytes` from byte `start_bytes` of the device on.
pub fn memory(name: &str, size_bytes: u64, start_bytes: u64) -> Volume {
    let backing = Backing::Memory { size_bytes };
    let pool = "pool".into();
    Volume::open(VolumeConfig { name: name.into(), pool, backing, start_bytes, is_read_only: false }).unwrap()
}

/// A volume of the pool `pool` in the file at `path`, which is made if it has a size.
pub fn file_config(name: &str, path: &Path, size_bytes: Option<u64>) -> VolumeConfig {
    let backing = Backing::File { path: path.to_owned(), size_bytes, creates: size_bytes.is_some(), encryption: None };
    VolumeConfig { name: name.into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false }
}

/// The key of volumes that are encrypted.
pub fn key_bytes() -> [u8; KEY_BYTES] {
    std::array::from_fn(|at| at as u8 * 3 + 1)
}

/// As [`file_config`], encrypted; key and notes are beside the file.
pub fn encrypted_config(name: &str, path: &Path, size_bytes: u64) -> VolumeConfig {
    let key_file = path.with_extension("key");
    std::fs::write(&key_file, key_bytes()).unwrap();
    std::fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let encryption = Some(Encryption { key_file, notes: Some(Notes::new(path.with_extension("notes"))) });
    let backing = Backing::File { path: path.to_owned(), size_bytes: Some(size_bytes), creates: true, encryption };
    VolumeConfig { backing, ..file_config(name, path, None) }
}

/// What the server said; a broken connection is no answer.
pub fn answered(result: Result<(), ClientError>) -> Result<(), Errno> {
    match result {
        Ok(()) => Ok(()),
        Err(ClientError::Answered(errno)) => Err(errno),
        Err(other) => panic!("not an answer: {other}"),
    }
}

/// An engine with volumes that can be reached over a Unix socket.
pub struct Served {
    /// The engine, with an open pool `pool`.
    pub engine: EngineHandle,
    exports: SharedExports,
    serving: Option<Serving>,
    _directory: tempfile::TempDir,
}

impl Served {
    /// Starts an engine and serves these volumes.
    pub fn new(config: EngineConfig, volumes: Vec<Volume>) -> Served {
        let engine = spawn(config).unwrap();
        engine.open_pool("pool", Allocation::default()).unwrap();
        let (exports, directory) = (SharedExports::new(), tempfile::tempdir().unwrap());
        let address = Address::Unix(directory.path().join("nbd.sock"));
        let (of_listener, known) = (engine.clone(), exports.clone());
        let listener = Listener::bind(&address, ListenerOptions::default()).unwrap();
        let serving = serve(listener, known, move |socket, negotiated, _| {
            let volume = negotiated.export.name.clone();
            let connection = Box::new(NbdConnection::new(socket, negotiated));
            of_listener.attach(&volume, session("client"), connection).unwrap();
        });
        let served = Served { engine, exports, serving: Some(serving.unwrap()), _directory: directory };
        volumes.into_iter().for_each(|volume| served.add(volume));
        served
    }

    /// With `noop`.
    pub fn plain(volumes: Vec<Volume>) -> Served {
        Served::new(EngineConfig::new(profile(), "noop"), volumes)
    }

    /// Serves one more volume.
    pub fn add(&self, volume: Volume) {
        self.exports.add(export_info(volume.info(), false)).unwrap();
        self.engine.add_volume(volume).unwrap();
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        self.serving.as_ref().unwrap().address()
    }

    /// A client of a volume with at most `depth_max` requests under way.
    pub fn connect(&self, volume: &str, depth_max: u32, structured_replies: bool) -> Client {
        let options =
            ClientOptions { export_name: volume.into(), structured_replies, depth_max, ..ClientOptions::default() };
        Client::connect(self.serving.as_ref().unwrap().address(), &options).unwrap()
    }

    /// Waits until the status is as it should be, and gives it.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&EngineStatus) -> bool) -> EngineStatus {
        for _ in 0..PATIENCE.as_nanos() / PAUSE.as_nanos() {
            let status = self.engine.status().unwrap();
            if is_so(&status) {
                return status;
            }
            pause();
        }
        panic!("never came: {what}; now {:?}", self.engine.status().unwrap());
    }

    /// Waits until no front end is attached, and checks that nothing of any is left.
    pub fn wait_until_all_have_gone(&self) -> EngineStatus {
        self.wait_until_all_have_gone_of(&["pool"])
    }

    /// The same, where there are these pools.
    pub fn wait_until_all_have_gone_of(&self, pools: &[&str]) -> EngineStatus {
        let status = self.wait_until("the end of all connections", |status| {
            // A cache's syncer goes on for a moment.
            let is_cached = status.volumes.iter().any(|volume| volume.cache.is_some());
            let has_ended = !is_cached || status.requests_under_way == 0;
            has_ended && status.volumes.iter().all(|volume| volume.front_ends == 0)
        });
        assert_eq!(status.requests_under_way, 0, "every request was given back");
        let paths = status.accounts.iter().map(|account| account.path.as_str());
        // The syncer's session is open as long as the cache is there.
        let paths: Vec<_> = paths.filter(|path| !path.starts_with("pool/cache#")).collect();
        let (device, pools_left) = paths.split_first().expect("the device is there");
        assert_eq!((*device, pools_left), (status.device.as_str(), pools), "every session was closed");
        assert!(status.accounts.iter().all(|account| account.queued == 0 && account.in_flight == 0));
        status
    }
}

/// Attaches the server's end of a socket pair, past the handshake, and gives the client's end.
pub fn raw_connection(engine: &EngineHandle, volume: &VolumeInfo) -> UnixStream {
    raw_connection_in(engine, volume, "pool")
}

/// The same, with the session in `pool`.
pub fn raw_connection_in(engine: &EngineHandle, volume: &VolumeInfo, pool: &str) -> UnixStream {
    let (client, server) = UnixStream::pair().unwrap();
    let negotiated =
        Negotiated { export: export_info(volume, false), structured_replies: false, block_size_known: true };
    let connection = Box::new(NbdConnection::new(server.into(), negotiated));
    engine.attach_in(&volume.name, pool, session("raw"), connection).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_nanos(PATIENCE.as_nanos()))).unwrap();
    client
}

const PAUSE: Span = Span::from_millis(5);

/// Lets other threads run.
pub fn pause() {
    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
    let _ = rustix::thread::nanosleep(&pause);
}

/// Nanoseconds of the kernel's monotonic clock.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A small generator of numbers that look random (xorshift64*, Vigna 2016); the same seed gives the same numbers.
pub struct Random(pub u64);

impl Random {
    /// The next number below `bound`, which is at most 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound
    }
}

/// A cache by LRU on `path`.
pub fn cache_settings(path: PathBuf) -> CacheSettings {
    let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
    let usual = CacheSettings::new("fast", path, policy, Scheme::default());
    CacheSettings { size_bytes: Some(CACHE_BYTES), seed: Some(1), ..usual }
}

/// Cargo's directory for files of tests, below which a file takes O_DIRECT: `/tmp` may be a tmpfs. A test's program is
/// in `target/PROFILE/deps`.
fn target_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let directory = program.ancestors().nth(3).expect("a test's program lies below target").join("tmp");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// An engine with a volume `v` that has a cache, and where the cache is.
pub fn cached(
    config: EngineConfig,
    volume: Volume,
    change: impl FnOnce(&mut CacheSettings),
) -> (Served, tempfile::TempDir) {
    let directory = tempfile::tempdir_in(target_directory()).unwrap();
    let mut settings = cache_settings(directory.path().join("fast"));
    change(&mut settings);
    let (volume_config, bytes) = (volume.config().clone(), volume.info().size_bytes);
    let found = FoundCache::find_or_make(settings, &volume_config, bytes, true).unwrap();
    let served = Served::new(config, vec![volume]);
    served.engine.attach_cache("v", found).unwrap();
    (served, directory)
}

/// How the cache of the first volume is.
pub fn cache_of(served: &Served) -> CacheStatus {
    served.engine.status().unwrap().volumes[0].cache.clone().expect("the volume has a cache")
}

/// What is written to a block.
pub fn content(block: u64) -> Vec<u8> {
    (0..BLOCK).map(|at| (block * 31 + at * 7) as u8).collect()
}
