//! Rows of the service threads and their queues (docs/executor.md).

use super::metric::{A_DETAIL, FOR_GRAPHS, MetricRow, Unit, counter, gauge, inside, label, plain};
use super::reading::Reading;
use super::section::Section;
use crate::control::protocol::ExecutorStatus;
use plimsoll_core::Time;
use plimsoll_executor::{Queue, QueueFigures, ThreadFigures};

/// The executor.
pub static EXECUTOR: Section<ExecutorStatus> = Section { rows: EXECUTOR_ROWS };

const EXECUTOR_ROWS: &[MetricRow<ExecutorStatus>] = &[
    plain("policy", Unit::None, "the name of its rules", |executor| executor.policy.to_owned().into()),
    gauge(
        "under_way",
        "executor_requests",
        Unit::None,
        "requests that are not done: they wait, run, or are suspended",
        |executor: &ExecutorStatus| executor.figures.alive.into(),
    )
    .only_json(A_DETAIL),
    inside("threads", &SERVICE_THREAD, |ExecutorStatus { figures, .. }: &ExecutorStatus| {
        SERVICE_THREAD.list(figures.threads.iter().map(|&thread| (thread, figures.at)))
    })
    .numbered("thread"),
    inside("queues", &QUEUE, |executor: &ExecutorStatus| {
        QUEUE.list(Queue::ALL.map(|queue| (queue, executor.figures.queues[queue.index()])))
    }),
];

/// The service threads, by number, with the time of their figures.
pub static SERVICE_THREAD: Section<(ThreadFigures, Time)> = Section { rows: SERVICE_THREAD_ROWS };

const SERVICE_THREAD_ROWS: &[MetricRow<(ThreadFigures, Time)>] = &[
    counter("turns", "executor_turns_total", Unit::None, "queues that it drew", |(thread, _): &(ThreadFigures, _)| {
        thread.turns.into()
    })
    .only_json(FOR_GRAPHS),
    counter(
        "runs",
        "executor_runs_total",
        Unit::None,
        "runs of requests, each time that one went on too",
        |(thread, _): &(ThreadFigures, _)| thread.runs.into(),
    )
    .only_json(FOR_GRAPHS),
    counter("done", "executor_requests_done_total", Unit::None, "requests that were done", |(thread, _)| {
        thread.done.into()
    }),
    counter(
        "suspended",
        "executor_suspensions_total",
        Unit::None,
        "runs that ended because something was lacking",
        |(thread, _): &(ThreadFigures, _)| thread.suspended.into(),
    )
    .only_json(FOR_GRAPHS),
    counter(
        "resumed",
        "executor_resumptions_total",
        Unit::None,
        "runs that began because what was lacking is there, such as blocks from a disk",
        |(thread, _)| thread.resumed.into(),
    ),
    counter(
        "preempted",
        "executor_preemptions_total",
        Unit::None,
        "runs that ended because the slice was spent",
        |(thread, _)| thread.preempted.into(),
    ),
    counter(
        "gave_way",
        "executor_yields_total",
        Unit::None,
        "runs of maintenance that ended before, so that others go first",
        |(thread, _): &(ThreadFigures, _)| thread.gave_way.into(),
    )
    .only_json(FOR_GRAPHS),
    counter(
        "panicked",
        "executor_panics_total",
        Unit::None,
        "requests that panicked; they count as done",
        |(thread, _): &(ThreadFigures, _)| thread.panicked.into(),
    )
    .only_json(A_DETAIL),
    counter(
        "busy_ns",
        "executor_busy_seconds_total",
        Unit::Nanoseconds,
        "time in which requests ran",
        |(thread, _): &(ThreadFigures, _)| thread.busy.as_nanos().into(),
    )
    .only_json(FOR_GRAPHS),
    plain(
        "running_since_ns",
        Unit::Nanoseconds,
        "since when its request runs, by CLOCK_MONOTONIC; `null`: it runs nothing",
        |(thread, _): &(ThreadFigures, _)| thread.running_since.map(Time::as_nanos).into(),
    )
    .only_json(A_DETAIL),
    gauge(
        "running_ns",
        "executor_running_seconds",
        Unit::Nanoseconds,
        "for how long its request has run",
        |(thread, now)| thread.running_since.map(|since| now.since(since).as_nanos()).into(),
    ),
];

