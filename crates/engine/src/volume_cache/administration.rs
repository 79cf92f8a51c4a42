//! What administrators do with a volume's cache while requests go on: begin and end it, empty it, another policy; and
//! how it is.

mod report;

use super::VolumeCache;
use super::lifecycle::{CommandAnswer, Phase};
use super::pools::BoundedPools;
use crate::cache::{CacheDevice, CacheSettings};
use crate::error::EngineError;
use crate::notes::Notes;
use crate::path::request::Request;
use plimsoll_cache::store::{BLOCK_BYTES, Superblock};
use plimsoll_core::AccountId;
use std::borrow::Cow;

/// What is needed of a cache that was emptied to give it up.
pub(crate) struct Emptied {
    pub(crate) device: CacheDevice,
    pub(crate) superblock: Superblock,
    pub(crate) notes: Option<Notes>,
    /// The store has all that the cache had.
    pub(crate) is_copied: bool,
}

impl VolumeCache {
    fn failed(&self, what: impl Into<Cow<'static, str>>) -> EngineError {
        EngineError::CacheFailed { cache: self.settings.name.clone(), what: what.into() }
    }

    /// Answers the flushes that wait until everything in the cache of `volume` is clean.
    fn answer_flushes(&mut self, volume: &str) {
        let (passes, is_clean) = (self.machine.clean_passes(), self.machine.dirty_units() == 0);
        let has_stopped = !self.machine.is_cleaning_all();
        if !has_stopped && passes >= self.flushes.passes_wanted && self.lifecycle.phase == Phase::Working {
            self.machine.clean_no_more();
        }
        if self.flushes.is_empty() {
            return;
        }
        let failure = has_stopped.then(|| {
            let (cache, what) = (self.settings.name.clone(), self.status().not_clean(volume));
            move || EngineError::CacheFailed { cache: cache.clone(), what: what.clone().into() }
        });
        self.flushes.answer(passes, is_clean, failure);
    }

    /// Goes on to the next phase when this one is over; `name` is the volume's. `others_are_under_way` says whether the
    /// volume does what it was asked before it had a cache. Says whether there is more to do.
    pub(super) fn look_at_phase(&mut self, name: &str, others_are_under_way: impl FnOnce() -> bool) -> bool {
        self.log_what_is_not_copied(name);
        self.answer_flushes(name);
        let before = self.lifecycle.phase;
        match before {
            Phase::Beginning => {
                if !others_are_under_way() {
                    self.lifecycle.enter(Phase::Working, Ok(()));
                }
            }
            Phase::Emptying if self.is_idle() && self.machine.dirty_units() == 0 => {
                self.lifecycle.phase = Phase::Closing;
                self.machine.close();
            }
            Phase::Emptying if self.is_idle() && !self.lifecycle.is_last_cleaning => {
                self.lifecycle.is_last_cleaning = true;
                self.machine.clean_all();
                return true;
            }
            Phase::Emptying if self.is_idle() && self.has_only_losses() => {
                self.lifecycle.phase = Phase::Closing;
                self.machine.close();
            }
            Phase::Emptying if self.is_idle() && !self.machine.is_cleaning_all() => {
                // What cannot be read stays, until it is said that it may be lost.
                self.stop_emptying(name);
            }
            Phase::Closing if self.machine.is_closed() && self.operations.is_empty() => {
                self.lifecycle.enter(Phase::Closed, Ok(()));
            }
            Phase::Emptying | Phase::Closing | Phase::Closed | Phase::Working => {}
        }
        self.lifecycle.phase != before
    }

    /// Begins to copy to the store what is dirty; `answer` hears of the end. Gives the number of passes after which it
    /// is over.
    pub(crate) fn begin_flush(&mut self, answer: Option<CommandAnswer>) -> Result<u64, EngineError> {
        if self.lifecycle.stays && answer.is_some() {
            return Err(EngineError::Stopped);
        }
        // A pass that is under way may have gone past what was written a moment ago.
        let more = if self.machine.is_cleaning_all() { 2 } else { 1 };
        // Where nothing is dirty, this is over at once.
        let passes = self.machine.clean_passes() + more;
        self.machine.clean_all();
        self.flushes.begin(passes, answer);
        Ok(passes)
    }

    /// Begins to empty it and to close it; later requests are held. With `may_lose` it is closed even if some of it
    /// stays dirty.
    pub(crate) fn begin_emptying(&mut self, may_lose: bool, answer: CommandAnswer) -> Result<(), EngineError> {
        if self.lifecycle.phase != Phase::Working {
            return Err(self.failed("it is beginning or ending"));
        }
        if self.lifecycle.stays {
            return Err(EngineError::Stopped);
        }
        self.lifecycle.begin_emptying(may_lose, answer);
        self.machine.clean_all();
        Ok(())
    }

