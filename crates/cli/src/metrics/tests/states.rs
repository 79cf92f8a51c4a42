//! States of daemons: all that a daemon can have, each number in it another.

use crate::control::caches::CacheEntry;
use crate::control::protocol::{
    DaemonStatus, ExecutorStatus, LossEntry, PoolStatus, ServedAs, TenantCgroupEntry, TenantEntry, VolumeEntry,
};
use crate::metrics::accounts::POOL;
use crate::metrics::caches::CACHED_VOLUME;
use crate::metrics::devices::DAEMON;
use crate::metrics::reading::Reading;
use crate::metrics::tenants::TENANT;
use crate::metrics::volumes::SERVED_VOLUME;
use plimsoll_core::account::AccountKind;
use plimsoll_core::{Allocation, Deadlines, Priority, Rate, Span, Time};
use plimsoll_engine::status::{CachePoolStatus, CacheWritesStatus};
use plimsoll_engine::{
    AccountStatus, CacheClassStatus, CacheStatus, EmulationStatus, EngineStatus, LatencyStatus, ReadAheadStatus,
    VolumeStatus,
};
use plimsoll_executor::{Figures, QueueFigures, ThreadFigures};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The answers of a daemon to all questions about its state.
pub struct State {
    /// What is special about it.
    pub name: &'static str,
    pub status: DaemonStatus,
    pub pools: Vec<PoolStatus>,
    pub caches: Vec<CacheEntry>,
    pub tenants: Vec<TenantEntry>,
}

/// The answers of a daemon, as it makes them.
#[derive(Clone)]
pub struct Answers {
    pub status: Reading,
    pub pools: Reading,
    pub volumes: Reading,
    pub caches: Reading,
    pub tenants: Reading,
}

impl State {
    pub fn answers(&self) -> Answers {
        Answers {
            status: DAEMON.object(&self.status),
            pools: POOL.list(&self.pools),
            volumes: SERVED_VOLUME.list(&self.status.volumes),
            caches: CACHED_VOLUME.list(&self.caches),
            tenants: TENANT.list(&self.tenants),
        }
    }
}

/// Every number is another.
#[derive(Default)]
struct Numbers(u32);

impl Numbers {
    /// A small one.
    fn few(&mut self) -> u32 {
        self.0 += 1;
        100 + self.0
    }

    fn much(&mut self) -> u64 {
        u64::from(self.few()).pow(4) / 7
    }

    fn rate(&mut self) -> f64 {
        f64::from(self.few()).powi(3) / 7.0
    }

    fn latency(&mut self) -> LatencyStatus {
        let [count, p50_ns, p99_ns, p999_ns, max_ns] = [(); 5].map(|()| self.much());
        LatencyStatus { count, p50_ns, p99_ns, p999_ns, max_ns }
    }

    fn account(&mut self, path: &str, kind: AccountKind, allocation: Allocation) -> AccountStatus {
        AccountStatus {
            path: path.to_owned(),
            kind,
            allocation,
            requests: self.much(),
            runs: self.much(),
            bytes: self.much(),
            failed: self.much(),
            queued: self.few(),
            in_flight: self.few(),
            runs_per_second: self.rate(),
            bytes_per_second: self.rate(),
            runs_per_second_since_open: self.rate(),
            bytes_per_second_since_open: self.rate(),
            read_latency: self.latency(),
            write_latency: self.latency(),
            flush_latency: self.latency(),
        }
    }

    fn emulation(&mut self) -> EmulationStatus {
        let (late_replies, replies) = (self.few().into(), self.much());
        EmulationStatus { replies, late_replies, lateness_ns_bound: self.much(), lateness_ns_p99: self.much() }
    }

    fn read_ahead(&mut self) -> ReadAheadStatus {
        let [bytes_max, memory_bytes, fetched_bytes, used_bytes, wasted_bytes] = [(); 5].map(|()| self.much());
        ReadAheadStatus { bytes_max, memory_bytes, fetched_bytes, used_bytes, wasted_bytes }
    }

    /// A volume that has nothing special.
    fn volume(&mut self, name: &str) -> VolumeStatus {
        VolumeStatus {
            name: name.to_owned(),
            pool: format!("web/{name}"),
            size_bytes: self.much(),
            start_bytes: self.much(),
            is_read_only: false,
            front_ends: self.few(),
            stored_bytes: None,
            backlog_bytes: None,
            compressed_behind_bytes: None,
            compressed_by_writers_bytes: None,
            cache: None,
            read_ahead: None,
        }
    }

