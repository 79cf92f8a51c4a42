//! The half that runs: service threads, and requests as futures.
//!
//! **Intuition.** A request is a future. When it has to wait it is `Pending`, and its thread continues with another
//! one. The event that it waits for wakes it, and it comes to a queue again as the policy says. At a
//! [`checkpoint`](crate::checkpoint) it gives its thread back when the slice is spent. **Rule.** Each thread draws and
//! serves on its own. They share the queues, which have no lock for requests without a deadline, and counters of their
//! depths. **Complication.** Sleeping and waking: [`idle`].
//!
//! **A thread that hands in a request spins for no service thread.** It may be real-time, as an engine's thread is.
//! Then it may have preempted, on its own processor, the very thread that it would wait for. Then it would spin until
//! the kernel throttles it. So the memory of requests that have ended is behind locks that both sides only try
//! ([`spare`]). A thread sleeps while it waits for the sleepers' lock: so the thread that holds it can run.
//!
//! A request that panics, while it runs or when it is dropped, counts as done, and its thread continues. A request that
//! neither ends nor passes a checkpoint keeps its thread, and
//! [`ThreadFigures::running_since`](crate::ThreadFigures::running_since) says so; the others go on.

mod clock;
mod figures;
mod idle;
mod lately;
mod lines;
#[cfg(test)]
mod lines_tests;
mod service;
mod slice;
mod spare;
mod task;
mod watch;

pub use figures::{Figures, QueueFigures, ThreadFigures};
pub use slice::{Checkpoint, checkpoint, give_way, is_slice_spent};
pub use watch::{Watch, Watched};

use crate::{Arrival, Kind, LowSorts, Policy, QUEUES, Queue, Rules};
use crossbeam_utils::CachePadded;
use figures::Books;
use idle::Idle;
use lines::Lines;
use plimsoll_core::Time;
use service::Service;
use spare::Spare;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize};
use std::thread::JoinHandle;
use std::{fmt, io};
use task::{About, Task};
use thiserror::Error;

/// How an executor is.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorConfig {
    /// Service threads, 1 and more; one or two fewer than processors in the paper.
    pub threads: usize,
    /// What decides.
    pub rules: Rules,
    /// Requests at once, 1 and more: some 200 bytes each are taken at the start.
    pub requests_max: usize,
    /// Decides what the draws leave to chance.
    pub seed: u64,
}

/// A request that was not taken: as many as allowed are not done yet. It is given back.
#[derive(Error)]
#[error("{requests_max} requests are under way, more are not taken")]
pub struct Full<F> {
    /// The request.
    pub request: F,
    /// How many may be.
    pub requests_max: usize,
}

impl<F> fmt::Debug for Full<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Full").field("requests_max", &self.requests_max).finish_non_exhaustive()
    }
}

/// A request in a queue, and how it came there.
struct Queued<F> {
    task: Arc<Task<F>>,
    came: Arrival,
}

struct Shared<F> {
    rules: Rules,
    /// Slices and weights.
    policy: Policy,
    /// Under [`Rules::Adaptive`]: the sorts that wait low, as the thread had it that chose last. Each counts for
    /// itself: they serve the same queues, so what one sees is what all see.
    low: CachePadded<AtomicU16>,
    lines: Lines<Queued<F>>,
    idle: Idle,
    books: Box<[CachePadded<Books>]>,
    alive: CachePadded<AtomicUsize>,
    requests_max: usize,
    /// Tasks that have ended, for requests to come.
    spare: Spare<Arc<Task<F>>>,
    is_over: AtomicBool,
}

impl<F: Future<Output = ()> + Send + 'static> Shared<F> {
    /// Puts a request where it is to wait, and wakes a thread for it.
    fn queue(&self, task: Arc<Task<F>>, arrival: Arrival) {
        self.put(task, arrival);
        self.idle.wake_one();
    }

    /// The same for the thread that has run the request and now looks for the next. If no other request waits, the
    /// thread needs no help; a request that comes later wakes a thread itself.
    fn queue_again(&self, task: Arc<Task<F>>, arrival: Arrival) {
        self.put(task, arrival);
        if self.lines.depths().iter().sum::<u32>() > 1 {
            self.idle.wake_one();
        }
    }

    fn put(&self, task: Arc<Task<F>>, arrival: Arrival) {
        let About { kind, deadline } = task.about;
        let queue = match &self.rules {
            Rules::Fixed(policy) => policy.queue(kind, arrival),
            Rules::Adaptive => LowSorts::from_bits(self.low.load(Relaxed)).queue(kind, arrival),
        };
        self.lines.put(queue, Queued { task, came: arrival }, deadline, clock::now());
    }

    fn has_work(&self) -> bool {
        self.lines.depths() != [0; QUEUES]
    }

    fn end(&self, task: Arc<Task<F>>) {
        self.spare.put(task);
        self.alive.fetch_sub(1, Release);
    }
}

