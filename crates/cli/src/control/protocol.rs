//! What is said on the control socket.

pub use super::caches::{CacheChange, CacheEntry};
pub use super::doors::{ServedAs, SessionEntry};
use crate::metrics::reading::Reading;
use plimsoll_agent::Entrance;
use plimsoll_core::units::ParseUnitError;
use plimsoll_core::{Allocation, Deadlines, Priority, Rate, Span};
use plimsoll_engine::status::EngineStatus;
use plimsoll_executor::Figures;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What a client asks: `{"command": "pool_set", "pool": "web", "change": {"limit": "10 MB/s"}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Everything about every device; answered with [`Response::Status`].
    Status {},
    /// The pools; answered with [`Response::Pools`].
    PoolList {},
    /// Opens a pool; answered with [`Response::Done`].
    PoolAdd {
        /// Its path: names joined by `/`, all but the last of pools that are open.
        pool: String,
        /// The device, for a pool that is in no other. It may be left out if there is only one.
        #[serde(default)]
        device: Option<String>,
        /// Its promises. Missing ones are as in a configuration without them.
        #[serde(default)]
        change: Change,
    },
    /// Changes the promises of a pool or a volume, from the next request on; answered with [`Response::Done`].
    PoolSet {
        /// Its path; a volume's is its pool's path and its own name.
        pool: String,
        /// What changes; what is left out stays.
        change: Change,
    },
    /// Closes a pool that has no members; answered with [`Response::Done`].
    PoolRemove {
        /// Its path.
        pool: String,
    },
    /// Opens a session for NBD or iSCSI clients of a volume; answered with [`Response::Session`]. It is open until
    /// [`Request::SessionClose`], or until the connection ends.
    SessionOpen {
        /// The volume, which has an NBD export or is an iSCSI target.
        volume: String,
        /// What the session is called; a number makes it unique.
        name: String,
        /// Its promises, as a part of the volume's. Missing ones are as for the volume's connections.
        #[serde(default)]
        change: Change,
        /// Whether it ends with the connection that asks for it.
        #[serde(default)]
        tied: bool,
    },
    /// Closes a session without connections; answered with [`Response::Done`].
    SessionClose {
        /// Its path.
        session: String,
    },
    /// A process becomes a tenant of a volume; answered with [`Response::Joined`]. Its session ends with the last
    /// process that it has started.
    Join {
        /// The volume; may be left out where only one takes tenants.
        #[serde(default)]
        volume: Option<String>,
        /// The path of the pool for the session; the volume's own account if it is left out.
        #[serde(default)]
        pool: Option<String>,
        /// What the session is called; a number makes it unique.
        name: String,
        /// Its promises. Missing ones are as in a configuration without them.
        #[serde(default)]
        change: Change,
        /// The process.
        process: u32,
    },
    /// The tenants that have joined; answered with [`Response::Tenants`].
    Tenants {},
    /// The volumes; answered with [`Response::Volumes`].
    VolumeList {},
    /// How the volumes' caches are; answered with [`Response::Caches`].
    CacheList {},
    /// Begins to flush a volume's cache; answered with [`Response::CacheFlushing`].
    CacheFlush {
        /// The volume.
        volume: String,
    },
    /// Puts a cache of the configuration before a volume; answered with [`Response::Done`].
    CacheAttach {
        /// The volume.
        volume: String,
        /// The cache.
        cache: String,
        /// Whether an empty one is made; whatever is on its device is gone then.
        #[serde(default)]
        make: bool,
    },
    /// Flushes a volume's cache and detaches it; answered with [`Response::Done`].
    CacheDetach {
        /// The volume.
        volume: String,
        /// Whether what cannot be read of the cache may be lost.
        #[serde(default)]
        lost: bool,
    },
    /// Gives a volume's cache another size: it starts empty; answered with [`Response::Done`].
    CacheResize {
        /// The volume.
        volume: String,
        /// The new size, bytes.
        size_bytes: u64,
    },
    /// Gives a volume's cache another policy, scheme or semantics; answered with [`Response::Done`].
    CacheSet {
        /// The volume.
        volume: String,
        /// What changes; what is left out stays.
        change: CacheChange,
    },
    /// Records the requests to a device from now on. The answers are [`Response::Recording`], any number of
    /// [`Response::Records`] and [`Response::Recorded`]; then the connection is closed. The client ends it by closing
    /// its end for sending.
    Record {
        /// The device; may be left out where there is only one.
        #[serde(default)]
        device: Option<String>,
    },
    /// Ends the daemon as SIGTERM does; answered with [`Response::Done`] before it ends.
    Shutdown {},
}

/// What changes of a promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// The new reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Rate>,
    /// The new limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The new weight, 1 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The new priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How soon a block read should be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_deadline: Option<Span>,
    /// How soon a block write should be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_deadline: Option<Span>,
    /// How soon an fsync should return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_deadline: Option<Span>,
}

impl Change {
    /// `allocation` with the change.
    pub fn apply(&self, allocation: Allocation) -> Allocation {
        Allocation {
            reserve: self.reserve.unwrap_or(allocation.reserve),
            limit: self.limit.map_or(allocation.limit, |limit| limit.0),
            weight: self.weight.unwrap_or(allocation.weight),
            priority: self.priority.unwrap_or(allocation.priority),
            deadlines: Deadlines {
                read: self.read_deadline.or(allocation.deadlines.read),
                write: self.write_deadline.or(allocation.deadlines.write),
                fsync: self.fsync_deadline.or(allocation.deadlines.fsync),
            },
        }
    }
}

/// A limit, or that there is none: `10 MB/s`, `none`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit(pub Option<Rate>);

impl FromStr for Limit {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Limit, ParseUnitError> {
        if text == "none" { Ok(Limit(None)) } else { text.parse().map(|rate| Limit(Some(rate))) }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => rate.fmt(out),
            None => out.write_str("none"),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(rate) => rate.serialize(serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What the daemon answers, as an object with one key: `{"done": "pool web changed"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Everything: a [`DaemonStatus`].
    Status(Reading),
    /// The pools and the volumes' accounts, by device, parents before members: a list of [`PoolStatus`].
    Pools(Reading),
    /// The volumes, in the order of the configuration: a list of [`VolumeEntry`].
    Volumes(Reading),
    /// The volumes' caches: a list of [`CacheEntry`].
    Caches(Reading),
    /// A flush has begun.
    CacheFlushing {
        /// The flush is done when [`CacheStatus::clean_passes`](plimsoll_engine::CacheStatus::clean_passes) is
        /// as much, or nothing is dirty.
        passes: u64,
    },
    /// Tenants that have joined, by volume or device: a list of [`TenantEntry`].
    Tenants(Reading),
    /// A process has joined: where its commands come in.
    Joined(Box<Entrance>),
    /// A session is open.
    Session(SessionEntry),
    /// A recording begins.
    Recording(RecordingStart),
    /// A part of the recording. A part without records says that the daemon still works.
    Records(Records),
    /// The recording is over.
    Recorded(RecordingEnd),
    /// The request was done; says what.
    Done(String),
    /// The request was not done.
    Error(ErrorReport),
}

