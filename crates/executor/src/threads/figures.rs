//! What an executor has done, by thread and by queue.

use crate::{Arrival, QUEUES, Queue};
use crossbeam_utils::CachePadded;
use plimsoll_core::{Span, Time};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a service thread has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadFigures {
    /// Queues that it drew.
    pub turns: u64,
    /// Runs of requests, each time that one was resumed too.
    pub runs: u64,
    /// Requests that were done.
    pub done: u64,
    /// Runs that ended because something was lacking.
    pub suspended: u64,
    /// Runs that began after a suspended request's wait, also the first run of one suspended elsewhere.
    pub resumed: u64,
    /// Runs that ended because the slice was spent.
    pub preempted: u64,
    /// Runs that ended before, so that others may go first.
    pub gave_way: u64,
    /// Requests that panicked; they count as done.
    pub panicked: u64,
    /// Time that requests ran.
    pub busy: Span,
    /// Since when it runs what it runs; `None`: it runs nothing.
    pub running_since: Option<Time>,
}

/// What came to a queue and what left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Requests that wait.
    pub depth: u32,
    /// Requests that a thread took out of it.
    pub served: u64,
    /// The sum of what they had waited.
    pub waited: Span,
    /// What of it the thread that took them spent with maintenance; of maintenance itself nothing.
    pub behind_maintenance: Span,
    /// The longest of them.
    pub waited_max: Span,
}

/// What an executor has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// By thread.
    pub threads: Vec<ThreadFigures>,
    /// By [`Queue::index`].
    pub queues: [QueueFigures; QUEUES],
    /// Requests that are not done: they wait, run, or are suspended.
    pub alive: usize,
    /// Threads that sleep because no request waits.
    pub asleep: usize,
    /// Wake-ups of service threads. There is at most one for each request that comes to a queue, and one for each woken
    /// thread that leaves a request waiting.
    pub woken: u64,
    /// When it was looked, on CLOCK_MONOTONIC.
    pub at: Time,
}

/// The books of one thread, in a cache line of its own: it alone writes them.
#[derive(Default)]
pub(super) struct Books {
    turns: AtomicU64,
    done: AtomicU64,
    suspended: AtomicU64,
    resumed: AtomicU64,
    preempted: AtomicU64,
    gave_way: AtomicU64,
    panicked: AtomicU64,
    busy_ns: AtomicU64,
    /// 0: it runs nothing.
    running_since_ns: AtomicU64,
    queues: CachePadded<[QueueBooks; QUEUES]>,
}

#[derive(Default)]
struct QueueBooks {
    served: AtomicU64,
    waited_ns: AtomicU64,
    behind_maintenance_ns: AtomicU64,
    waited_max_ns: AtomicU64,
}

/// How long a request has waited.
pub(super) struct Waited {
    pub(super) all: Span,
    /// See [`QueueFigures::behind_maintenance`].
    pub(super) behind_maintenance: Span,
}

/// Only its thread adds.
fn add(to: &AtomicU64, count: u64) {
    to.store(to.load(Relaxed) + count, Relaxed);
}

impl Books {
    pub(super) fn turn(&self) {
        add(&self.turns, 1);
    }

    pub(super) fn begun(&self, now: Time, queue: Queue, waited: Waited, came: Arrival) {
        if came == Arrival::Resumed {
            add(&self.resumed, 1);
        }
        let queue = &self.queues[queue.index()];
        add(&queue.served, 1);
        add(&queue.waited_ns, waited.all.as_nanos());
        add(&queue.behind_maintenance_ns, waited.behind_maintenance.as_nanos());
        if waited.all.as_nanos() > queue.waited_max_ns.load(Relaxed) {
            queue.waited_max_ns.store(waited.all.as_nanos(), Relaxed);
        }
        self.running_since_ns.store(now.as_nanos(), Relaxed);
    }

    /// A run ended: `None` if the request is done, else the way in which it comes back. A suspended one comes back when
    /// it is woken, and one that gave way before its slice `is_spent`.
    pub(super) fn ended(&self, ran: Span, again: Option<Arrival>, is_spent: bool) {
        self.running_since_ns.store(0, Relaxed);
        add(&self.busy_ns, ran.as_nanos());
        match again {
            None => add(&self.done, 1),
            Some(Arrival::Preempted) if is_spent => add(&self.preempted, 1),
            Some(Arrival::Preempted) => add(&self.gave_way, 1),
            Some(_) => add(&self.suspended, 1),
        }
    }

    pub(super) fn panicked(&self) {
        add(&self.panicked, 1);
    }

    pub(super) fn figures(&self) -> ThreadFigures {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let (done, suspended, preempted) = (of(&self.done), of(&self.suspended), of(&self.preempted));
        let gave_way = of(&self.gave_way);
        let since = of(&self.running_since_ns);
        ThreadFigures {
            turns: of(&self.turns),
            runs: done + suspended + preempted + gave_way,
            done,
            suspended,
            resumed: of(&self.resumed),
            preempted,
            gave_way,
            panicked: of(&self.panicked),
            busy: Span::from_nanos(of(&self.busy_ns)),
            running_since: (since != 0).then(|| Time::from_nanos(since)),
        }
    }

    /// Adds what this thread took out of `queue`.
    pub(super) fn add_to(&self, queue: Queue, figures: &mut QueueFigures) {
        let books = &self.queues[queue.index()];
        figures.served += books.served.load(Relaxed);
        figures.waited += Span::from_nanos(books.waited_ns.load(Relaxed));
        figures.behind_maintenance += Span::from_nanos(books.behind_maintenance_ns.load(Relaxed));
        figures.waited_max = figures.waited_max.max(Span::from_nanos(books.waited_max_ns.load(Relaxed)));
    }
}