/// Service threads that run requests of type `F`. When it is dropped, its threads end after their present run, and
/// unfinished requests are dropped. A suspended one is dropped with its last waker.
pub struct Executor<F: Future<Output = ()> + Send + 'static> {
    shared: Arc<Shared<F>>,
    threads: Vec<JoinHandle<()>>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses a thread; those that were started have ended then.
    ///
    /// # Panics
    /// If no threads or no requests are allowed.
    pub fn start(config: ExecutorConfig) -> io::Result<Executor<F>> {
        let ExecutorConfig { threads, rules, requests_max, seed } = config;
        assert!(threads > 0 && requests_max > 0, "{threads} threads, {requests_max} requests, allowed 1 and more");
        let shared = Arc::new(Shared {
            rules,
            policy: rules.policy(),
            low: CachePadded::default(),
            lines: Lines::new(requests_max),
            idle: Idle::default(),
            books: (0..threads).map(|_| CachePadded::default()).collect(),
            alive: CachePadded::default(),
            requests_max,
            spare: Spare::with_capacity(requests_max),
            is_over: AtomicBool::new(false),
        });
        let mut executor = Executor { shared, threads: Vec::new() };
        for number in 0..threads {
            let service = Service::new(executor.shared.clone(), number, seed);
            let thread = std::thread::Builder::new().name(format!("service {number}"));
            executor.threads.push(thread.spawn(move || service.run())?);
        }
        Ok(executor)
    }

    /// Takes a request, which should be done by `deadline` on CLOCK_MONOTONIC if it has one. O(1), O(log those with a
    /// deadline) with one; from any thread.
    ///
    /// # Errors
    /// [`Full`], with the request, if as many as allowed are not done yet.
    pub fn spawn(&self, kind: Kind, deadline: Option<Time>, request: F) -> Result<(), Full<F>> {
        self.spawn_as(kind, Arrival::New, deadline, request)
    }

    /// The same of a request that comes as `came` says. If another thread ran its first part and suspended it there,
    /// it is [`Arrival::Resumed`] when what it lacked is there.
    ///
    /// # Errors
    /// As of [`spawn`](Self::spawn).
    pub fn spawn_as(&self, kind: Kind, came: Arrival, deadline: Option<Time>, request: F) -> Result<(), Full<F>> {
        let shared = &self.shared;
        let requests_max = shared.requests_max;
        let taken = shared.alive.fetch_update(AcqRel, Acquire, |alive| (alive < requests_max).then_some(alive + 1));
        if taken.is_err() {
            return Err(Full { request, requests_max });
        }
        let about = About { kind, deadline };
        let renewed = match shared.spare.take() {
            Some(mut task) => task.renew(request, about).map(|()| task),
            None => Err(request),
        };
        // None has ended yet, other threads hold those that have, or a waker of this one is still held.
        let task = renewed.unwrap_or_else(|request| Task::new(request, about, shared));
        shared.queue(task, came);
        Ok(())
    }

    /// Service threads. O(1).
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// What it has done. Of each request that is not alive all is counted. O(threads).
    pub fn figures(&self) -> Figures {
        let Shared { lines, books, alive, idle, .. } = &*self.shared;
        // First: the thread that ends a request writes its books before. Acquire: then they are seen.
        let alive = alive.load(Acquire);
        let mut queues = [QueueFigures::default(); QUEUES];
        for (queue, depth) in Queue::ALL.into_iter().zip(lines.depths()) {
            let figures = &mut queues[queue.index()];
            figures.depth = depth;
            books.iter().for_each(|books| books.add_to(queue, figures));
        }
        let threads = books.iter().map(|books| books.figures()).collect();
        let (asleep, woken) = idle.figures();
        // Last: then no run that is seen began after it.
        Figures { threads, queues, alive, asleep, woken, at: clock::now() }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Executor<F> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Release);
        self.shared.idle.wake_all();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        // What waits would keep itself alive.
        for queue in Queue::ALL {
            while let Some(waiting) = self.shared.lines.take(queue) {
                waiting.request.task.give_up();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A thread holds the memory of requests that have ended, once while a request is handed in and once while one
    /// ends. Broken on purpose and seen red: the thread that hands one in waits for the lock; a thread that
    /// has run one does.
    /// Promise: volume-no-spinning.
    #[test]
    fn a_thread_that_hands_in_a_request_or_has_run_one_does_not_wait_for_spare_memory() {
        let config = ExecutorConfig { threads: 1, rules: Rules::Adaptive, requests_max: 4, seed: 1 };
        let executor = Executor::start(config).unwrap();
        let (told, is_told) = channel();
        let at_it = executor.shared.spare.hold();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..10 {
                    let told = told.clone();
                    // Each alone: so all that a thread does for it is done before the next one comes.
                    while executor.figures().alive > 0 {
                        std::thread::yield_now();
                    }
                    executor.spawn(Kind::Read, None, Box::pin(async move { told.send(round).unwrap() })).unwrap();
                }
            });
            // Long, so that it ends at all where it is broken.
            let rounds: Vec<i32> = (0..10).map_while(|_| is_told.recv_timeout(Duration::from_secs(20)).ok()).collect();
            drop(at_it);
            assert_eq!(rounds, (0..10).collect::<Vec<_>>());
        });
    }
}