/// The daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonStatus {
    /// Its version.
    pub version: String,
    /// Its process number.
    pub process: u32,
    /// The configuration that it was started with.
    pub configuration: PathBuf,
    /// Its service threads, where a volume needs them.
    pub executor: Option<ExecutorStatus>,
    /// Its devices, in the order of the configuration.
    pub devices: Vec<EngineStatus>,
    /// Its volumes and what serves each, in the order of the configuration.
    pub volumes: Vec<VolumeEntry>,
    /// Where causes got lost.
    pub losses: Vec<LossEntry>,
}

/// The service threads and their queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorStatus {
    /// The name of their rules.
    pub policy: &'static str,
    /// What they have done since the daemon started.
    pub figures: Figures,
}

/// What found no room in the tags of a volume or of a device that is observed, since they were loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossEntry {
    /// The volume, or the device.
    pub volume: String,
    /// Processes and threads of tenants, which are charged to the others.
    pub registrations: u64,
    /// Events, which are in no account's books.
    pub events: u64,
    /// Dirty pages and blocks of metadata, charged to the recent writers of their file, or to no account.
    pub entries: u64,
}

/// A pool, a volume's account, or a session that an application has opened.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    /// Its device.
    pub device: String,
    /// Its path.
    pub path: String,
    /// The account of a volume rather than a pool.
    pub is_volume: bool,
    /// A session that an application has opened rather than a pool.
    pub is_session: bool,
    /// What it was promised.
    pub allocation: Allocation,
}

