//! What administrators do with a volume's cache while requests go on: begin and end it, empty it, another policy; and how it is.

mod detach;
mod report;

use super::super::config::SessionConfig;
use super::super::core::Core;
use super::super::error::EngineError;
use super::super::handle::EngineHandle;
use super::super::request::Request;
use super::super::status::{CacheStatus, VolumeStatus};
use super::pools::BoundedPools;
use super::{FlushWaiter, Phase, VolumeCache};
use crate::backend::VolumeConfig;
use crate::cache::{CacheSettings, FoundCache};
use plimsoll_core::Allocation;
use std::borrow::Cow;
use std::sync::mpsc::{Sender, channel};

/// What the session of a cache's syncer is called.
const SESSION_NAME: &str = "cache";
/// The scheduler that keeps nothing back, for the end.
const SCHEDULER_OF_THE_END: &str = "noop";

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

impl Core {
    fn cache_of(&mut self, volume: &str) -> Result<(u32, &mut VolumeCache), EngineError> {
        let index = self.volume(volume)?;
        let missing = || EngineError::NotCached { volume: volume.to_owned() };
        Ok((index, self.volumes[index].cache.as_deref_mut().ok_or_else(missing)?))
    }

    /// Begins to use a cache, when the volume has done what it was asked before.
    fn attach_cache(
        &mut self,
        volume: &str,
        found: FoundCache,
        begun: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let index = self.volume(volume)?;
        if self.volumes[index].cache.is_some() {
            return Err(EngineError::Cached { volume: volume.to_owned() });
        }
        let pool = self.volumes[index].volume.config().pool.clone();
        let session = SessionConfig { name: SESSION_NAME.into(), allocation: Allocation::default() };
        let session = self.open_session(&pool, &session)?;
        let goes_by_time = found.emulation.is_some() || found.settings.is_timed();
        self.emulated_caches.extend(goes_by_time.then_some(index));
        let mut cache = VolumeCache::new(found, session, begun);
        cache.doubts = std::mem::take(&mut self.volumes[index].doubts);
        self.volumes[index].cache = Some(Box::new(cache));
        self.cache_has_work(index);
        Ok(())
    }

    /// Goes on to the next phase when this one is over.
    pub(super) fn look_at_phase(&mut self, volume: u32) {
        let seat = &mut self.volumes[volume];
        let (name, Some(cache)) = (&seat.volume.config().name, seat.cache.as_deref_mut()) else { return };
        cache.log_what_is_not_copied(name);
        cache.answer_flushes(name);
        let before = cache.phase;
        match before {
            Phase::Beginning => {
                let is_own = |(_, request): &(u32, &Request)| request.volume == volume && !request.asker.is_cache();
                if self.requests.iter().find(is_own).is_none() {
                    cache.phase = Phase::Working;
                    cache.answer_phase(Ok(()));
                }
            }
            Phase::Emptying if cache.is_idle() && cache.machine.dirty_units() == 0 => {
                cache.phase = Phase::Closing;
                cache.machine.close();
            }
            Phase::Emptying if cache.is_idle() && !cache.is_last_cleaning => {
                cache.is_last_cleaning = true;
                cache.machine.clean_all();
                self.cache_has_work(volume);
                return;
            }
            Phase::Emptying if cache.is_idle() && cache.has_only_losses() => {
                cache.phase = Phase::Closing;
                cache.machine.close();
            }
            Phase::Emptying if cache.is_idle() && !cache.machine.is_cleaning_all() => {
                // What cannot be read stays, until it is said that it may be lost.
                cache.stop_emptying(name);
            }
            Phase::Closing if cache.machine.is_closed() && cache.operations_under_way == 0 => {
                cache.phase = Phase::Closed;
                cache.answer_phase(Ok(()));
            }
            Phase::Emptying | Phase::Closing | Phase::Closed | Phase::Working => {}
        }
        if cache.phase != before {
            self.cache_has_work(volume);
        }
    }

