//! A recorded trace through a scheduler to a device model.
//!
//! Each volume of the trace is a session. *Open*: a request goes when the trace says, whatever became of those before
//! it, which shows the effect of a scheduler on them. A device that is slower than the recorded one falls behind, and
//! its queue grows. *Closed*: so many at a time, which shows how fast it can be done. The trace is read as it is
//! needed, so its length takes no memory; requests under way do.
//!
//! The device need not be the recorded one: what lies beyond its end starts again at its beginning, and the report
//! says how often.

mod config;

pub use config::{ReplayConfig, VolumeName};

use crate::results::BusyTime;
use hdrhistogram::Histogram;
use plimsoll_core::{Account, AccountId, AccountKind, AccountTree, Allocation, CauseSet, Operation, Span, Time};
use plimsoll_sim::block::{Bio, BioEnd};
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::{Machine, MachineConfig, Simulation};
use plimsoll_traces::{Reader, TraceError, TraceRecord};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use thiserror::Error;

/// Significant digits of latencies: within 1 %.
const LATENCY_DIGITS: u8 = 2;
/// Longest latency that is told apart: a day, in nanoseconds.
const LATENCY_NS_MAX: u64 = 86_400_000_000_000;
/// Where requests that were moved begin, bytes.
const SECTOR_BYTES: u64 = 512;

/// When requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// By the trace's time stamps.
    Open {
        /// So many times as fast as recorded; more than 0.
        speed: f64,
    },
    /// One after the other.
    Closed {
        /// So many at a time; at least 1.
        depth: u32,
    },
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// A device model.
    pub device: String,
    /// A scheduler.
    pub scheduler: String,
    /// When requests go.
    pub pace: Pace,
    /// What pools and volumes are promised.
    pub config: ReplayConfig,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// No device model or scheduler has this name.
    #[error("{what}: got {got:?}, allowed {allowed}")]
    Name {
        /// What was asked for.
        what: &'static str,
        /// The name.
        got: String,
        /// Those that there are.
        allowed: String,
    },
    /// The accounts do not fit the device.
    #[error("account {name}: {problem}")]
    Account {
        /// The account.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The trace is wrong.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A request that no device model of this size can hold.
    #[error("a request of {length} bytes, allowed are at most {allowed} bytes on this device")]
    Length {
        /// Bytes of the request.
        length: u64,
        /// Bytes at the most.
        allowed: u64,
    },
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Requests that were served.
    pub requests: u64,
    /// Those of them that lay beyond the device's end.
    pub moved: u64,
    /// Records that move no data and were left out.
    pub left_out: u64,
    /// From the first request to the last completion, seconds of virtual time.
    pub seconds: f64,
    /// Part of the time in which the device had a request, 0 to 1.
    pub device_busy: f64,
    /// The number that stands for the run, hexadecimal.
    pub hash: String,
    /// By volume, in the order in which the trace names them.
    pub sessions: Vec<SessionReport>,
}

/// One volume.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// Account and volume.
    pub session: String,
    /// Requests served.
    pub requests: u64,
    /// Per cent of them that read.
    pub read_percent: f64,
    /// Bytes per second over the whole replay.
    pub bytes_per_second: f64,
    /// Requests per second over the whole replay.
    pub requests_per_second: f64,
    /// From the due time of a request to its completion, seconds, by percentile.
    pub latency_seconds: BTreeMap<&'static str, f64>,
}

/// Latencies that are reported, per cent.
pub const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

struct Session {
    name: String,
    account: AccountId,
    reads: u64,
    bytes: u64,
    latency_ns: Histogram<u64>,
}

struct Replay {
    machine: Machine,
    tree: AccountTree,
    pools: BTreeMap<String, AccountId>,
    config: ReplayConfig,
    capacity_bytes: u64,
    reader: Reader,
    /// Index in `sessions`, by the trace's volume.
    volumes: BTreeMap<u32, usize>,
    sessions: Vec<Session>,
    busy: BusyTime,
    moved: u64,
    left_out: u64,
    error: Option<ReplayError>,
}

type SharedReplay = Rc<RefCell<Replay>>;

