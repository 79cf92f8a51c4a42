//! What administrators do with a volume's cache while requests go on: they begin and flush it, change its policy, and
//! ask how it is.

use super::EngineHandle;
use crate::backend::VolumeConfig;
use crate::cache::{CacheSettings, FoundCache};
use crate::error::EngineError;
use crate::status::{CacheStatus, VolumeStatus};
use std::sync::mpsc::channel;

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

    /// Copies to the store what is dirty now and is not written again meanwhile, and waits for it; requests go on.
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

    /// Begins to do so, and does not wait: it is done when [`CacheStatus::clean_passes`] is as much as what is
    /// answered, or nothing is dirty.
    ///
    /// # Errors
    /// There is no such volume, or it has no cache.
    pub fn begin_flush_cache(&self, volume: &str) -> Result<u64, EngineError> {
        let volume = volume.to_owned();
        self.call(move |engine| engine.conductor.flush_cache(&volume, None))?
    }

    /// Goes on with another policy, scheme, watermarks or semantics; the name, the path and the size are of no account.
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
        self.call(move |engine| engine.conductor.cache_of(&volume).map(|(_, cache)| cache.settings().clone()))?
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
