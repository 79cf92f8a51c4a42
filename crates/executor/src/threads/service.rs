//! A service thread: draws a queue, gets a slice, serves that queue until the slice is spent.

use super::figures::{Books, Waited};
use super::lately::Lately;
use super::task::Ended;
use super::{Queued, Shared, clock, slice};
use crate::{Adaptive, Arrival, Kind, Queue, Rules, Selector, Turn, Waiting};
use plimsoll_core::{Span, Time};
use rand_core::Rng;
use rand_pcg::Pcg32;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

pub(super) struct Service<F> {
    shared: Arc<Shared<F>>,
    number: usize,
    selector: Selector,
    random: Pcg32,
    /// What it has seen, where that decides.
    adaptive: Option<Adaptive>,
    /// When it ran maintenance.
    maintenance: Lately,
    /// It was woken and has found nothing yet.
    is_searching: bool,
}

impl<F: Future<Output = ()> + Send + 'static> Service<F> {
    pub(super) fn new(shared: Arc<Shared<F>>, number: usize, seed: u64) -> Service<F> {
        let selector = Selector::new(shared.policy.weights);
        let adaptive = (shared.rules == Rules::Adaptive).then(Adaptive::default);
        let random = Pcg32::new(seed, number as u64);
        Service { shared, number, selector, random, adaptive, maintenance: Lately::default(), is_searching: false }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_over.load(Acquire) {
            let depths = self.shared.lines.depths();
            match self.selector.draw(depths, self.random.next_u32()) {
                Some(queue) => self.serve(Turn::new(queue, depths, &self.shared.policy, self.adaptive.as_ref())),
                None => self.sleep(),
            }
        }
    }

    fn sleep(&mut self) {
        if std::mem::replace(&mut self.is_searching, true) {
            self.shared.idle.searched();
        }
        let shared = &self.shared;
        shared.idle.sleep(|| shared.has_work() || shared.is_over.load(Acquire));
    }

    /// Serves a queue for a turn, and at least one request of it.
    fn serve(&mut self, turn: Turn) {
        self.books().turn();
        let mut now = clock::now();
        let ends = now + turn.slice;
        while let Some(waiting) = self.shared.lines.take(turn.queue) {
            self.found();
            now = self.run_one(turn.queue, now, ends, waiting);
            let gives_way = turn.gives_way(|| self.shared.lines.depths());
            if now >= ends || gives_way || self.shared.is_over.load(Relaxed) {
                break;
            }
        }
    }

    /// Another thread may search from now on, for what is still there.
    fn found(&mut self) {
        if std::mem::replace(&mut self.is_searching, false) {
            self.shared.idle.searched();
            if self.shared.has_work() {
                self.shared.idle.wake_one();
            }
        }
    }

    /// Answers with the time when it had been run.
    fn run_one(&mut self, queue: Queue, now: Time, ends: Time, waiting: Waiting<Queued<F>>) -> Time {
        let Waiting { request: Queued { task, came }, since, .. } = waiting;
        let kind = task.about.kind;
        let ends = self.run_ends(kind, now, ends);
        let behind = if kind == Kind::Maintenance { Span::ZERO } else { self.maintenance.since(since) };
        self.books().begun(now, queue, Waited { all: now.since(since), behind_maintenance: behind }, came);
        let outcome = task.run(|poll| slice::within(ends, poll));
        let after = clock::now();
        let ran = after.since(now);
        if kind == Kind::Maintenance {
            self.maintenance.ran(now, after);
        }
        let again = match outcome {
            Ended::Done { .. } => None,
            Ended::Suspended => Some(Arrival::Resumed),
            Ended::Again(arrival) => Some(arrival),
        };
        self.observe(kind, came, ran, again);
        match outcome {
            Ended::Done { has_panicked } => {
                if has_panicked {
                    self.books().panicked();
                }
                self.books().ended(ran, None, false);
                self.shared.end(task);
            }
            Ended::Suspended => self.books().ended(ran, Some(Arrival::Resumed), false),
            Ended::Again(arrival) => {
                self.books().ended(ran, Some(arrival), after >= ends);
                self.shared.queue_again(task, arrival);
            }
        }
        after
    }

    /// When a run that begins now has to stop: with its slice, or earlier by the adaptive rule.
    fn run_ends(&self, kind: Kind, now: Time, slice_ends: Time) -> Time {
        match &self.adaptive {
            Some(adaptive) if kind != Kind::Maintenance => {
                slice_ends.min(now + adaptive.run_max(self.shared.lines.depths()))
            }
            _ => slice_ends,
        }
    }

    /// What was run counts for where others wait, and for how long.
    fn observe(&mut self, kind: Kind, came: Arrival, ran: Span, again: Option<Arrival>) {
        if let Some(adaptive) = &mut self.adaptive
            && adaptive.observe(kind, came, ran, again)
        {
            self.shared.low.store(adaptive.low().bits(), Relaxed);
        }
    }

    fn books(&self) -> &Books {
        &self.shared.books[self.number]
    }
}
