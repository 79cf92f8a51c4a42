//! What is said of the service threads.

use plimsoll_core::Span;
use plimsoll_executor::{Figures, Queue, QueueFigures, ThreadFigures};
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// Requests that were done.
    pub done: u64,
    /// Runs that ended because something was lacking.
    pub suspended: u64,
    /// Runs that began because what was lacking is there, such as blocks from a disk.
    pub resumed: u64,
    /// Runs that ended because the slice was spent.
    pub preempted: u64,
    /// Requests that panicked; they count as done.
    pub panicked: u64,
    /// Nanoseconds that requests ran.
    pub busy_ns: u64,
    /// Since when it runs what it runs, nanoseconds of CLOCK_MONOTONIC; `None`: it runs nothing.
    pub running_since_ns: Option<u64>,
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
    /// The longest of them, nanoseconds.
    pub waited_ns_max: u64,
}

impl ExecutorStatus {
    /// Of an executor with these rules.
    pub fn new(policy: &str, figures: &Figures) -> ExecutorStatus {
        let queues = Queue::ALL.iter().zip(&figures.queues);
        ExecutorStatus {
            policy: policy.to_owned(),
            under_way: figures.alive,
            threads: figures.threads.iter().map(thread).collect(),
            queues: queues.map(|(queue, figures)| of_queue(*queue, figures)).collect(),
        }
    }
}

fn thread(figures: &ThreadFigures) -> ServiceThreadStatus {
    let ThreadFigures { turns, done, suspended, resumed, preempted, panicked, busy, running_since, .. } = *figures;
    ServiceThreadStatus {
        turns,
        done,
        suspended,
        resumed,
        preempted,
        panicked,
        busy_ns: busy.as_nanos(),
        running_since_ns: running_since.map(|since| since.as_nanos()),
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_waits_where() {
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
}
