//! Administration of a volume's cache while requests go on: attach, detach, empty, change, status.

mod detach;
mod report;

use super::super::error::EngineError;
use super::super::handle::EngineHandle;
use super::super::status::{CacheStatus, VolumeStatus};
use super::pools::BoundedPools;
use super::{FlushWaiter, Phase, VolumeCache};
use crate::backend::VolumeConfig;
use crate::cache::{CacheSettings, FoundCache};
use crate::path::request::Request;
use plimsoll_core::AccountId;
use std::borrow::Cow;
use std::sync::mpsc::{Sender, channel};

impl VolumeCache {
    fn failed(&self, what: impl Into<Cow<'static, str>>) -> EngineError {
        EngineError::CacheFailed { cache: self.settings.name.clone(), what: what.into() }
    }

    /// Answers the flushes that wait until everything in the cache of `volume` is clean.
    fn answer_flushes(&mut self, volume: &str) {
        let (passes, is_clean) = (self.machine.clean_passes(), self.machine.dirty_units() == 0);
        let has_stopped = !self.machine.is_cleaning_all();
        if !has_stopped && passes >= self.clean_until && self.phase == Phase::Working {
            self.machine.clean_no_more();
        }
        if self.flush_waiters.is_empty() {
            return;
        }
        let error = || self.failed(self.status().not_clean(volume));
        let errors: Vec<_> = (0..self.flush_waiters.len()).map(|_| error()).collect();
        let mut waiting = Vec::new();
        for (waiter, error) in std::mem::take(&mut self.flush_waiters).into_iter().zip(errors) {
            let answer = match () {
                () if is_clean || passes >= waiter.passes => Ok(()),
                () if has_stopped => Err(error),
                () => {
                    waiting.push(waiter);
                    continue;
                }
            };
            let _ = waiter.answer.send(answer);
        }
        self.flush_waiters = waiting;
    }
}

impl VolumeCache {
    /// Goes on to the next phase when this one is over; `name` is the volume's. `others_are_under_way` says whether the
    /// volume does what it was asked before it had a cache. Says whether there is more to do.
    pub(super) fn look_at_phase(&mut self, name: &str, others_are_under_way: impl FnOnce() -> bool) -> bool {
        self.log_what_is_not_copied(name);
        self.answer_flushes(name);
        let before = self.phase;
        match before {
            Phase::Beginning => {
                if !others_are_under_way() {
                    self.phase = Phase::Working;
                    self.answer_phase(Ok(()));
                }
            }
            Phase::Emptying if self.is_idle() && self.machine.dirty_units() == 0 => {
                self.phase = Phase::Closing;
                self.machine.close();
            }
            Phase::Emptying if self.is_idle() && !self.is_last_cleaning => {
                self.is_last_cleaning = true;
                self.machine.clean_all();
                return true;
            }
            Phase::Emptying if self.is_idle() && self.has_only_losses() => {
                self.phase = Phase::Closing;
                self.machine.close();
            }
            Phase::Emptying if self.is_idle() && !self.machine.is_cleaning_all() => {
                // What cannot be read stays, until it is said that it may be lost.
                self.stop_emptying(name);
            }
            Phase::Closing if self.machine.is_closed() && self.operations_under_way == 0 => {
                self.phase = Phase::Closed;
                self.answer_phase(Ok(()));
            }
            Phase::Emptying | Phase::Closing | Phase::Closed | Phase::Working => {}
        }
        self.phase != before
    }

    /// Begins to copy to the store what is dirty; `answer` hears of the end. Gives the number of passes after which it
    /// is over.
    pub(crate) fn begin_flush(&mut self, answer: Option<Sender<Result<(), EngineError>>>) -> Result<u64, EngineError> {
        if self.stays && answer.is_some() {
            return Err(EngineError::Stopped);
        }
        // A pass that is under way may have gone past what was written a moment ago.
        let more = if self.machine.is_cleaning_all() { 2 } else { 1 };
        // Where nothing is dirty, this is over at once.
        let passes = self.machine.clean_passes() + more;
        self.machine.clean_all();
        self.clean_until = self.clean_until.max(passes);
        self.flush_waiters.extend(answer.map(|answer| FlushWaiter { passes, answer }));
        Ok(passes)
    }

    /// Begins to empty it and to close it; later requests are held. With `may_lose` it is closed even if some of it
    /// stays dirty.
    pub(crate) fn begin_emptying(
        &mut self,
        may_lose: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        if self.phase != Phase::Working {
            return Err(self.failed("it is being attached or detached"));
        }
        if self.stays {
            return Err(EngineError::Stopped);
        }
        self.phase = Phase::Emptying;
        (self.is_last_cleaning, self.may_lose) = (false, may_lose);
        self.phase_waiter = Some(answer);
        self.machine.clean_all();
        Ok(())
    }

