//! Rows of accounts: what pools, volumes and sessions were promised, and what they got.

use super::metric::{MetricRow, Unit, counter, gauge, histogram, json_only, label, plain};
use super::section::Section;
use crate::control::protocol::PoolStatus;
use plimsoll_core::account::AccountKind;
use plimsoll_core::{Allocation, Rate};
use plimsoll_engine::AccountStatus;

/// What the histograms of an account's requests are.
const DURATION: &str = "time from the submission of a request by its front end to its completion";

/// The accounts of a device.
pub static ACCOUNT: Section<AccountStatus> = Section { places: &["status.devices[].accounts[]"], rows: ACCOUNT_ROWS };

const ACCOUNT_ROWS: &[MetricRow<AccountStatus>] = &[
    label(
        "path",
        "account",
        "the names from below the device, joined by `/`; of the first account, the device itself, the device's name",
        |account: &AccountStatus| (&account.path).into(),
    )
    .column("account"),
    plain(
        "kind",
        Unit::None,
        "`pool` or `session`; a volume is a pool of its sessions. What `session_open` has opened is a session, and its connections are sessions in it. An account has the sums of its members, also of closed ones",
        |account: &AccountStatus| if account.kind == AccountKind::Pool { "pool" } else { "session" }.to_owned().into(),
    )
    .column("kind"),
    plain("allocation.reserve", Unit::None, "the rate that it gets whatever other accounts \
                                             do", |account: &AccountStatus| {
        account.allocation.reserve.to_string().into()
    })
    .cell(">reserve", |account| reserve(&account.allocation)),
    plain("allocation.limit", Unit::None, "the rate that it never exceeds; `null`: none", |account: &AccountStatus| {
        account.allocation.limit.map(|limit| limit.to_string()).into()
    })
    .column(">limit"),
    gauge(
        "allocation.weight",
        "account_weight",
        Unit::None,
        "its part of what is not reserved, relative to its siblings'; 1 to 10000",
        |account| account.allocation.weight.into(),
    ),
    json_only("allocation.priority", Unit::None, "0 (highest) to 7, `\"idle\"`, or `{\"realtime\": 0}` to 7"),
    json_only("allocation.deadlines", Unit::None, "`read`, `write` and `fsync`: how soon each should be done; `null`: none"),
    counter("requests", "account_requests_total", Unit::None, "requests completed since it opened", |account| {
        account.requests.into()
    }),
    counter("runs", "account_runs_total", Unit::None, "runs completed since it opened", |account| account.runs.into()),
    counter(
        "bytes",
        "account_bytes_total",
        Unit::Bytes,
        "bytes of the runs completed since it opened, trimmed and zeroed ones too",
        |account| account.bytes.into(),
    ),
    gauge(
        "runs_per_second",
        "account_runs_per_second",
        Unit::RunsPerSecond,
        "rate of the last whole second",
        |account: &AccountStatus| account.runs_per_second.into(),
    )
    .column(">runs/s"),
    gauge(
        "bytes_per_second",
        "account_bytes_per_second",
        Unit::BytesPerSecond,
        "rate of the last whole second",
        |account: &AccountStatus| account.bytes_per_second.into(),
    )
    .column(">rate"),
    gauge(
        "runs_per_second_since_open",
        "account_mean_runs_per_second",
        Unit::RunsPerSecond,
        "mean rate since it opened",
        |account| account.runs_per_second_since_open.into(),
    ),
    gauge(
        "bytes_per_second_since_open",
        "account_mean_bytes_per_second",
        Unit::BytesPerSecond,
        "mean rate since it opened",
        |account| account.bytes_per_second_since_open.into(),
    ),
    gauge("queued", "account_queued_pieces", Unit::None, "pieces of requests that wait in the scheduler", |account: &AccountStatus| {
        account.queued.into()
    })
    .column(">queued"),
    gauge("in_flight", "account_device_pieces", Unit::None, "pieces of requests at the device", |account: &AccountStatus| {
        account.in_flight.into()
    })
    .column(">at device"),
    histogram("read_latency", "request_duration_seconds", Unit::Nanoseconds, "latencies of reads", |account: &AccountStatus| {
        account.read_latency.into()
    })
    .part("operation", "read", DURATION)
    .median(">read p50")
    .p99(">read p99"),
    histogram(
        "write_latency",
        "request_duration_seconds",
        Unit::Nanoseconds,
        "latencies of writes, trims and write-zeroes",
        |account: &AccountStatus| account.write_latency.into(),
    )
    .part("operation", "write", DURATION)
    .median(">write p50")
    .p99(">write p99"),
    histogram("flush_latency", "request_duration_seconds", Unit::Nanoseconds, "latencies of flushes", |account: &AccountStatus| {
        account.flush_latency.into()
    })
    .part("operation", "flush", DURATION)
    .p99(">flush p99"),
    counter(
        "failed",
        "account_failed_requests_total",
        Unit::None,
        "requests that failed since it opened",
        |account: &AccountStatus| account.failed.into(),
    )
    .column(">failed"),
];

/// The pools, the volumes' accounts and the opened sessions, as `pool_list` has them. `status` has the same of every
/// account.
pub static POOL: Section<PoolStatus> = Section { places: &["pools[]"], rows: POOL_ROWS };

const POOL_ROWS: &[MetricRow<PoolStatus>] = &[
    plain("path", Unit::None, "its path", |pool: &PoolStatus| (&pool.path).into()).column("pool"),
    plain("is_volume", Unit::None, "it is the account of a volume", |pool: &PoolStatus| pool.is_volume.into())
        .cell("kind", kind_of_pool),
    plain("is_session", Unit::None, "`session_open` has opened it", |pool| pool.is_session.into()),
    plain("device", Unit::None, "its device", |pool: &PoolStatus| (&pool.device).into()).column("device"),
    plain("allocation.reserve", Unit::None, "as of an account in `status`, like what follows", |pool: &PoolStatus| {
        pool.allocation.reserve.to_string().into()
    })
    .cell(">reserve", |pool| reserve(&pool.allocation)),
    plain("allocation.limit", Unit::None, "its limit", |pool: &PoolStatus| {
        pool.allocation.limit.map(|limit| limit.to_string()).into()
    })
    .column(">limit"),
    plain("allocation.weight", Unit::None, "its weight", |pool: &PoolStatus| pool.allocation.weight.into())
        .column(">weight"),
    json_only::<PoolStatus>("allocation.priority", Unit::None, "its priority")
        .cell(">priority", |pool| pool.allocation.priority.to_string()),
    json_only("allocation.deadlines", Unit::None, "its deadlines"),
];

/// A reserve as tables show it.
fn reserve(allocation: &Allocation) -> String {
    if allocation.reserve == Rate::ZERO { "-".to_owned() } else { allocation.reserve.to_string() }
}

fn kind_of_pool(pool: &PoolStatus) -> String {
    match () {
        () if pool.is_volume => "volume",
        () if pool.is_session => "session",
        () => "pool",
    }
    .to_owned()
}