/// The queues: high, low, maintenance.
pub static QUEUE: Section<(Queue, QueueFigures)> = Section { rows: QUEUE_ROWS };

const QUEUE_ROWS: &[MetricRow<(Queue, QueueFigures)>] = &[
    label("queue", "queue", "`high`, `low` or `maintenance`", |(queue, _)| {
        Reading::Text(format!("{queue:?}").to_lowercase())
    }),
    gauge("depth", "executor_queue_requests", Unit::None, "requests that wait", |(_, queue)| queue.depth.into()),
    counter("served", "executor_queue_served_total", Unit::None, "requests that were taken out of it", |(_, queue)| {
        queue.served.into()
    }),
    counter(
        "waited_ns",
        "executor_queue_wait_seconds_total",
        Unit::Nanoseconds,
        "how long they waited, in all",
        |(_, queue)| queue.waited.as_nanos().into(),
    ),
    counter(
        "behind_maintenance_ns",
        "executor_queue_behind_maintenance_seconds_total",
        Unit::Nanoseconds,
        "what of that the thread that took the request spent with maintenance",
        |(_, queue): &(_, QueueFigures)| queue.behind_maintenance.as_nanos().into(),
    )
    .only_json(FOR_GRAPHS),
    gauge(
        "waited_ns_max",
        "executor_queue_wait_max_seconds",
        Unit::Nanoseconds,
        "the longest of these waits",
        |(_, queue): &(_, QueueFigures)| queue.waited_max.as_nanos().into(),
    )
    .only_json(A_DETAIL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::sentence;
    use plimsoll_core::Span;
    use plimsoll_executor::Figures;

    fn said(figures: Figures) -> (Reading, String) {
        let executor = EXECUTOR.object(&ExecutorStatus { policy: "combo", figures });
        let [queues, threads] = ["queues", "threads"].map(|list| executor.subjects(list));
        let line = [
            sentence::EXECUTOR.of(&executor),
            sentence::QUEUE.of_each(queues),
            sentence::SERVICE_THREAD.of_each(threads),
        ];
        (executor, line.concat())
    }

    #[test]
    fn a_line_says_who_waits_where() {
        let mut figures = Figures { threads: vec![ThreadFigures::default(); 2], ..Figures::default() };
        figures.threads[0].done = 7;
        figures.threads[1] = ThreadFigures { done: 3, preempted: 2, resumed: 6, ..ThreadFigures::default() };
        figures.queues[1] = QueueFigures { depth: 4, served: 10, waited: Span::from_micros(50), ..Default::default() };
        assert_eq!(
            said(figures).1,
            "executor: combo, 2 service threads, 10 requests done, 2 times preempted, 6 times resumed; low: 4 wait, 5 us on average"
        );
    }

    /// Planted break: how maintenance gave way is left out.
    /// Promise: executor-stuck.
    #[test]
    fn every_figure_of_a_thread_is_in_the_answer() {
        let at = |nanoseconds| Time::ZERO + Span::from_nanos(nanoseconds);
        let thread = ThreadFigures {
            turns: 1,
            runs: 2,
            done: 3,
            suspended: 4,
            resumed: 5,
            preempted: 6,
            gave_way: 7,
            panicked: 8,
            busy: Span::from_nanos(9),
            running_since: Some(at(10)),
        };
        let idle = ThreadFigures { running_since: None, ..thread };
        let figures = Figures { threads: vec![thread, idle], at: at(2_500_000_010), ..Figures::default() };
        let (executor, text) = said(figures);
        let expected = serde_json::json!({
            "turns": 1, "runs": 2, "done": 3, "suspended": 4, "resumed": 5, "preempted": 6, "gave_way": 7, "panicked": 8, "busy_ns": 9,
            "running_since_ns": 10, "running_ns": 2_500_000_000_u64,
        });
        let threads = executor.subjects("threads");
        assert_eq!(serde_json::to_value(&threads[0]).unwrap(), expected);
        let nothing = serde_json::Value::Null;
        let of_idle = serde_json::to_value(&threads[1]).unwrap();
        assert_eq!((&of_idle["running_since_ns"], &of_idle["running_ns"]), (&nothing, &nothing));
        assert!(text.ends_with("\nexecutor: service thread 0 has been at one request for 2.5 s"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