    /// Begins to empty a closed cache that is never found again. Its device need not know of the copies. `has_failed`
    /// says that it could not be given up there. A cache with a working device has been copied, and its device is not
    /// written to any more. Says whether there is anything to do.
    pub(crate) fn begin_emptying_given_up(
        &mut self,
        has_failed: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> bool {
        if has_failed {
            self.machine.refuse_writes();
        }
        if !self.machine.has_failed() {
            let _ = answer.send(Ok(()));
            return false;
        }
        (self.phase, self.is_last_cleaning, self.may_lose) = (Phase::Emptying, true, true);
        self.phase_waiter = Some(answer);
        self.machine.note_given_up();
        self.machine.clean_all();
        true
    }

    /// Refuses to be taken away, unless it was emptied and closed.
    pub(crate) fn refuse_if_in_use(&self) -> Result<(), EngineError> {
        if self.phase == Phase::Closed { Ok(()) } else { Err(self.failed("it is still in use")) }
    }

    /// Takes the requests that it holds, for the volume that had it.
    pub(crate) fn take_waiting(&mut self, volume: u32) -> impl Iterator<Item = Request> + use<'_> {
        let waiting = self.waiting.take_all();
        let taken = waiting.map(|waiting| self.requests.remove(waiting).expect("the waiter is there"));
        taken.map(move |request| request.uncached(volume))
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

    /// The cache stays attached: commands that empty or flush it hear that the engine ends. Says whether requests go on
    /// again.
    pub(crate) fn keep(&mut self) -> bool {
        self.stays = true;
        self.flush_waiters.clear();
        let was_emptying = self.phase == Phase::Emptying;
        if was_emptying {
            self.machine.clean_no_more();
            self.phase = Phase::Working;
            self.answer_phase(Err(EngineError::Stopped));
        }
        was_emptying
    }

    /// Whether it has nothing left to do.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Begins to close it, as it is, unless it closes already. Says whether it begins.
    pub(crate) fn begin_closing(&mut self) -> bool {
        if self.phase == Phase::Closing {
            return false;
        }
        // A command that empties the cache gives it up when it hears that it is closed: it is, but it may not
        // be empty.
        self.answer_phase(Err(EngineError::Stopped));
        self.phase = Phase::Closing;
        self.machine.clean_no_more();
        self.machine.close();
        true
    }

    /// Whether all that is left cannot be read, and may be lost.
    fn has_only_losses(&self) -> bool {
        self.may_lose && !self.machine.is_cleaning_all() && self.machine.is_rest_unreadable()
    }

    fn stop_emptying(&mut self, volume: &str) {
        self.phase = Phase::Working;
        self.answer_phase(Err(self.failed(self.status().not_clean(volume))));
    }

    fn answer_phase(&mut self, answer: Result<(), EngineError>) {
        if let Some(waiter) = self.phase_waiter.take() {
            let _ = waiter.send(answer);
        }
    }
}

impl EngineHandle {
    /// Puts a cache before a volume: requests that come from now on go through it. Waits for those that came before.
    ///
    /// # Errors
    /// There is no such volume, or it has a cache.
    pub fn attach_cache(&self, volume: &str, found: FoundCache) -> Result<(), EngineError> {
        let (volume, (begun, has_begun)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.conductor.attach_cache(&volume, found, begun))??;
        has_begun.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Copies blocks that are dirty now to the store and waits for it; requests go on. Blocks that are written again
    /// meanwhile do not count.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or a device failed.
    pub fn flush_cache(&self, volume: &str) -> Result<(), EngineError> {
        let (volume, (answer, answered)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.conductor.flush_cache(&volume, Some(answer)))??;
        answered.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Has every cache stay before its volume, for the engine is to end. A command may wait until a cache is flushed or
    /// detached, which takes as long as its volume is slow. It hears at once that the engine is to end; requests go on.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn keep_caches(&self) -> Result<(), EngineError> {
        self.call(|engine| engine.conductor.keep_caches())
    }

    /// Begins a flush and does not wait. It is done when [`CacheStatus::clean_passes`] reaches the answer, or nothing
    /// is dirty.
    ///
    /// # Errors
    /// There is no such volume, or it has no cache.
    pub fn begin_flush_cache(&self, volume: &str) -> Result<u64, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.flush_cache(&volume, None))?
    }

    /// Changes policy, scheme, watermarks or semantics. The name, the path and the size in `settings` have no effect.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or the policy cannot be given to it.
    pub fn change_cache(&self, volume: &str, settings: CacheSettings) -> Result<(), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.change_cache(&volume, settings))?
    }

    /// What the cache of a volume works by now.
    ///
    /// # Errors
    /// There is no such volume, or it has no cache.
    pub fn cache_settings(&self, volume: &str) -> Result<CacheSettings, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.cache_of(&volume).map(|(_, cache)| cache.settings.clone()))?
    }

    /// What a volume was made from, and its bytes.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn volume_config(&self, volume: &str) -> Result<(VolumeConfig, u64), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| {
            let index = engine.conductor.volume(&volume)?;
            let volume = &engine.conductor.volumes[index].volume;
            Ok((volume.config().clone(), volume.info().size_bytes))
        })?
    }

    /// The caches of the engine's volumes, each with its volume.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn caches(&self) -> Result<Vec<(String, CacheStatus)>, EngineError> {
        let cached = |volume: VolumeStatus| Some((volume.name, volume.cache?));
        Ok(self.status()?.volumes.into_iter().filter_map(cached).collect())
    }
}

#[cfg(test)]
mod tests;
