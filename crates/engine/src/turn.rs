//! The engine's thread: each turn handles events, lets the scheduler decide, and waits.

mod attachments;

use super::config::{AttachmentId, EngineConfig, GRACE_DEFAULT, SessionConfig};
use super::error::EngineError;
use super::front_end::FrontEnd;
use super::ring::{Completed, Owner};
use crate::path::conductor::{Conductor, REQUESTS_EXPECTED};
use attachments::Attachments;
use plimsoll_core::{Span, Time};
use plimsoll_linux::mailbox::Receiver;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::Sender;

/// What another thread wants the engine's thread to do between two turns.
pub(super) type Command = Box<dyn FnOnce(&mut Engine) + Send>;

/// The scheduler that lets everything go at once, for the end.
const SCHEDULER_OF_THE_END: &str = "noop";
/// How late the kernel may make a timer so that it can join others; 1 ns, the least, because emulated devices are
/// exact.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;
/// Requests that are handed out in a turn before others are heard. A client that verifies a volume in memory asks for
/// the next 64 KiB as soon as it has some. To compare 64 times as much takes about a millisecond.
const HANDED_OUT_MAX: usize = 64;

/// A device with all that belongs to it. See the [module's text](super).
pub(super) struct Engine {
    pub(super) conductor: Conductor,
    attachments: Attachments,
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
        Ok(Engine {
            attachments: Attachments::new(conductor.ground.now),
            conductor,
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
        let Engine { conductor, attachments, ended, .. } = self;
        let mut result = match outcome {
            Ok(result) => result,
            Err(panic) => {
                // Before anything else that may panic.
                std::mem::forget((conductor, attachments));
                tracing::error!("the engine's thread has panicked");
                resume_unwind(panic);
            }
        };
        let why = match &result {
            Err(error @ EngineError::Ring { .. }) => {
                std::mem::forget((conductor, attachments));
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
            if self.is_ending && self.attachments.is_empty() && self.caches_are_closed() {
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
                Owner::FrontEnd(index, tag) => self.attachments.with(&mut self.conductor, index, |front_end, port| {
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
        self.attachments.look(&mut self.conductor);
        self.attachments.try_for_memory_again(&mut self.conductor);
        self.go_round();
        self.conductor.tell_of_reads();
        self.attachments.dismiss_finished(&mut self.conductor);
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
            let count = self.attachments.hand_out(&mut self.conductor);
            if count == 0 && !self.attachments.end_turn(&mut self.conductor) && !self.conductor.caches.have_work() {
                return;
            }
            // A round that only a cache has got something of is one, too.
            handed_out += count.max(1);
            if handed_out >= HANDED_OUT_MAX {
                // A front end that has heard something must be able to answer it, and to receive, before any goes on.
                self.attachments.end_turn(&mut self.conductor);
            }
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
        [at_once, self.conductor.wake_at(), self.attachments.wake_at()].into_iter().flatten().min()
    }

    /// Seats a front end, with a session in `pool` or in the volume's own, and lets it start.
    pub(super) fn attach(
        &mut self,
        volume: &str,
        pool: Option<String>,
        session: SessionConfig,
        front_end: Box<dyn FrontEnd>,
    ) -> Result<AttachmentId, EngineError> {
        if self.is_ending {
            return Err(EngineError::Stopped);
        }
        self.attachments.attach(&mut self.conductor, volume, pool, session, front_end)
    }

    /// Asks a front end to finish within `grace`.
    pub(super) fn stop_front_end(&mut self, index: u32, grace: Span) {
        self.attachments.stop_front_end(&mut self.conductor, index, grace);
    }

    /// Asks all front ends that are attached to a volume to finish within `grace`.
    pub(super) fn stop_volume(&mut self, name: &str, grace: Span) -> Result<(), EngineError> {
        self.attachments.stop_volume(&mut self.conductor, name, grace)
    }

    /// Asks all front ends with a session in the pool at `path` to finish within `grace`.
    pub(super) fn stop_pool(&mut self, path: &str, grace: Span) -> Result<(), EngineError> {
        self.attachments.stop_pool(&mut self.conductor, path, grace)
    }

    /// Ends the engine, within `grace` if nothing hangs, and answers when it is over.
    pub(super) fn shut_down(&mut self, grace: Span, answer: Option<Sender<Result<(), EngineError>>>) {
        self.ended.extend(answer);
        self.is_ending = true;
        self.attachments.stop_all(&mut self.conductor, grace, |_| true);
    }

    /// Cuts off the front ends with a grace period that is over.
    fn cut_overdue(&mut self) {
        if self.attachments.cut_overdue(&mut self.conductor)
            && self.is_ending
            && let Err(error) = self.conductor.switch_scheduler(SCHEDULER_OF_THE_END)
        {
            tracing::error!(%error, "requests that a limit holds back delay the end");
        }
    }
}
