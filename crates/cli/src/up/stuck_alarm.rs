//! Warns of service threads that stay too long in one request.

use super::executor::{ServiceThreads, no_thread};
use crate::outcome::Failure;
use plimsoll_core::Span;
use plimsoll_engine::ServiceRequest;
use plimsoll_executor::{Executor, Watch, Watched};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// How often it is looked whether service threads go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A page takes some ten microseconds. A machine that stands still for so long is worth a warning, too.
const STUCK_AFTER: Span = Span::from_secs(10);

/// Warns of service threads that are stuck, until it is dropped.
pub(super) struct StuckAlarm {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StuckAlarm {
    /// Starts its own thread. A service thread could not watch, since it may be the stuck one.
    pub(super) fn start(threads: &ServiceThreads) -> Result<StuckAlarm, Failure> {
        let (stop, stopped) = channel();
        let threads = Arc::downgrade(threads);
        let work = move || {
            let mut watch = Watch::new(STUCK_AFTER);
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) && look(&mut watch, &threads) {}
        };
        let thread = std::thread::Builder::new().name("executor-alarm".into()).spawn(work).map_err(no_thread)?;
        Ok(StuckAlarm { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StuckAlarm {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Says what has changed; and whether the threads are there still.
fn look(watch: &mut Watch, threads: &Weak<Executor<ServiceRequest>>) -> bool {
    let Some(threads) = threads.upgrade() else { return false };
    let figures = threads.figures();
    let changes = watch.look(&figures);
    let threads = Threads { all: figures.threads.len(), stuck: watch.stuck_count() };
    for change in changes {
        let text = text(change, threads, figures.alive);
        match change {
            Watched::Stuck { .. } => warn!("{text}"),
            Watched::GoesOn { .. } => info!("{text}"),
        }
    }
    true
}

/// How many there are, and how many of them are stuck.
#[derive(Clone, Copy)]
struct Threads {
    all: usize,
    stuck: usize,
}

/// A line for the log about one of these threads. `alive` requests are not done.
fn text(change: Watched, threads: Threads, alive: usize) -> String {
    match change {
        Watched::Stuck { thread, ran } => {
            let others = alive.saturating_sub(1);
            let meaning = match threads {
                Threads { all: 1, .. } => {
                    "it is the only one, so reads and writes of compressed and encrypted volumes wait".to_owned()
                }
                Threads { all, stuck } if stuck >= all => {
                    format!("so are all {all}, so reads and writes of compressed and encrypted volumes wait")
                }
                Threads { all, stuck } => format!("{} of {all} go on", all - stuck),
            };
            format!(
                "executor: service thread {thread} has been at one request for {ran}, {others} others are under way; {meaning}"
            )
        }
        Watched::GoesOn { thread, ran } => {
            format!("executor: service thread {thread} goes on, after at most {ran} with one request")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: executor-stuck.
    #[test]
    fn a_thread_that_is_stuck_is_a_line_that_says_what_that_means() {
        let stuck = Watched::Stuck { thread: 0, ran: Span::from_secs(12) };
        assert_eq!(
            text(stuck, Threads { all: 1, stuck: 1 }, 8),
            "executor: service thread 0 has been at one request for 12 s, 7 others are under way; it is the only one, \
             so reads and writes of compressed and encrypted volumes wait"
        );
        let ends = |all, count, end: &str| text(stuck, Threads { all, stuck: count }, 8).ends_with(end);
        assert!(ends(3, 1, "; 2 of 3 go on"));
        assert!(ends(2, 2, "; so are all 2, so reads and writes of compressed and encrypted volumes wait"));
        let goes_on = Watched::GoesOn { thread: 2, ran: Span::from_secs(13) };
        assert_eq!(
            text(goes_on, Threads { all: 3, stuck: 0 }, 0),
            "executor: service thread 2 goes on, after at most 13 s with one request"
        );
    }
}
