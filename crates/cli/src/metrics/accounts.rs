//! Rows of accounts: what pools, volumes and sessions were promised, and what they got.

use super::metric::{A_DETAIL, FOR_GRAPHS, MetricRow, Unit, counter, gauge, histogram, label, plain};
use super::reading::Reading;
use super::section::Section;
use crate::control::protocol::PoolStatus;
use plimsoll_core::{Deadlines, Priority, Rate};
use plimsoll_engine::AccountStatus;

/// What the histograms of an account's requests are.
const DURATION: &str = "time from the submission of a request by its front end to its completion";

/// The accounts of a device.
pub static ACCOUNT: Section<AccountStatus> = Section { rows: ACCOUNT_ROWS };

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
        |account: &AccountStatus| Reading::written(&account.kind),
    )
    .column("kind"),
    plain("allocation.reserve", Unit::None, "the rate that it gets however the others behave", |account: &AccountStatus| {
        Reading::written(&account.allocation.reserve)
    })
    .cell(">reserve", reserve),
    plain("allocation.limit", Unit::None, "the rate that it never exceeds; `null`: none", |account: &AccountStatus| {
        Reading::written(&account.allocation.limit)
    })
    .cell(">limit", limit),
    gauge(
        "allocation.weight",
        "account_weight",
        Unit::None,
        "its part of what is not reserved, relative to its siblings'; 1 to 10000",
        |account: &AccountStatus| account.allocation.weight.into(),
    )
    .only_json(IN_POOL_LIST),
    plain(
        "allocation.priority",
        Unit::None,
        "0 (highest) to 7, `\"idle\"`, or `{\"realtime\": 0}` to 7",
        |account: &AccountStatus| Reading::written(&account.allocation.priority),
    )
    .only_json(IN_POOL_LIST),
    plain(
        "allocation.deadlines",
        Unit::None,
        "`read`, `write` and `fsync`: how soon each should be done; `null`: none",
        |account: &AccountStatus| deadlines(&account.allocation.deadlines),
    )
    .only_json(A_DETAIL),
    counter("requests", "account_requests_total", Unit::None, "requests completed since it opened", |account: &AccountStatus| {
        account.requests.into()
    })
    .only_json(FOR_GRAPHS),
    counter("runs", "account_runs_total", Unit::None, "runs completed since it opened", |account: &AccountStatus| {
        account.runs.into()
    })
    .only_json(FOR_GRAPHS),
    counter(
        "bytes",
        "account_bytes_total",
        Unit::Bytes,
        "bytes of the runs completed since it opened, trimmed and zeroed ones too",
        |account: &AccountStatus| account.bytes.into(),
    )
    .only_json(FOR_GRAPHS),
    counter(
        "failed",
        "account_failed_requests_total",
        Unit::None,
        "requests that failed since it opened",
        |account: &AccountStatus| account.failed.into(),
    )
    .column(">failed")
    .after("flush p99"),
    gauge("queued", "account_queued_pieces", Unit::None, "pieces of requests that wait in the scheduler", |account: &AccountStatus| {
        account.queued.into()
    })
    .column(">queued"),
    gauge("in_flight", "account_device_pieces", Unit::None, "pieces of requests at the device", |account: &AccountStatus| {
        account.in_flight.into()
    })
    .column(">at device"),
    gauge(
        "runs_per_second",
        "account_runs_per_second",
        Unit::RunsPerSecond,
        "rate of the last whole second",
        |account: &AccountStatus| account.runs_per_second.into(),
    )
    .column(">runs/s")
    .after("limit"),
    gauge(
        "bytes_per_second",
        "account_bytes_per_second",
        Unit::BytesPerSecond,
        "rate of the last whole second",
        |account: &AccountStatus| account.bytes_per_second.into(),
    )
    .column(">rate")
    .after("runs/s"),
    gauge(
        "runs_per_second_since_open",
        "account_mean_runs_per_second",
        Unit::RunsPerSecond,
        "mean rate since it opened",
        |account: &AccountStatus| account.runs_per_second_since_open.into(),
    )
    .only_json(FOR_GRAPHS),
    gauge(
        "bytes_per_second_since_open",
        "account_mean_bytes_per_second",
        Unit::BytesPerSecond,
        "mean rate since it opened",
        |account: &AccountStatus| account.bytes_per_second_since_open.into(),
    )
    .only_json(FOR_GRAPHS),
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
];

/// The pools, the volumes' accounts and the opened sessions, as `pool_list` has them. `status` has the same of every
/// account.
pub static POOL: Section<PoolStatus> = Section { rows: POOL_ROWS };

const POOL_ROWS: &[MetricRow<PoolStatus>] = &[
    plain("device", Unit::None, "its device", |pool: &PoolStatus| (&pool.device).into()).column("device").after("kind"),
    plain("path", Unit::None, "its path", |pool: &PoolStatus| (&pool.path).into()).column("pool"),
    plain("is_volume", Unit::None, "it is the account of a volume", |pool: &PoolStatus| pool.is_volume.into())
        .cell("kind", kind_of_pool),
    plain("is_session", Unit::None, "`session_open` has opened it", |pool| pool.is_session.into()),
    plain("allocation.reserve", Unit::None, "as of an account in `status`, like what follows", |pool: &PoolStatus| {
        Reading::written(&pool.allocation.reserve)
    })
    .cell(">reserve", reserve),
    plain("allocation.limit", Unit::None, "its limit", |pool: &PoolStatus| Reading::written(&pool.allocation.limit))
        .cell(">limit", limit),
    plain("allocation.weight", Unit::None, "its weight", |pool: &PoolStatus| pool.allocation.weight.into())
        .column(">weight"),
    plain("allocation.priority", Unit::None, "its priority", |pool: &PoolStatus| {
        Reading::written(&pool.allocation.priority)
    })
    .cell(">priority", |pool| {
        let priority = pool.at("allocation.priority").parsed::<Priority>();
        priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string())
    }),
    plain("allocation.deadlines", Unit::None, "its deadlines", |pool: &PoolStatus| {
        deadlines(&pool.allocation.deadlines)
    })
    .only_json(A_DETAIL),
];

/// Why `status` need not show what was promised besides rates.
const IN_POOL_LIST: &str = "`pool list` shows it";

fn deadlines(Deadlines { read, write, fsync }: &Deadlines) -> Reading {
    let all = [("read", read), ("write", write), ("fsync", fsync)];
    Reading::Object(all.map(|(name, deadline)| (name.into(), Reading::written(deadline))).into())
}

fn reserve(account: &Reading) -> String {
    rate(account.at("allocation.reserve"), |rate| *rate != Rate::ZERO)
}

fn limit(account: &Reading) -> String {
    rate(account.at("allocation.limit"), |_| true)
}

/// A rate as tables show it: to three digits.
fn rate(written: &Reading, is_shown: fn(&Rate) -> bool) -> String {
    written.parsed::<Rate>().filter(is_shown).map_or_else(|| "-".to_owned(), |rate| rate.to_string())
}

fn kind_of_pool(pool: &Reading) -> String {
    match () {
        () if pool.is("is_volume") => "volume",
        () if pool.is("is_session") => "session",
        () => "pool",
    }
    .to_owned()
}
