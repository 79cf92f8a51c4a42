//! What is said of the service threads.

use plimsoll_core::{Span, Time};
use plimsoll_executor::{Figures, Queue, QueueFigures, ThreadFigures};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Time of a run after which a separate line reports it: no step takes a hundredth of it.
const LONG: Span = Span::from_secs(1);

/// The service threads and their queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorStatus {
    /// The name of their rules.
    pub policy: String,
    /// Requests that are not done: they wait, run, or are suspended.
    pub under_way: usize,
    /// By thread.
    pub threads: Vec<ServiceThreadStatus>,
    /// High, low, maintenance.
    pub queues: Vec<QueueStatus>,
}

/// What a service thread has done since the daemon started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceThreadStatus {
    /// Queues that it drew.
    pub turns: u64,
    /// Runs of requests, each continuation included; each ended in one of the ways below.
    pub runs: u64,
    /// Requests that were done.
    pub done: u64,
    /// Runs that ended because something was lacking.
    pub suspended: u64,
    /// Runs that began because what was lacking is there, such as blocks from a disk.
    pub resumed: u64,
    /// Runs that ended because the slice was spent.
    pub preempted: u64,
    /// Runs that ended before, so that others may go first: maintenance, between two pages.
    pub gave_way: u64,
    /// Requests that panicked; they count as done.
    pub panicked: u64,
    /// Nanoseconds that requests ran.
    pub busy_ns: u64,
    /// Since when it runs what it runs, nanoseconds of CLOCK_MONOTONIC; `None`: it runs nothing.
    pub running_since_ns: Option<u64>,
    /// For how many nanoseconds it has run that.
    pub running_ns: Option<u64>,
}

/// What came to a queue and what left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// `high`, `low` or `maintenance`.
    pub queue: String,
    /// Requests that wait.
    pub depth: u32,
    /// Requests that were taken out of it.
    pub served: u64,
    /// The sum of what they had waited, nanoseconds.
    pub waited_ns: u64,
    /// What of it the thread that took them spent with maintenance, nanoseconds.
    pub behind_maintenance_ns: u64,
    /// The longest of them, nanoseconds.
    pub waited_ns_max: u64,
}

impl ExecutorStatus {
    /// The status of an executor with these rules.
    pub fn new(policy: &str, figures: &Figures) -> ExecutorStatus {
        let queues = Queue::ALL.iter().zip(&figures.queues);
        ExecutorStatus {
            policy: policy.to_owned(),
            under_way: figures.alive,
            threads: figures.threads.iter().map(|of_thread| thread(of_thread, figures.at)).collect(),
            queues: queues.map(|(queue, figures)| of_queue(*queue, figures)).collect(),
        }
    }
}

fn thread(figures: &ThreadFigures, now: Time) -> ServiceThreadStatus {
    let ThreadFigures { turns, runs, done, suspended, resumed, preempted, gave_way, panicked, busy, running_since } =
        *figures;
    ServiceThreadStatus {
        turns,
        runs,
        done,
        suspended,
        resumed,
        preempted,
        gave_way,
        panicked,
        busy_ns: busy.as_nanos(),
        running_since_ns: running_since.map(|since| since.as_nanos()),
        running_ns: running_since.map(|since| now.since(since).as_nanos()),
    }
}

fn of_queue(queue: Queue, figures: &QueueFigures) -> QueueStatus {
    let name = match queue {
        Queue::High => "high",
        Queue::Low => "low",
        Queue::Maintenance => "maintenance",
    };
    QueueStatus {
        queue: name.to_owned(),
        depth: figures.depth,
        served: figures.served,
        waited_ns: figures.waited.as_nanos(),
        behind_maintenance_ns: figures.behind_maintenance.as_nanos(),
        waited_ns_max: figures.waited_max.as_nanos(),
    }
}

impl fmt::Display for ExecutorStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&ServiceThreadStatus) -> u64| self.threads.iter().map(of).sum::<u64>();
        let (count, done) = (self.threads.len(), sum(|thread| thread.done));
        let (preempted, resumed) = (sum(|thread| thread.preempted), sum(|thread| thread.resumed));
        let ending = if count == 1 { "" } else { "s" };
        write!(
            out,
            "executor: {}, {count} service thread{ending}, {done} requests done, {preempted} times preempted, {resumed} times resumed",
            self.policy
        )?;
        for queue in self.queues.iter().filter(|queue| queue.served > 0 || queue.depth > 0) {
            let mean = Span::from_nanos(queue.waited_ns / queue.served.max(1));
            write!(out, "; {}: {} wait, {mean} on average", queue.queue, queue.depth)?;
        }
        for (number, thread) in self.threads.iter().enumerate() {
            if let Some(ran) = thread.running_ns.map(Span::from_nanos).filter(|&ran| ran >= LONG) {
                write!(out, "\nexecutor: service thread {number} has been at one request for {ran}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_thread_waits_where() {
        let mut figures = Figures { threads: vec![ThreadFigures::default(); 2], ..Figures::default() };
        figures.threads[0].done = 7;
        figures.threads[1] = ThreadFigures { done: 3, preempted: 2, resumed: 6, ..ThreadFigures::default() };
        figures.queues[1] = QueueFigures { depth: 4, served: 10, waited: Span::from_micros(50), ..Default::default() };
        let status = ExecutorStatus::new("combo", &figures);
        assert_eq!(
            status.to_string(),
            "executor: combo, 2 service threads, 10 requests done, 2 times preempted, 6 times resumed; low: 4 wait, 5 us on average"
        );
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<ExecutorStatus>(&json).unwrap(), status);
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
        let status = ExecutorStatus::new("combo", &figures);
        let expected = serde_json::json!({
            "turns": 1, "runs": 2, "done": 3, "suspended": 4, "resumed": 5, "preempted": 6, "gave_way": 7, "panicked": 8, "busy_ns": 9,
            "running_since_ns": 10, "running_ns": 2_500_000_000_u64,
        });
        assert_eq!(serde_json::to_value(status.threads[0]).unwrap(), expected);
        let nothing = serde_json::Value::Null;
        let of_idle = serde_json::to_value(status.threads[1]).unwrap();
        assert_eq!((&of_idle["running_since_ns"], &of_idle["running_ns"]), (&nothing, &nothing));
        let text = status.to_string();
        assert!(text.ends_with("\nexecutor: service thread 0 has been at one request for 2.5 s"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
