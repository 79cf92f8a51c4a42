//! Where a cache is between its beginning and its end, and the commands that wait for it.

use crate::error::EngineError;
use std::sync::mpsc::Sender;

/// How a command hears of its end.
pub(super) type CommandAnswer = Sender<Result<(), EngineError>>;

/// Whether requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not until the volume has done what it was asked before it had a cache.
    Beginning,
    /// They do.
    Working,
    /// No new ones until everything is clean; then the cache ends.
    Emptying,
    /// No new ones; the cache writes its snapshot.
    Closing,
    /// The cache has nothing left to do, and knows of nothing that the store lacks.
    Closed,
}

/// The phase of a cache, and how it may end.
pub(super) struct Lifecycle {
    pub phase: Phase,
    /// All that is dirty is being cleaned, and no session writes any more.
    pub is_last_cleaning: bool,
    /// What cannot be cleaned may be lost, when the cache is emptied.
    pub may_lose: bool,
    /// The cache is not emptied any more, and no command waits until it is clean: the engine is to end.
    pub stays: bool,
    /// The command that waits for the phase that is under way to be over.
    waiter: Option<CommandAnswer>,
}

impl Lifecycle {
    /// A cache begins; `begun` hears when requests come in.
    pub fn new(begun: CommandAnswer) -> Lifecycle {
        let phase = Phase::Beginning;
        Lifecycle { phase, is_last_cleaning: false, may_lose: false, stays: false, waiter: Some(begun) }
    }

    /// The cache is emptied from now on; `answer` hears when that is over.
    pub fn begin_emptying(&mut self, may_lose: bool, answer: CommandAnswer) {
        (self.phase, self.is_last_cleaning, self.may_lose) = (Phase::Emptying, false, may_lose);
        self.waiter = Some(answer);
    }

    /// Another phase begins, and the command that waited for the last one to be over hears how it ended.
    pub fn enter(&mut self, phase: Phase, answer: Result<(), EngineError>) {
        self.phase = phase;
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.send(answer);
        }
    }
}

/// A flush that waits until what is dirty now is on the store.
struct FlushWaiter {
    passes: u64,
    answer: CommandAnswer,
}

/// Flushes of a cache.
#[derive(Default)]
pub(super) struct Flushes {
    waiters: Vec<FlushWaiter>,
    /// How often everything is to have been looked at, to be cleaned.
    pub passes_wanted: u64,
}

impl Flushes {
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// A flush is over after so many passes over everything; `answer` hears of it.
    pub fn begin(&mut self, passes: u64, answer: Option<CommandAnswer>) {
        self.passes_wanted = self.passes_wanted.max(passes);
        self.waiters.extend(answer.map(|answer| FlushWaiter { passes, answer }));
    }

    /// No command waits for a flush any more: each hears that the engine is to end.
    pub fn forget(&mut self) {
        self.waiters.clear();
    }

    /// Answers the flushes that are over: after `passes`, or all if nothing is dirty. If cleaning has stopped before,
    /// `failure` makes the answer of the others.
    pub fn answer(&mut self, passes: u64, is_clean: bool, failure: Option<impl Fn() -> EngineError>) {
        self.waiters.retain(|waiter| {
            let answer = match &failure {
                _ if is_clean || passes >= waiter.passes => Ok(()),
                Some(failure) => Err(failure()),
                None => return true,
            };
            let _ = waiter.answer.send(answer);
            false
        });
    }
}
