//! Rows of the service threads and their queues (docs/executor.md).

use super::metric::{MetricRow, Unit, counter, gauge, label, plain};
use super::section::Section;
use crate::control::executor::{ExecutorStatus, QueueStatus, ServiceThreadStatus};

/// The executor.
pub static EXECUTOR: Section<ExecutorStatus> = Section { places: &["status.executor"], rows: EXECUTOR_ROWS };

const EXECUTOR_ROWS: &[MetricRow<ExecutorStatus>] = &[
    plain("policy", Unit::None, "the name of its rules", |executor| (&executor.policy).into()),
    gauge(
        "under_way",
        "executor_requests",
        Unit::None,
        "requests that are not done: they wait, run, or are suspended",
        |executor| executor.under_way.into(),
    ),
];

/// The service threads, by number.
pub static SERVICE_THREAD: Section<ServiceThreadStatus> =
    Section { places: &["status.executor.threads[]"], rows: SERVICE_THREAD_ROWS };

const SERVICE_THREAD_ROWS: &[MetricRow<ServiceThreadStatus>] = &[
    counter("turns", "executor_turns_total", Unit::None, "queues that it drew", |thread| thread.turns.into()),
    counter("runs", "executor_runs_total", Unit::None, "runs of requests, each time that one went on too", |thread| {
        thread.runs.into()
    }),
    counter("done", "executor_requests_done_total", Unit::None, "requests that were done", |thread| thread.done.into()),
    counter(
        "suspended",
        "executor_suspensions_total",
        Unit::None,
        "runs that ended because the request had to wait, for example for a block from a disk",
        |thread| thread.suspended.into(),
    ),
    counter("resumed", "executor_resumptions_total", Unit::None, "runs that began after such a wait", |thread| {
        thread.resumed.into()
    }),
    counter(
        "preempted",
        "executor_preemptions_total",
        Unit::None,
        "runs that ended because the slice was spent",
        |thread| thread.preempted.into(),
    ),
    counter(
        "gave_way",
        "executor_yields_total",
        Unit::None,
        "runs of maintenance that ended early, so that other requests go first",
        |thread| thread.gave_way.into(),
    ),
    counter("panicked", "executor_panics_total", Unit::None, "requests that panicked; they count as done", |thread| {
        thread.panicked.into()
    }),
    counter("busy_ns", "executor_busy_seconds_total", Unit::Nanoseconds, "time in which requests ran", |thread| {
        thread.busy_ns.into()
    }),
    plain(
        "running_since_ns",
        Unit::Nanoseconds,
        "since when its request runs, by CLOCK_MONOTONIC; `null`: it runs nothing",
        |thread| thread.running_since_ns.into(),
    ),
    gauge("running_ns", "executor_running_seconds", Unit::Nanoseconds, "for how long its request has run", |thread| {
        thread.running_ns.into()
    }),
];

/// The queues: high, low, maintenance.
pub static QUEUE: Section<QueueStatus> = Section { places: &["status.executor.queues[]"], rows: QUEUE_ROWS };

const QUEUE_ROWS: &[MetricRow<QueueStatus>] = &[
    label("queue", "queue", "`high`, `low` or `maintenance`", |queue| (&queue.queue).into()),
    gauge("depth", "executor_queue_requests", Unit::None, "requests that wait", |queue| queue.depth.into()),
    counter("served", "executor_queue_served_total", Unit::None, "requests that were taken out of it", |queue| {
        queue.served.into()
    }),
    counter(
        "waited_ns",
        "executor_queue_wait_seconds_total",
        Unit::Nanoseconds,
        "how long they waited, in all",
        |queue| queue.waited_ns.into(),
    ),
    counter(
        "behind_maintenance_ns",
        "executor_queue_behind_maintenance_seconds_total",
        Unit::Nanoseconds,
        "the part of that wait in which the thread that took the request ran maintenance",
        |queue| queue.behind_maintenance_ns.into(),
    ),
    gauge(
        "waited_ns_max",
        "executor_queue_wait_max_seconds",
        Unit::Nanoseconds,
        "the longest of these waits",
        |queue| queue.waited_ns_max.into(),
    ),
];