/// Replays `reader` from beginning to end.
///
/// # Errors
/// What is wrong with the options or the trace.
pub fn replay(reader: Reader, options: &ReplayOptions) -> Result<ReplayReport, ReplayError> {
    let (mut simulation, replay) = build(reader, options)?;
    let machine = simulation.machine().clone();
    match options.pace {
        Pace::Open { speed } => drop(machine.spawn_kernel(open(replay.clone(), machine.clone(), speed))),
        Pace::Closed { depth } => (0..depth).for_each(|_| {
            machine.spawn_kernel(closed(replay.clone(), machine.clone()));
        }),
    }
    simulation.run_until(Time::MAX);
    let hash = simulation.trace_hash();
    let end = machine.now();
    // With it go the tasks, which hold the replay.
    drop(simulation);
    let mut replay = replay.borrow_mut();
    match replay.error.take() {
        Some(error) => Err(error),
        None => Ok(replay.report(end, hash)),
    }
}

fn build(reader: Reader, options: &ReplayOptions) -> Result<(Simulation, SharedReplay), ReplayError> {
    const SEED: u64 = 1;
    let unknown = |what, got: &str, allowed: Vec<&str>| ReplayError::Name {
        what,
        got: got.to_owned(),
        allowed: allowed.join(", "),
    };
    let device = plimsoll_devices::build(&options.device, SEED).ok_or_else(|| {
        unknown("device", &options.device, plimsoll_devices::models().iter().map(|model| model.name).collect())
    })?;
    let profile = device.profile().clone();
    let scheduler = plimsoll_schedulers::build(&options.scheduler, &profile).ok_or_else(|| {
        unknown(
            "scheduler",
            &options.scheduler,
            plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect(),
        )
    })?;
    let mut tree = AccountTree::new(profile.clone());
    let mut pools = BTreeMap::new();
    for pool in &options.config.pools {
        let parent = pool.parent.as_ref().map_or(AccountId::ROOT, |parent| pools[parent]);
        let id = tree.open(parent, &pool.name, AccountKind::Pool, pool.allocation);
        let problem = |error: plimsoll_core::account::AccountError| ReplayError::Account {
            name: pool.name.clone(),
            problem: error.to_string(),
        };
        pools.insert(pool.name.clone(), id.map_err(problem)?);
    }
    let config = MachineConfig {
        seed: SEED,
        request_bytes_max: u32::MAX,
        requests_max: u32::MAX,
        has_flusher: false,
        ..MachineConfig::default()
    };
    let file_system = Rc::new(Raw::new(profile.capacity_bytes));
    let simulation = Simulation::new(config, scheduler, device, file_system, &tree);
    let replay = Replay {
        machine: simulation.machine().clone(),
        tree,
        pools,
        config: options.config.clone(),
        capacity_bytes: profile.capacity_bytes,
        reader,
        volumes: BTreeMap::new(),
        sessions: Vec::new(),
        busy: BusyTime::default(),
        moved: 0,
        left_out: 0,
        error: None,
    };
    Ok((simulation, Rc::new(RefCell::new(replay))))
}

async fn open(replay: SharedReplay, machine: Machine, speed: f64) {
    let mut first = None;
    loop {
        let next = replay.borrow_mut().next();
        let Some((at, session, bio)) = next else { break };
        let first = *first.get_or_insert(at);
        let due = Time::ZERO + scaled(at.since(first), speed);
        machine.executor.sleep_until(due).await;
        let (replay, machine) = (replay.clone(), machine.clone());
        machine.clone().spawn_kernel(async move { send(&replay, &machine, session, bio).await });
    }
}

async fn closed(replay: SharedReplay, machine: Machine) {
    loop {
        let next = replay.borrow_mut().next();
        let Some((_, session, bio)) = next else { break };
        send(&replay, &machine, session, bio).await;
    }
}

/// The span at `speed`, exactly if that is 1.
fn scaled(span: Span, speed: f64) -> Span {
    if speed == 1.0 { span } else { Span::from_nanos((span.as_nanos() as f64 / speed) as u64) }
}