    /// Begins to copy to the store what is dirty; `answer` hears of the end. It is over when
    /// [`CacheStatus::clean_passes`] has reached the number that this returns.
    fn flush_cache(
        &mut self,
        volume: &str,
        answer: Option<Sender<Result<(), EngineError>>>,
    ) -> Result<u64, EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        if cache.stays && answer.is_some() {
            return Err(EngineError::Stopped);
        }
        // A pass that is under way may have gone past what was written a moment ago.
        let more = if cache.machine.is_cleaning_all() { 2 } else { 1 };
        // Where nothing is dirty, this is over at once.
        let passes = cache.machine.clean_passes() + more;
        cache.machine.clean_all();
        cache.clean_until = cache.clean_until.max(passes);
        cache.flush_waiters.extend(answer.map(|answer| FlushWaiter { passes, answer }));
        self.cache_has_work(index);
        Ok(passes)
    }

    /// Empties a cache and closes it; later requests are held. With `may_lose` it is closed even if some of it stays
    /// dirty.
    fn empty_cache(
        &mut self,
        volume: &str,
        may_lose: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        if cache.phase != Phase::Working {
            return Err(cache.failed("it is beginning or ending"));
        }
        if cache.stays {
            return Err(EngineError::Stopped);
        }
        cache.phase = Phase::Emptying;
        (cache.is_last_cleaning, cache.may_lose) = (false, may_lose);
        cache.phase_waiter = Some(answer);
        cache.machine.clean_all();
        self.cache_has_work(index);
        Ok(())
    }

    /// The same once more of one that is closed and never found again: its device need not know of what is copied.
    /// `has_failed` says that it could not be given up there. A cache with a working device has been copied, and its
    /// device is not written to any more.
    fn empty_given_up_cache(
        &mut self,
        volume: &str,
        has_failed: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        if has_failed {
            cache.machine.refuse_writes();
        }
        if !cache.machine.has_failed() {
            let _ = answer.send(Ok(()));
            return Ok(());
        }
        (cache.phase, cache.is_last_cleaning, cache.may_lose) = (Phase::Emptying, true, true);
        cache.phase_waiter = Some(answer);
        cache.machine.note_given_up();
        cache.machine.clean_all();
        self.cache_has_work(index);
        Ok(())
    }

    /// Takes a cache that was emptied away, and lets the held requests go to the volume.
    fn drop_cache(&mut self, volume: &str) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        if cache.phase != Phase::Closed {
            return Err(cache.failed("it is still in use"));
        }
        let Some(mut cache) = self.volumes[index].cache.take() else { return Ok(()) };
        self.emulated_caches.retain(|&volume| volume != index);
        for waiting in cache.waiting.take_all() {
            let request = cache.requests.remove(waiting).expect("the waiter is there");
            let request = self.requests.insert(request.uncached(index));
            self.begin_change(request);
            self.add_pieces(request);
        }
        self.close_session(cache.session)
    }

    /// Another policy, scheme, watermarks or semantics.
    fn change_cache(&mut self, volume: &str, settings: CacheSettings) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        let settings = CacheSettings { seed: cache.settings.seed, ..settings };
        let config = settings.config(cache.machine.superblock().layout.units);
        let wrong = |error: plimsoll_cache::ConfigError| EngineError::CachePolicy { message: error.to_string() };
        cache.machine.set_policy(&config, settings.policy).map_err(wrong)?;
        cache.machine.set_semantics(settings.semantics);
        let path = std::mem::take(&mut cache.settings.path);
        cache.pools = BoundedPools::new(&settings);
        cache.settings = CacheSettings { path, ..settings };
        self.cache_has_work(index);
        Ok(())
    }

    /// Has every cache stay before its volume: a command that empties or flushes one hears that the engine is to end.
    fn keep_caches(&mut self) {
        for volume in 0..self.volumes.places() as u32 {
            let Some(cache) = self.volumes.get_mut(volume).and_then(|seat| seat.cache.as_deref_mut()) else { continue };
            cache.stays = true;
            cache.flush_waiters.clear();
            if cache.phase == Phase::Emptying {
                cache.machine.clean_no_more();
                cache.phase = Phase::Working;
                cache.answer_phase(Err(EngineError::Stopped));
                self.cache_has_work(volume);
            }
        }
    }

    /// Closes every cache, when no front end is left to ask for anything. Says whether that is done.
    pub(in super::super) fn caches_are_closed(&mut self) -> bool {
        let mut is_closed = true;
        for volume in 0..self.volumes.places() as u32 {
            let Some(cache) = self.volumes.get_mut(volume).and_then(|seat| seat.cache.as_deref_mut()) else { continue };
            if cache.phase == Phase::Closed {
                continue;
            }
            is_closed = false;
            if cache.phase != Phase::Closing {
                // A command that empties the cache gives it up when it hears that it is closed: it is, but it may not
                // be empty.
                cache.answer_phase(Err(EngineError::Stopped));
                cache.phase = Phase::Closing;
                cache.machine.clean_no_more();
                cache.machine.close();
                self.cache_has_work(volume);
                if let Err(error) = self.switch_scheduler(SCHEDULER_OF_THE_END) {
                    tracing::error!(%error, "requests that a limit holds back delay the end");
                }
            }
        }
        is_closed
    }
}

impl VolumeCache {
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
        self.call(move |engine| engine.core.attach_cache(&volume, found, begun))??;
        has_begun.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Copies to the store what is dirty now and is not written again meanwhile, and waits for it; requests go on.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or a device failed.
    pub fn flush_cache(&self, volume: &str) -> Result<(), EngineError> {
        let (volume, (answer, answered)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.core.flush_cache(&volume, Some(answer)))??;
        answered.recv().unwrap_or(Err(EngineError::Stopped))
    }

    /// Has every cache stay before its volume, for the engine is to end. A command may wait until a cache is flushed or
    /// detached, which takes as long as its volume is slow. It hears at once that the engine is to end; requests go on.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn keep_caches(&self) -> Result<(), EngineError> {
        self.call(|engine| engine.core.keep_caches())
    }

    /// Begins to do so, and does not wait: it is done when [`CacheStatus::clean_passes`] is as much as what is answered, or nothing is
    /// dirty.
    ///
    /// # Errors
    /// There is no such volume, or it has no cache.
    pub fn begin_flush_cache(&self, volume: &str) -> Result<u64, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.core.flush_cache(&volume, None))?
    }

    /// Goes on with another policy, scheme, watermarks or semantics; the name, the path and the size are of no account.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or the policy cannot be given to it.
    pub fn change_cache(&self, volume: &str, settings: CacheSettings) -> Result<(), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.core.change_cache(&volume, settings))?
    }

    /// What the cache of a volume works by now.
    ///
    /// # Errors
    /// There is no such volume, or it has no cache.
    pub fn cache_settings(&self, volume: &str) -> Result<CacheSettings, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.core.cache_of(&volume).map(|(_, cache)| cache.settings.clone()))?
    }

    /// What a volume was made from, and its bytes.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn volume_config(&self, volume: &str) -> Result<(VolumeConfig, u64), EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| {
            let index = engine.core.volume(&volume)?;
            let volume = &engine.core.volumes[index].volume;
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
