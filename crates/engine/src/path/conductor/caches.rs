//! What administrators do with the caches before volumes while requests go on.

use super::Conductor;
use crate::cache::{CacheSettings, FoundCache};
use crate::config::SessionConfig;
use crate::error::EngineError;
use crate::volume_cache::VolumeCache;
use plimsoll_core::Allocation;
use std::sync::mpsc::Sender;

/// What the session of a cache's syncer is called.
const SESSION_NAME: &str = "cache";
/// The scheduler that keeps nothing back, for the end.
const SCHEDULER_OF_THE_END: &str = "noop";

impl Conductor {
    pub(crate) fn cache_of(&mut self, volume: &str) -> Result<(u32, &mut VolumeCache), EngineError> {
        let index = self.volume(volume)?;
        let missing = || EngineError::NotCached { volume: volume.to_owned() };
        Ok((index, self.caches.get_mut(index).ok_or_else(missing)?))
    }

    /// Begins to use a cache, when the volume has done what it was asked before.
    pub(crate) fn attach_cache(
        &mut self,
        volume: &str,
        found: FoundCache,
        begun: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let index = self.volume(volume)?;
        if self.caches.has(index) {
            return Err(EngineError::Cached { volume: volume.to_owned() });
        }
        let pool = self.volumes[index].volume.config().pool.clone();
        let session = SessionConfig { name: SESSION_NAME.into(), allocation: Allocation::default() };
        let session = self.open_session(&pool, &session)?;
        let goes_by_time = found.emulation.is_some() || found.settings.is_timed();
        let doubts = std::mem::take(&mut self.volumes[index].doubts);
        let cache = VolumeCache::new(found, session, doubts, begun);
        self.caches.put(index, Box::new(cache), goes_by_time);
        Ok(())
    }

    /// Begins to copy to the store what is dirty; `answer` hears of the end. It is over when
    /// [`CacheStatus::clean_passes`](crate::CacheStatus::clean_passes) has reached the number that this returns.
    pub(crate) fn flush_cache(
        &mut self,
        volume: &str,
        answer: Option<Sender<Result<(), EngineError>>>,
    ) -> Result<u64, EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        let passes = cache.begin_flush(answer)?;
        self.caches.moved(index);
        Ok(passes)
    }

    /// Empties a cache and closes it; later requests are held. With `may_lose` it is closed even if some of it stays
    /// dirty.
    pub(crate) fn empty_cache(
        &mut self,
        volume: &str,
        may_lose: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        cache.begin_emptying(may_lose, answer)?;
        self.caches.moved(index);
        Ok(())
    }

    /// The same once more of one that is closed and never found again.
    pub(crate) fn empty_given_up_cache(
        &mut self,
        volume: &str,
        has_failed: bool,
        answer: Sender<Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        if cache.begin_emptying_given_up(has_failed, answer) {
            self.caches.moved(index);
        }
        Ok(())
    }

    /// Removes an emptied cache, and lets the held requests go to the volume.
    pub(crate) fn drop_cache(&mut self, volume: &str) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        cache.refuse_if_in_use()?;
        let Some(mut cache) = self.caches.take(index) else { return Ok(()) };
        for request in cache.take_waiting(index) {
            self.ahead.begin_change(&request);
            let request = self.table.requests.insert(request);
            self.add(request);
        }
        self.close_session(cache.session())
    }

    /// Another policy, scheme, watermarks or semantics.
    pub(crate) fn change_cache(&mut self, volume: &str, settings: CacheSettings) -> Result<(), EngineError> {
        let (index, cache) = self.cache_of(volume)?;
        cache.change(settings)?;
        self.caches.moved(index);
        Ok(())
    }

    /// Keeps every cache attached: commands that empty or flush one hear that the engine ends.
    pub(crate) fn keep_caches(&mut self) {
        for volume in self.caches.volumes() {
            if self.caches.get_mut(volume).is_some_and(VolumeCache::keep) {
                self.caches.moved(volume);
            }
        }
    }

    /// Closes every cache, when no front end is left to ask for anything. Says whether that is done.
    pub(crate) fn caches_are_closed(&mut self) -> bool {
        let mut is_closed = true;
        for volume in self.caches.volumes() {
            let Some(cache) = self.caches.get_mut(volume).filter(|cache| !cache.is_closed()) else { continue };
            is_closed = false;
            if !cache.begin_closing() {
                continue;
            }
            self.caches.moved(volume);
            if let Err(error) = self.switch_scheduler(SCHEDULER_OF_THE_END) {
                tracing::error!(%error, "the scheduler cannot be replaced for the end: the daemon ends later, after \
                                         the requests that a limit holds back");
            }
        }
        is_closed
    }
}