async fn send(replay: &SharedReplay, machine: &Machine, session: usize, bio: Bio) {
    let (operation, length) = (bio.operation, u64::from(bio.length));
    let timing = machine.perform(bio).await;
    let mut replay = replay.borrow_mut();
    replay.busy.add(timing.dispatched, timing.completed);
    let session = &mut replay.sessions[session];
    session.reads += u64::from(operation == Operation::Read);
    session.bytes += length;
    session.latency_ns.saturating_record(timing.completed.since(timing.arrived).as_nanos().max(1));
}

impl Replay {
    /// The next request and when the trace has it; nothing at the end, or after an error.
    fn next(&mut self) -> Option<(Time, usize, Bio)> {
        loop {
            if self.error.is_some() {
                return None;
            }
            match self.reader.next()? {
                Err(error) => self.error = Some(error.into()),
                Ok(record) if record.length == 0 && record.operation != Operation::Flush => self.left_out += 1,
                Ok(record) => match self.request(&record) {
                    Ok((session, bio)) => return Some((record.at, session, bio)),
                    Err(error) => self.error = Some(error),
                },
            }
        }
    }

    fn request(&mut self, record: &TraceRecord) -> Result<(usize, Bio), ReplayError> {
        let allowed = self.capacity_bytes.min(u64::from(u32::MAX));
        if record.length > allowed {
            return Err(ReplayError::Length { length: record.length, allowed });
        }
        let index = match self.volumes.get(&record.device) {
            Some(&index) => index,
            None => self.open_volume(record.device)?,
        };
        let mut offset = record.offset;
        if record.end() > self.capacity_bytes {
            self.moved += 1;
            let last = (self.capacity_bytes - record.length) / SECTOR_BYTES * SECTOR_BYTES;
            offset = (offset % self.capacity_bytes).min(last);
        }
        let session = self.sessions[index].account;
        let bio = Bio {
            session,
            causes: CauseSet::of(session),
            class: record.class,
            operation: record.operation,
            offset,
            length: record.length as u32,
            is_sync: record.operation == Operation::Read,
            is_forced: false,
            file: None,
            end: BioEnd::Nothing,
        };
        Ok((index, bio))
    }

    /// Opens the session of a volume that the trace names for the first time.
    fn open_volume(&mut self, volume: u32) -> Result<usize, ReplayError> {
        let known = self.reader.device_name(volume);
        let name = known.clone().unwrap_or_else(|| format!("volume {volume}"));
        let pool = self.config.pool_of(volume, known.as_deref());
        let parent = pool.map_or(AccountId::ROOT, |pool| self.pools[pool]);
        let opened = self.tree.open(parent, &name, AccountKind::Session, Allocation::default());
        let problem = |error: plimsoll_core::account::AccountError| ReplayError::Account {
            name: name.clone(),
            problem: error.to_string(),
        };
        let account = opened.map_err(problem)?;
        let opened: Account = self.tree.get(account).expect("it was just opened").clone();
        let now = self.machine.now();
        self.machine.scheduler().account_opened(now, &opened);
        let latency_ns = Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are in range");
        self.sessions.push(Session { name: self.tree.path(account), account, reads: 0, bytes: 0, latency_ns });
        self.volumes.insert(volume, self.sessions.len() - 1);
        Ok(self.sessions.len() - 1)
    }

    fn report(&self, end: Time, hash: u64) -> ReplayReport {
        let seconds = end.as_secs_f64().max(1e-9);
        let sessions = self.sessions.iter().map(|session| {
            let requests = session.latency_ns.len();
            let latency = |(name, percent): (&'static str, f64)| {
                (name, session.latency_ns.value_at_quantile(percent / 100.0) as f64 / 1e9)
            };
            SessionReport {
                session: session.name.clone(),
                requests,
                read_percent: session.reads as f64 / requests.max(1) as f64 * 100.0,
                bytes_per_second: session.bytes as f64 / seconds,
                requests_per_second: requests as f64 / seconds,
                latency_seconds: PERCENTILES.into_iter().map(latency).collect(),
            }
        });
        ReplayReport {
            requests: self.sessions.iter().map(|session| session.latency_ns.len()).sum(),
            moved: self.moved,
            left_out: self.left_out,
            seconds,
            device_busy: self.busy.total().as_secs_f64() / seconds,
            hash: format!("{hash:016x}"),
            sessions: sessions.collect(),
        }
    }
}
