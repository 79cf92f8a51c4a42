//! The engine's thread: each turn handles events, lets the scheduler decide, and waits.

mod attachments;

use super::config::{EngineConfig, GRACE_DEFAULT};
use super::error::EngineError;
use super::front_end::{FrontEnd, LOOK_EVERY};
use super::port::Port;
use super::ring::{Completed, Owner};
use super::seat::Seat;
use super::slab::Slab;
use crate::path::conductor::{Conductor, REQUESTS_EXPECTED};
use plimsoll_core::Time;
use plimsoll_linux::mailbox::Receiver;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::Sender;

/// What another thread wants the engine's thread to do between two turns.
pub(super) type Command = Box<dyn FnOnce(&mut Engine) + Send>;

/// Slack of the kernel's timers: 1 ns, the least, because emulated devices are exact.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;
/// Requests that are handed out in a turn before others are heard. A client that verifies a volume in memory asks for
/// the next 64 KiB as soon as it has some. To compare 64 times as much takes about a millisecond.
const HANDED_OUT_MAX: usize = 64;
/// Buffers that lose their memory each time that a front end has found none, because their front ends do not use them.
/// That takes some milliseconds.
const TRIMMED_MAX: usize = 256;

/// A front end and its seat.
struct Attached {
    seat: Seat,
    front_end: Box<dyn FrontEnd>,
    /// When it is cut off; set once it was asked to stop.
    cut_at: Option<Time>,
}

/// A device with all that belongs to it. See the [module's text](super).
pub(super) struct Engine {
    pub(super) conductor: Conductor,
    front_ends: Slab<Attached>,
    /// Front ends that heard something in this turn.
    touched: Vec<u32>,
    /// Front ends that may be through.
    leaving: Vec<u32>,
    /// When the first of the front ends that were asked to stop is cut off.
    next_cut: Option<Time>,
    /// When it is looked again whether front ends' other ends are still there.
    next_look: Time,
    completed: Vec<Completed>,
    commands: Receiver<Command>,
    /// The turn was over before all was done: the next one follows at once.
    goes_on: bool,
    is_ending: bool,
    ended: Vec<Sender<Result<(), EngineError>>>,
}