/// A tenant that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantEntry {
    /// The volume, or the device that is observed.
    pub volume: String,
    /// The path of its session.
    pub path: String,
    /// Its processes and threads that live; of containers those that are known one by one.
    pub processes: Vec<u32>,
    /// What holds it: `shim`, `notifications`, `freezer`.
    pub held_by: Vec<String>,
    /// Why the freezer does not hold it; `None`: it does.
    pub not_held: Option<String>,
    /// Freezes of its cgroups.
    pub freezes: u64,
    /// Its cgroups that are frozen while it owes and moves bytes all the same.
    pub cgroups: Vec<TenantCgroupEntry>,
}

/// A cgroup of a tenant that the freezer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantCgroupEntry {
    /// Its directory.
    pub directory: String,
    /// How often it was frozen.
    pub freezes: u64,
    /// It is frozen, and a process of it runs still: it is stopped, traced, or in an uninterruptible sleep.
    pub is_late: bool,
}

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeEntry {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// The path of its account.
    pub path: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Its first byte on the device.
    pub start_bytes: u64,
    /// It is read-only for all clients.
    pub is_read_only: bool,
    /// Where its content is: a path, or `memory`.
    pub content: String,
    /// Its NBD export, if it has one.
    pub export: Option<String>,
    /// The name of its iSCSI target, if it is one.
    pub target: Option<String>,
    /// Its block device, if it has one.
    pub block_device: Option<PathBuf>,
    /// Its mount point, if it is mounted.
    pub mount_point: Option<PathBuf>,
    /// Every way to it: for each front end what clients ask for and where, over each address.
    pub served_as: Vec<ServedAs>,
    /// Connections and mounts now.
    pub front_ends: u32,
}

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingStart {
    /// The device.
    pub device: String,
    /// When it began, nanoseconds since 1970.
    pub unix_ns: u64,
    /// The volumes on the device.
    pub volumes: Vec<RecordedVolume>,
}

/// A volume of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedVolume {
    /// Its number in the records.
    pub number: u32,
    /// Its name.
    pub name: String,
}

/// Requests in the order in which the scheduler got them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The requests.
    pub records: Vec<Record>,
    /// Requests so far that were not recorded because the client was too slow.
    pub lost: u64,
}

/// A request, as an array. Its elements are the arrival at the scheduler, nanoseconds since the start; `read`, `write`,
/// `flush`, `trim` or `write_zeroes`; the volume's number; first byte on the device; bytes. The last element is its
/// duration in nanoseconds, `null` if it was under way at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record(pub u64, pub Cow<'static, str>, pub u32, pub u64, pub u32, pub Option<u64>);

/// What a recording was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that were not recorded because the client was too slow.
    pub lost: u64,
    /// The daemon ended it, because it ends itself.
    pub daemon_ended: bool,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// What kind of reason.
    pub kind: ErrorKind,
    /// The reason in words.
    pub message: String,
    /// For [`ErrorKind::Refused`]: by how much the reserves do not fit, runs per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excess_runs_per_second: Option<f64>,
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// What came is not a request. The daemon closes the connection.
    BadRequest,
    /// Too many clients. The daemon closes the connection.
    Busy,
    /// A value is not allowed.
    Invalid,
    /// There is no such pool, volume or device.
    NotFound,
    /// Admission: the reserves would not fit.
    Refused,
    /// Anything else.
    Failed,
}

impl Response {
    /// A refusal.
    pub fn error(kind: ErrorKind, message: impl fmt::Display) -> Response {
        Response::Error(ErrorReport { kind, message: message.to_string(), excess_runs_per_second: None })
    }
}

/// Reads a request.
///
/// # Errors
/// The refusal to answer with.
pub fn parse_request(line: &[u8]) -> Result<Request, ErrorReport> {
    let refusal = |message: &dyn fmt::Display| ErrorReport {
        kind: ErrorKind::BadRequest,
        message: message.to_string(),
        excess_runs_per_second: None,
    };
    // serde would take an array of the fields' values, too.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err(refusal(&"a request is a JSON object"));
    }
    serde_json::from_slice(line).map_err(|error| refusal(&error))
}

/// Parses hostile bytes, for the fuzzer. A valid request is written and read back as itself.
pub fn parse_for_fuzzing(line: &[u8]) {
    if let Ok(request) = parse_request(line) {
        let written = serde_json::to_vec(&request).expect("requests can be written");
        assert_eq!(parse_request(&written), Ok(request));
    }
}

#[cfg(test)]
mod tests;