    fn entry(&mut self, name: &str, device: &str, served_as: Vec<ServedAs>) -> VolumeEntry {
        let of_kind = |kind: &str| served_as.iter().find(|way| way.kind == kind).map(|way| way.name.clone());
        VolumeEntry {
            name: name.to_owned(),
            device: device.to_owned(),
            path: format!("web/{name}"),
            size_bytes: self.much(),
            start_bytes: self.much(),
            is_read_only: of_kind("mount").is_some(),
            content: if of_kind("nbd").is_some() { "memory, compressed" } else { "/srv/a disk.img" }.to_owned(),
            export: of_kind("nbd"),
            target: of_kind("iscsi"),
            block_device: of_kind("mount").map(|_| "/dev/loop3".into()),
            mount_point: of_kind("mount").map(PathBuf::from),
            served_as,
            front_ends: self.few(),
        }
    }

    fn class(&mut self, number: u8, name: &str) -> CacheClassStatus {
        let (units, read_hits, reads) = (self.few(), self.few().into(), self.much());
        let (write_hits, writes) = (self.few().into(), self.much());
        CacheClassStatus { number, name: name.to_owned(), units, reads, read_hits, writes, write_hits }
    }

    fn cache(&mut self, name: &str) -> CacheStatus {
        CacheStatus {
            name: name.to_owned(),
            path: format!("/dev/{name}"),
            policy: "lru".to_owned(),
            writes: CacheWritesStatus {
                is_strict: false,
                semantics: "write-cache".to_owned(),
                dirty_units_max: Some(self.few()),
                dirty_age_max_ns: Some(self.much()),
                idle_write_back_ns: Some(self.much()),
            },
            is_working: true,
            has_failed: false,
            units: self.few() * 1000,
            used_units: self.few(),
            dirty_units: self.few(),
            free_units: self.few(),
            paced_percent: self.few(),
            waiting_requests: self.few() as usize,
            is_syncer_awake: false,
            is_cleaning: false,
            clean_passes: self.much(),
            cleaned: self.much(),
            writes_around: self.much(),
            commits: self.much(),
            snapshots: self.much(),
            damaged_clean: 0,
            damaged_dirty: 0,
            not_copied: self.much(),
            not_copied_bytes: Vec::new(),
            unreadable: self.much(),
            unreadable_bytes: Vec::new(),
            bad_units: 0,
            emulation: None,
            classes: vec![self.class(1, "log"), self.class(9, "")],
            pools: Vec::new(),
        }
    }

    fn device(&mut self, name: &str, volumes: Vec<VolumeStatus>, accounts: Vec<AccountStatus>) -> EngineStatus {
        let root = self.account(name, AccountKind::Pool, Allocation::default());
        EngineStatus {
            device: name.to_owned(),
            scheduler: "zygaria".to_owned(),
            uptime_ns: self.much(),
            overload_ns: 0,
            reserves_kept: 1.0,
            emulation: None,
            requests_under_way: self.few() as usize,
            volumes,
            accounts: [vec![root], accounts].concat(),
        }
    }

    fn cgroup(&mut self, directory: &str, is_late: bool) -> TenantCgroupEntry {
        TenantCgroupEntry { directory: directory.to_owned(), freezes: self.much(), is_late }
    }

    fn thread(&mut self, running_since: Option<Time>) -> ThreadFigures {
        ThreadFigures {
            turns: self.much(),
            runs: self.much(),
            done: self.much(),
            suspended: self.much(),
            resumed: self.much(),
            preempted: self.much(),
            gave_way: self.much(),
            panicked: self.much(),
            busy: Span::from_nanos(self.much()),
            running_since,
        }
    }

    fn queue(&mut self, served: u64) -> QueueFigures {
        let [waited, behind_maintenance, waited_max] = [(); 3].map(|()| Span::from_nanos(self.much()));
        QueueFigures { depth: self.few(), served, waited, behind_maintenance, waited_max }
    }

    fn executor(&mut self, threads: Vec<ThreadFigures>, queues: [QueueFigures; 3]) -> Option<ExecutorStatus> {
        let at = Time::ZERO + Span::from_secs(9);
        let figures = Figures { threads, queues, alive: self.few() as usize, at, ..Figures::default() };
        Some(ExecutorStatus { policy: "combo", figures })
    }
}

/// A tenant that nothing holds.
fn tenant(volume: &str, path: &str, processes: Vec<u32>) -> TenantEntry {
    let (volume, path) = (volume.to_owned(), path.to_owned());
    TenantEntry { volume, path, processes, held_by: Vec::new(), not_held: None, freezes: 0, cgroups: Vec::new() }
}

fn way(kind: &str, name: &str, address: &str) -> ServedAs {
    ServedAs { kind: kind.into(), name: name.into(), address: address.into() }
}