    /// The same once more of one that is closed and never found again: its device need not know of what is copied.
    /// `has_failed` says that it could not be given up there. A cache with a working device has been copied, and its
    /// device is not written to any more. Says whether there is anything to do.
    pub(crate) fn begin_emptying_given_up(&mut self, has_failed: bool, answer: CommandAnswer) -> bool {
        if has_failed {
            self.machine.refuse_writes();
        }
        if !self.machine.has_failed() {
            let _ = answer.send(Ok(()));
            return false;
        }
        self.lifecycle.begin_emptying(true, answer);
        self.lifecycle.is_last_cleaning = true;
        self.machine.note_given_up();
        self.machine.clean_all();
        true
    }

    /// Refuses to be taken away, unless it was emptied and closed.
    pub(crate) fn refuse_if_in_use(&self) -> Result<(), EngineError> {
        if self.lifecycle.phase == Phase::Closed { Ok(()) } else { Err(self.failed("it is still in use")) }
    }

    /// Takes the requests that it holds, for the volume that had it.
    pub(crate) fn take_waiting(&mut self, volume: u32) -> impl Iterator<Item = Request> + use<'_> {
        let waiting = self.waiting.take_all();
        let taken = waiting.map(|waiting| self.requests.remove(waiting).expect("the waiter is there"));
        taken.map(move |request| request.uncached(volume))
    }

    /// What the cache works by now.
    pub(crate) fn settings(&self) -> &CacheSettings {
        &self.settings
    }

    /// What is needed to give the cache up, once it is emptied.
    pub(crate) fn emptied(&self) -> Emptied {
        Emptied {
            device: self.fast.device.clone(),
            superblock: *self.machine.superblock(),
            notes: self.settings.notes.clone(),
            is_copied: self.machine.dirty_units() == 0 && !self.machine.has_failed(),
        }
    }

    /// Bytes that the store lacks, a multiple of 4096.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        u64::from(self.machine.dirty_units()) * BLOCK_BYTES as u64
    }

    /// A cache that was emptied works on after all. Gives the error with `what` as the reason.
    pub(crate) fn work_on(&mut self, refuses_writes: bool, what: &'static str) -> EngineError {
        self.lifecycle.phase = Phase::Working;
        self.machine.resume();
        if refuses_writes {
            self.machine.refuse_writes();
        }
        self.failed(what)
    }

    /// The session of its syncer's requests.
    pub(crate) fn session(&self) -> AccountId {
        self.session
    }

    /// Another policy, scheme, watermarks or semantics.
    pub(crate) fn change(&mut self, settings: CacheSettings) -> Result<(), EngineError> {
        let settings = CacheSettings { seed: self.settings.seed, ..settings };
        let config = settings.config(self.machine.superblock().layout.units);
        let wrong = |error: plimsoll_cache::ConfigError| EngineError::CachePolicy { message: error.to_string() };
        self.machine.set_policy(&config, settings.policy).map_err(wrong)?;
        self.machine.set_semantics(settings.semantics);
        let path = std::mem::take(&mut self.settings.path);
        self.pools = BoundedPools::new(&settings);
        self.settings = CacheSettings { path, ..settings };
        Ok(())
    }

    /// It stays before its volume: a command that empties or flushes it hears that the engine is to end. Says whether
    /// requests go on again.
    pub(crate) fn keep(&mut self) -> bool {
        self.lifecycle.stays = true;
        self.flushes.forget();
        let was_emptying = self.lifecycle.phase == Phase::Emptying;
        if was_emptying {
            self.machine.clean_no_more();
            self.lifecycle.enter(Phase::Working, Err(EngineError::Stopped));
        }
        was_emptying
    }

    /// Whether it has nothing left to do.
    pub(crate) fn is_closed(&self) -> bool {
        self.lifecycle.phase == Phase::Closed
    }

    /// Begins to close it, as it is, unless it closes already. Says whether it begins.
    pub(crate) fn begin_closing(&mut self) -> bool {
        if self.lifecycle.phase == Phase::Closing {
            return false;
        }
        // A command that empties the cache gives it up when it hears that it is closed: it is, but it may not
        // be empty.
        self.lifecycle.enter(Phase::Closing, Err(EngineError::Stopped));
        self.machine.clean_no_more();
        self.machine.close();
        true
    }

    /// Whether all that is left cannot be read, and may be lost.
    fn has_only_losses(&self) -> bool {
        self.lifecycle.may_lose && !self.machine.is_cleaning_all() && self.machine.is_rest_unreadable()
    }

    fn stop_emptying(&mut self, volume: &str) {
        let error = self.failed(self.status().not_clean(volume));
        self.lifecycle.enter(Phase::Working, Err(error));
    }
}