impl Engine {
    /// Makes an engine for this thread.
    pub(super) fn new(config: EngineConfig, commands: Receiver<Command>) -> Result<Engine, EngineError> {
        let system = |action| move |errno: rustix::io::Errno| EngineError::System { action, source: errno.into() };
        if let Some(processor) = config.processor {
            let mut processors = rustix::thread::CpuSet::new();
            processors.set(processor);
            rustix::thread::sched_setaffinity(None, &processors).map_err(system("bind to the processor"))?;
        }
        rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS)).map_err(system("set the timer slack"))?;
        let conductor = Conductor::new(config)?;
        let next_look = conductor.ground.now + LOOK_EVERY;
        Ok(Engine {
            conductor,
            front_ends: Slab::with_capacity(0),
            touched: Vec::new(),
            leaving: Vec::new(),
            next_cut: None,
            next_look,
            completed: Vec::with_capacity(REQUESTS_EXPECTED),
            commands,
            goes_on: false,
            is_ending: false,
            ended: Vec::new(),
        })
    }

    /// Runs until it was told to end and all front ends are gone.
    ///
    /// Where its ring fails or its thread panics before that, kernel and service threads may still have addresses of
    /// buffers. Nothing that they could write to is freed then. Each later call hears that it has stopped. Answers the
    /// reason if its ring ended it; a panic propagates.
    pub(super) fn run(mut self) -> Option<String> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_to_the_end()));
        let Engine { conductor, front_ends, ended, .. } = self;
        let mut result = match outcome {
            Ok(result) => result,
            Err(panic) => {
                // Before anything else that may panic.
                std::mem::forget((conductor, front_ends));
                tracing::error!("the engine's thread has panicked");
                resume_unwind(panic);
            }
        };
        let why = match &result {
            Err(error @ EngineError::Ring { .. }) => {
                std::mem::forget((conductor, front_ends));
                Some(error.to_string())
            }
            _ => {
                drop(conductor);
                None
            }
        };
        for answer in ended {
            let _ = answer.send(std::mem::replace(&mut result, Ok(())));
        }
        why
    }

    /// Turn after turn; then makes its volumes durable.
    fn run_to_the_end(&mut self) -> Result<(), EngineError> {
        self.conductor.ring.watch(self.commands.as_fd().as_raw_fd(), Owner::Wake);
        let mut result = loop {
            self.turn();
            if self.is_ending && self.front_ends.len() == 0 && self.caches_are_closed() {
                break Ok(());
            }
            let timeout = self.wake_at().map(|time| time.since(self.conductor.clock.now()));
            if let Err(source) = self.conductor.ring.submit_and_wait(timeout) {
                break Err(EngineError::Ring { source });
            }
        };
        if let Err(error) = &result {
            tracing::error!(%error, "the engine's ring has failed");
        }
        let volumes: Vec<u32> = self.conductor.volumes.iter().map(|(index, _)| index).collect();
        for volume in volumes {
            if let Err(error) = self.conductor.sync_volume(volume) {
                tracing::error!(%error, "at the end");
                // The first failure stays: a ring's decides what may be freed.
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Whether every cache is closed; if not, those that were not asked to are now.
    fn caches_are_closed(&mut self) -> bool {
        while !self.conductor.caches_are_closed() {
            if !self.conductor.caches.have_work() {
                return false;
            }
            self.turn();
        }
        true
    }

    fn turn(&mut self) {
        let now = self.conductor.clock.now();
        self.conductor.ground.begin_turn(now);
        let mut completed = std::mem::take(&mut self.completed);
        self.conductor.ring.drain(&mut completed);
        for completed in completed.drain(..) {
            match completed.owner {
                Owner::Piece(index) => self.conductor.step_completed(index, completed.result),
                Owner::FrontEnd(index, tag) => self.with(index, |front_end, port| {
                    if !completed.has_more {
                        port.seat.operations -= 1;
                    }
                    front_end.ring_completed(port, tag, completed.result, completed.has_more);
                }),
                Owner::Wake => self.woken(completed.has_more),
                Owner::UpperLevels if completed.result == Err(Errno::CANCELED) => {}
                Owner::UpperLevels => self.conductor.upper_levels_are_ready(completed.has_more),
                Owner::Cache(volume, operation) => {
                    self.conductor.cache_operation_completed(volume, operation, completed.result);
                }
                Owner::Work => self.conductor.hear_of_work(completed.has_more),
                Owner::Nobody => {}
            }
        }
        self.completed = completed;
        self.conductor.complete_emulated();
        self.conductor.hear_upper_levels();
        self.conductor.look_once_a_second();
        self.conductor.try_work_again();
        self.cut_overdue();
        self.look();
        self.try_for_memory_again();
        self.go_round();
        self.conductor.tell_of_reads();
        self.leaving.append(&mut self.conductor.ahead.through);
        self.dismiss_finished();
    }

    /// Decides, hands out and hears what comes of that, as long as something does. A client that asks again as soon as
    /// it was answered does not keep the thread.
    fn go_round(&mut self) {
        self.goes_on = false;
        let mut handed_out = 0;
        loop {
            self.conductor.drive_caches();
            self.conductor.pump();
            while self.conductor.read_ahead() {
                self.conductor.pump();
            }
            if handed_out >= HANDED_OUT_MAX {
                self.goes_on = !self.conductor.ground.answers.is_empty() || self.conductor.caches.have_work();
                return;
            }
            let count = self.hand_out();
            if count == 0 && !self.end_turn() && !self.conductor.caches.have_work() {
                return;
            }
            // A round that only a cache has got something of is one, too.
            handed_out += count.max(1);
            if handed_out >= HANDED_OUT_MAX {
                // A front end that has heard something must be able to answer it, and to receive, before any goes on.
                self.end_turn();
            }
        }
    }

    /// Calls a front end, if it is still there, and remembers that it heard something.
    fn with(&mut self, index: u32, call: impl FnOnce(&mut dyn FrontEnd, &mut Port<'_>)) {
        let Some(Attached { seat, front_end, .. }) = self.front_ends.get_mut(index) else {
            return;
        };
        if !std::mem::replace(&mut seat.is_touched, true) {
            self.touched.push(index);
        }
        call(&mut **front_end, &mut Port { conductor: &mut self.conductor, seat });
    }

    /// Hands out the requests that are done; says how many there were.
    fn hand_out(&mut self) -> usize {
        let mut finished = std::mem::take(&mut self.conductor.ground.answers);
        let count = finished.len();
        for (index, finished) in finished.drain(..) {
            self.with(index, |front_end, port| {
                port.seat.requests -= 1;
                front_end.request_completed(port, finished);
            });
        }
        // Requests that were refused meanwhile have come into a new list.
        finished.append(&mut self.conductor.ground.answers);
        self.conductor.ground.answers = finished;
        count
    }

    /// Tells all front ends with events that the turn is over. The answer is true if new work results.
    fn end_turn(&mut self) -> bool {
        let pieces_before = self.conductor.table.pieces_so_far;
        let mut touched = std::mem::take(&mut self.touched);
        for index in touched.drain(..) {
            let Some(Attached { seat, front_end, .. }) = self.front_ends.get_mut(index) else { continue };
            seat.is_touched = false;
            front_end.turn_ended(&mut Port { conductor: &mut self.conductor, seat });
            if front_end.is_finished() {
                self.leaving.push(index);
            }
        }
        self.touched = touched;
        self.conductor.table.pieces_so_far != pieces_before || !self.conductor.ground.answers.is_empty()
    }

    /// Checks once in a while whether front ends' peers are still there, and cuts off those without one.
    fn look(&mut self) {
        if self.conductor.ground.now < self.next_look {
            return;
        }
        self.next_look = self.conductor.ground.now + LOOK_EVERY;
        for index in 0..self.front_ends.places() as u32 {
            let attached = self.front_ends.get_mut(index);
            if attached.is_some_and(|Attached { front_end, .. }| !front_end.is_finished() && front_end.has_vanished()) {
                self.with(index, |front_end, port| front_end.cut(port));
            }
        }
    }

    /// Lets front ends try again that found no memory for a buffer.
    fn try_for_memory_again(&mut self) {
        if !self.conductor.memory.is_time(self.conductor.ground.now) {
            return;
        }
        // What others have and do not use.
        let mut left = TRIMMED_MAX;
        for index in 0..self.front_ends.places() as u32 {
            let Some(Attached { seat, .. }) = self.front_ends.get_mut(index).filter(|_| left > 0) else { continue };
            left -= seat.arena.trim(left);
        }
        for index in self.conductor.memory.take_waiting() {
            self.with(index, |_, port| port.seat.waits_for_memory = false);
        }
    }

    /// Other threads want something.
    fn woken(&mut self, is_still_watched: bool) {
        let (commands, is_over) = self.commands.take();
        if !is_still_watched {
            self.conductor.ring.watch(self.commands.as_fd().as_raw_fd(), Owner::Wake);
        }
        commands.into_iter().for_each(|command| command(self));
        if is_over && !self.is_ending {
            self.shut_down(GRACE_DEFAULT, None);
        }
    }

    /// When the engine must wake up even if nothing happens.
    fn wake_at(&self) -> Option<Time> {
        let at_once = self.goes_on.then_some(self.conductor.ground.now);
        let look = (self.front_ends.len() > 0).then_some(self.next_look);
        [at_once, self.conductor.wake_at(), self.next_cut, look].into_iter().flatten().min()
    }
}