fn promised(reserve: &str, limit: Option<&str>, priority: Priority) -> Allocation {
    let limit = limit.map(|limit| limit.parse().unwrap());
    Allocation { reserve: reserve.parse().unwrap(), limit, weight: 7, priority, deadlines: Deadlines::default() }
}

fn daemon(devices: Vec<EngineStatus>, volumes: Vec<VolumeEntry>) -> DaemonStatus {
    DaemonStatus {
        version: "1.2.3".to_owned(),
        process: 4711,
        configuration: "/etc/plimsoll.toml".into(),
        executor: None,
        devices,
        volumes,
        losses: Vec::new(),
    }
}

/// A state with the pools and caches of its status.
fn state(name: &'static str, status: DaemonStatus, tenants: Vec<TenantEntry>) -> State {
    let pools = status.devices.iter().flat_map(|device| {
        let pools = device.accounts.iter().skip(1).filter(|account| !account.path.contains('#'));
        pools.map(|account| PoolStatus {
            device: device.device.clone(),
            path: account.path.clone(),
            is_volume: account.path.contains('/'),
            is_session: account.kind == AccountKind::Session,
            allocation: account.allocation,
        })
    });
    let caches = status.devices.iter().flat_map(|device| {
        let cached = device.volumes.iter().filter_map(|volume| Some((&volume.name, volume.cache.clone()?)));
        let device = device.device.clone();
        cached.map(move |(volume, cache)| CacheEntry { volume: volume.clone(), device: device.clone(), cache })
    });
    State { name, pools: pools.collect(), caches: caches.collect(), status, tenants }
}

/// Everything that a daemon can have.
pub fn everything() -> State {
    let mut n = Numbers::default();
    let deadlines = Deadlines { read: Some(Span::from_micros(1500)), write: None, fsync: Some(Span::from_secs(2)) };
    let accounts = vec![
        n.account("web", AccountKind::Pool, promised("10.06 MB/s", Some("20.004 MB/s"), Priority::Level(2))),
        n.account("web/db", AccountKind::Pool, promised("33.3333%", None, Priority::Idle)),
        n.account("bulk", AccountKind::Pool, promised("0 B/s", Some("9.5 runs/s"), Priority::RealTime(3))),
        n.account("web/db/nbd#1", AccountKind::Session, Allocation { deadlines, ..Allocation::default() }),
        n.account("web/db/loader", AccountKind::Session, promised("0.004 runs/s", None, Priority::default())),
    ];
    let mut cache = n.cache("ssd");
    cache.emulation = Some(n.emulation());
    (cache.damaged_clean, cache.damaged_dirty, cache.bad_units) = (n.much(), n.much(), n.few());
    cache.not_copied_bytes = vec![(n.much(), n.much())];
    cache.unreadable_bytes = vec![(n.much(), n.much()), (n.much(), n.much())];
    cache.pools = vec![CachePoolStatus { pool: "web".to_owned(), units: n.few(), units_max: n.few() }];
    let cached = VolumeStatus {
        stored_bytes: Some(n.much()),
        backlog_bytes: Some(n.much()),
        compressed_behind_bytes: Some(n.much()),
        compressed_by_writers_bytes: Some(n.much()),
        cache: Some(cache),
        read_ahead: Some(n.read_ahead()),
        ..n.volume("db")
    };
    let slow = VolumeStatus { read_ahead: Some(n.read_ahead()), is_read_only: true, ..n.volume("slow") };
    let volumes = vec![cached, n.volume("lun")];
    let mut first = n.device("disk0", volumes, accounts);
    first.emulation = Some(n.emulation());
    let mut second = n.device("disk1", vec![slow], Vec::new());
    (second.overload_ns, second.reserves_kept) = (n.much(), 0.4567);
    let nbd = [way("nbd", "db", "unix:/run/nbd.sock"), way("nbd", "db", "tcp:127.0.0.1:10809")];
    let iscsi = [way("iscsi", "iqn.2026-01.a:lun", "tcp:127.0.0.1:3260")];
    let mount = [way("mount", "/mnt/slow", "/dev/loop3"), way("vhost", "slow", "unix:/run/vhost")];
    let volumes = vec![
        n.entry("db", "disk0", nbd.to_vec()),
        n.entry("lun", "disk0", iscsi.to_vec()),
        n.entry("slow", "disk1", mount.to_vec()),
    ];
    let stuck = Some(Time::ZERO + Span::from_millis(100));
    let threads = vec![n.thread(None), n.thread(stuck)];
    let queues = [n.queue(7), n.queue(0), n.queue(11)];
    let executor = n.executor(threads, queues);
    let losses = vec![
        LossEntry { volume: "slow".to_owned(), registrations: n.much(), events: n.much(), entries: n.much() },
        LossEntry { volume: "disk9".to_owned(), registrations: 0, events: 1, entries: 0 },
    ];
    let tenants = vec![
        TenantEntry {
            held_by: ["shim", "notifications", "freezer"].map(str::to_owned).to_vec(),
            freezes: n.much(),
            cgroups: vec![n.cgroup("/sys/fs/cgroup/a\nb", true), n.cgroup("/sys/fs/cgroup/c", false)],
            ..tenant("slow", "web/slow/run#1", vec![7, 8, 9])
        },
        TenantEntry {
            not_held: Some("/c is never frozen: init is in it".to_owned()),
            ..tenant("slow", "web/slow/run#2", vec![])
        },
    ];
    state("everything", DaemonStatus { executor, losses, ..daemon(vec![first, second], volumes) }, tenants)
}

