//! Status of an engine: a snapshot that its thread makes for the control plane.

mod cache;

pub use cache::{BlockRanges, CacheClassStatus, CachePoolStatus, CacheStatus, CacheWritesStatus, not_clean};
pub(crate) use cache::{refused, unreadable};
use hdrhistogram::Histogram;
use plimsoll_core::{AccountKind, Allocation};

/// Latencies of one kind of request, nanoseconds from the submission by the front end to its completion, to two digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyStatus {
    /// How many requests.
    pub count: u64,
    /// Half were at most this slow.
    pub p50_ns: u64,
    /// 99 of 100 were at most this slow.
    pub p99_ns: u64,
    /// 999 of 1000 were at most this slow.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

impl LatencyStatus {
    pub(crate) fn of(latencies_ns: &Histogram<u64>) -> LatencyStatus {
        LatencyStatus {
            count: latencies_ns.len(),
            p50_ns: latencies_ns.value_at_quantile(0.5),
            p99_ns: latencies_ns.value_at_quantile(0.99),
            p999_ns: latencies_ns.value_at_quantile(0.999),
            max_ns: latencies_ns.max(),
        }
    }
}

/// What one account was promised and what it got; a pool with all that its members got.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountStatus {
    /// Names from below the root, joined by `/`; the device's name for the root.
    pub path: String,
    /// Pool or session.
    pub kind: AccountKind,
    /// What it was promised.
    pub allocation: Allocation,
    /// Requests completed since it opened.
    pub requests: u64,
    /// Runs completed.
    pub runs: u64,
    /// Bytes of the runs completed, trimmed and zeroed ones too.
    pub bytes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Pieces of requests that wait in the scheduler.
    pub queued: u32,
    /// Pieces of requests at the device.
    pub in_flight: u32,
    /// Rate over the last whole second.
    pub runs_per_second: f64,
    /// Rate over the last whole second.
    pub bytes_per_second: f64,
    /// Rate since it opened.
    pub runs_per_second_since_open: f64,
    /// Rate since it opened.
    pub bytes_per_second_since_open: f64,
    /// Reads.
    pub read_latency: LatencyStatus,
    /// Writes, trims and write-zeroes.
    pub write_latency: LatencyStatus,
    /// Flushes.
    pub flush_latency: LatencyStatus,
}

/// Largest part of late replies with which an emulation counts as true: one in a hundred.
const LATE_REPLIES_PART_MAX: f64 = 0.01;

/// How true the emulation of a device was since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulationStatus {
    /// Replies.
    pub replies: u64,
    /// Replies that came later than the bound after the device would have answered.
    pub late_replies: u64,
    /// The bound, nanoseconds.
    pub lateness_ns_bound: u64,
    /// 99 of 100 replies were at most this much later than the device's, nanoseconds; 0 without replies.
    pub lateness_ns_p99: u64,
}

impl EmulationStatus {
    /// Whether at most one reply in a hundred was late since `earlier`, an earlier status of the same engine. If not,
    /// figures that were measured meanwhile say something about this machine, not about the device.
    pub fn was_true_since(&self, earlier: &EmulationStatus) -> bool {
        let (replies, late) = (self.replies - earlier.replies, self.late_replies - earlier.late_replies);
        late as f64 <= replies as f64 * LATE_REPLIES_PART_MAX
    }

    /// The same since the engine started.
    pub fn is_true(&self) -> bool {
        self.was_true_since(&EmulationStatus::default())
    }
}

/// What is read ahead in a volume, of all sessions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadStatus {
    /// At most so far ahead of a stream, bytes.
    pub bytes_max: u64,
    /// Most memory of its sessions that read in sequence, bytes. Pages that were never used take none.
    pub memory_bytes: u64,
    /// Bytes that were read ahead.
    pub fetched_bytes: u64,
    /// Bytes of reads that were answered out of them.
    pub used_bytes: u64,
    /// Bytes that no read asked for before they were dropped.
    pub wasted_bytes: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Path of the pool that its sessions open in.
    pub pool: String,
    /// Bytes.
    pub size_bytes: u64,
    /// First byte on the device.
    pub start_bytes: u64,
    /// No front end may write.
    pub is_read_only: bool,
    /// Connections and mounts.
    pub front_ends: u32,
    /// Bytes that its content takes, where it is compressed.
    pub stored_bytes: Option<u64>,
    /// Bytes of it that were written and are not compressed yet, where it is compressed.
    pub backlog_bytes: Option<u64>,
    /// Bytes that the maintenance queue compressed after their writes were answered, since the start; where it is
    /// compressed.
    pub compressed_behind_bytes: Option<u64>,
    /// Bytes that clients' writes compressed before they were answered, because too much was left to the maintenance
    /// queue; likewise.
    pub compressed_by_writers_bytes: Option<u64>,
    /// What stands before it.
    pub cache: Option<CacheStatus>,
    /// What is read ahead in it, where it is.
    pub read_ahead: Option<ReadAheadStatus>,
}

/// An engine: one device.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineStatus {
    /// Name of the device.
    pub device: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Since the engine started, nanoseconds.
    pub uptime_ns: u64,
    /// Time by which promises were stretched because the device was slower than them, nanoseconds.
    pub overload_ns: u64,
    /// Part of the reserves that accounts had in the last second; 1 where promises hold.
    pub reserves_kept: f64,
    /// `None` where the device is a real one.
    pub emulation: Option<EmulationStatus>,
    /// Requests under way, all of them.
    pub requests_under_way: usize,
    /// Volumes, in the order in which they were added.
    pub volumes: Vec<VolumeStatus>,
    /// Accounts, by number; the root, which stands for the device, first.
    pub accounts: Vec<AccountStatus>,
}
