//! The end of a volume's cache while requests go on.
//!
//! **The rule.** What is dirty is copied to the store while requests go on. Then they wait until the last of it is there, the cache is
//! given up on its device, and they go on without it.
//!
//! **The complication.** The device may fail while the cache is given up, and then nobody knows whether the next start would find it. So it
//! stays before its volume and refuses writes: a cache that is found then has nothing older than the store, and one that is not found
//! had nothing that the store lacks. Everything can be read, and the cache can be detached once more.

use super::super::{Phase, VolumeCache};
use crate::cache::{CacheDevice, CacheNote, give_up};
use crate::engine::error::EngineError;
use crate::engine::handle::EngineHandle;
use plimsoll_cache::store::Superblock;
use std::io;
use std::sync::mpsc::channel;

/// Why a volume still has its cache, and what that means.
const STAYS: &str = "it cannot be given up, and the log says why: everything is on the slow device and can be read; writes are refused \
                     until it is detached";

impl EngineHandle {
    /// Takes the cache away from a volume: it is flushed while requests go on, then they wait until the last of it is clean and the
    /// cache is given up on its device.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or a device failed. The cache is there as before then; if it could not be given up,
    /// the store has everything, and the cache refuses writes until it is detached.
    pub fn detach_cache(&self, volume: &str) -> Result<(), EngineError> {
        self.detach_cache_by(volume, |device, superblock| give_up(device, superblock))
    }

    /// The same, where `give_up` gives a cache up.
    pub(super) fn detach_cache_by(
        &self,
        volume: &str,
        give_up: impl FnOnce(&mut CacheDevice, &Superblock) -> io::Result<()>,
    ) -> Result<(), EngineError> {
        self.flush_cache(volume)?;
        let (name, (answer, answered)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.core.empty_cache(&name, answer))??;
        answered.recv().unwrap_or(Err(EngineError::Stopped))?;
        let name = volume.to_owned();
        let parts =
            |cache: &mut VolumeCache| (cache.device.clone(), *cache.machine.superblock(), cache.settings.notes.clone());
        let found = self.call(move |engine| engine.core.cache_of(&name).map(|(_, cache)| parts(cache)))?;
        let (mut device, superblock, notes) = found?;
        let given_up = give_up(&mut device, &superblock);
        drop(device);
        if let (Ok(()), Some(notes)) = (&given_up, notes) {
            // Of a note that stays, the next start says too much and nothing wrong is served.
            let (config, _) = self.volume_config(volume)?;
            // A copy of it that is put back later is old.
            let forgotten = notes.give_up(&superblock.uuid).and_then(|()| notes.remove::<CacheNote>(&config));
            if let Err(error) = forgotten {
                tracing::error!(%error, volume, "the note that there is a cache cannot be removed");
            }
        }
        let name = volume.to_owned();
        match given_up {
            Ok(()) => self.call(move |engine| engine.core.drop_cache(&name))?,
            Err(error) => {
                tracing::error!(%error, volume, "the cache cannot be given up");
                self.call(move |engine| {
                    let (index, cache) = engine.core.cache_of(&name)?;
                    cache.phase = Phase::Working;
                    cache.machine.resume();
                    cache.machine.refuse_writes();
                    let error = cache.failed(STAYS);
                    engine.core.cache_has_work(index);
                    Err(error)
                })?
            }
        }
    }
}