/// A disk that is observed: no volume, sessions of tenants.
fn observed() -> State {
    let mut n = Numbers(60);
    let mut idle = n.account("sda/quiet#2", AccountKind::Session, Allocation::default());
    (idle.read_latency, idle.write_latency, idle.flush_latency) = Default::default();
    let busy = n.account("sda/pg\u{1b}[2J\nx#1", AccountKind::Session, promised("5%", None, Priority::RealTime(0)));
    let mut device = n.device("sda", Vec::new(), vec![idle, busy]);
    (device.overload_ns, device.scheduler) = (n.much(), "split-deadline".to_owned());
    let losses = vec![LossEntry { volume: "sda".to_owned(), registrations: 1, events: 0, entries: 5 }];
    let configuration = PathBuf::from(OsStr::from_bytes(b"/etc/\xff.toml"));
    let tenants = vec![TenantEntry { held_by: vec!["notifications".to_owned()], ..tenant("sda", "sda/pg", vec![1]) }];
    state("observed", DaemonStatus { losses, configuration, ..daemon(vec![device], Vec::new()) }, tenants)
}

/// Caches in each of their conditions.
fn caches() -> State {
    let mut n = Numbers(30);
    let mut volumes = Vec::new();
    for condition in ["failed", "begins", "lost", "bad", "cleaning", "syncing", "strict"] {
        let mut cache = n.cache(condition);
        match condition {
            "failed" => (cache.has_failed, cache.is_working) = (true, false),
            "begins" => cache.is_working = false,
            "lost" => (cache.damaged_clean, cache.damaged_dirty) = (3, 2),
            "bad" => (cache.bad_units, cache.is_working) = (17, true),
            "cleaning" => (cache.is_cleaning, cache.classes) = (true, Vec::new()),
            "syncing" => (cache.is_syncer_awake, cache.classes[0].reads, cache.classes[0].writes) = (true, 0, 0),
            _ => {
                let semantics = "strict".to_owned();
                let (dirty_units_max, dirty_age_max_ns, idle_write_back_ns) = (None, None, None);
                cache.writes = CacheWritesStatus {
                    is_strict: true,
                    semantics,
                    dirty_units_max,
                    dirty_age_max_ns,
                    idle_write_back_ns,
                }
            }
        }
        volumes.push(VolumeStatus { cache: Some(cache), ..n.volume(condition) });
    }
    let entries = volumes.iter().map(|volume| n.entry(&volume.name, "disk0", Vec::new())).collect();
    let mut device = n.device("disk0", volumes, Vec::new());
    device.emulation =
        Some(EmulationStatus { replies: 100, late_replies: 2, lateness_ns_bound: 1, lateness_ns_p99: 2_000_000 });
    state("caches", daemon(vec![device], entries), Vec::new())
}

/// Service threads that have nothing to do, and a device that has just been started.
fn idle() -> State {
    let mut n = Numbers(90);
    let one = n.account("web", AccountKind::Pool, Allocation::default());
    let mut device = n.device("disk0", Vec::new(), vec![one]);
    let account = &mut device.accounts[1];
    (account.runs_per_second, account.bytes_per_second, account.queued, account.failed) = (0.0, 1e21, 0, 0);
    (account.runs_per_second_since_open, account.bytes_per_second_since_open) = (1.0 / 3.0, 5e-324);
    let second = Some(Time::ZERO + Span::from_millis(8001));
    let threads = vec![n.thread(second)];
    let executor = n.executor(threads, Default::default());
    let state = state("idle", DaemonStatus { executor, ..daemon(vec![device], Vec::new()) }, Vec::new());
    assert!(state.pools[0].allocation.reserve == Rate::ZERO);
    state
}

/// All states.
pub fn states() -> Vec<State> {
    vec![everything(), observed(), caches(), idle(), state("nothing", daemon(Vec::new(), Vec::new()), Vec::new())]
}
