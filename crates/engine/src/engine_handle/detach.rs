//! The end of a volume's cache while requests go on.
//!
//! **The rule.** What is dirty is copied to the store while requests go on. Then they wait until the last of it is
//! there, the cache is given up on its device, and they go on without it.
//!
//! **The complication.** The device may fail while the cache is given up. Then it is unknown whether the next start
//! would find the cache. So it stays before its volume and refuses writes. A cache that is found then has nothing older
//! than the store, and one that is not found had nothing that the store lacks. Everything can be read, and the cache
//! can be detached once more.
//!
//! **With losses.** A cache with an unreadable unit, or on a device that cannot be written, could never be detached
//! otherwise. So an administrator may say that what cannot be read is lost. Everything else is copied first. Blocks
//! that the journal may not know of are copied once the note says that the cache is given up. Until then a start could
//! find their older version.
//!
//! **A daemon that is killed meanwhile.** Before the device gives the cache up, the note says that everything is on the
//! slow device. No request goes on before the note is gone, or the cache refuses writes. So a start that finds the note
//! and no cache needs no administrator's word.

use super::EngineHandle;
use crate::cache::{CacheDevice, CacheNote, CacheSettings, Leaving, give_up};
use crate::error::EngineError;
use crate::notes::{DamagedNote, Notes};
use crate::volume_cache::Emptied;
use plimsoll_cache::store::Superblock;
use std::io;
use std::sync::mpsc::channel;

/// Why a volume still has its cache, and what that means.
const STAYS: &str = "it cannot be given up, and the log says why: everything is on the slow device and can be read; \
                     writes are refused until the cache is detached";

/// How a volume's cache ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With everything on the slow device.
    Leaves(Leaving),
    /// With what could be read of it on the slow device.
    MayLose,
}

/// The same of a cache on which nothing was touched.
const STAYS_AS_IT_IS: &str = "it stays as it is: its end cannot be noted, and the log says why";

impl EngineHandle {
    /// Takes the cache away from a volume. The cache is flushed while requests go on. Then they wait until the last of
    /// it is clean and the cache is given up on its device.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or a device failed. The cache is there as before then. If it could not
    /// be given up, the store has everything, and the cache refuses writes until it is detached.
    pub fn detach_cache(&self, volume: &str) -> Result<(), EngineError> {
        self.detach_cache_by(volume, End::Leaves(Leaving::Detach), |device, superblock| give_up(device, superblock))
            .map(drop)
    }

    /// The same in order to put a cache of another size there. Until that is made, the note says that it is to be.
    ///
    /// # Errors
    /// As for [`detach_cache`](Self::detach_cache).
    pub fn detach_cache_to_resize(&self, volume: &str, size_bytes: u64) -> Result<(), EngineError> {
        let end = End::Leaves(Leaving::Resize { size_bytes });
        self.detach_cache_by(volume, end, |device, superblock| give_up(device, superblock)).map(drop)
    }

    /// The same with losses: dirty data that cannot be read is lost. Its device need not accept the mark that the cache
    /// is given up. Answers how many bytes are lost, a multiple of 4096.
    ///
    /// # Errors
    /// There is no such volume, it has no cache, or the slow device failed: then the cache is there as before.
    pub fn detach_cache_with_losses(&self, volume: &str) -> Result<u64, EngineError> {
        self.detach_cache_by(volume, End::MayLose, |device, superblock| give_up(device, superblock))
    }

    /// The same, where `give_up` gives a cache up.
    pub(super) fn detach_cache_by(
        &self,
        volume: &str,
        end: End,
        give_up: impl FnOnce(&mut CacheDevice, &Superblock) -> io::Result<()>,
    ) -> Result<u64, EngineError> {
        let may_lose = end == End::MayLose;
        match self.flush_cache(volume) {
            Err(EngineError::CacheFailed { .. }) if may_lose => {}
            flushed => flushed?,
        }
        let (name, (answer, answered)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.conductor.empty_cache(&name, may_lose, answer))??;
        answered.recv().unwrap_or(Err(EngineError::Stopped))?;
        let name = volume.to_owned();
        let emptied = self.call(move |engine| engine.conductor.cache_of(&name).map(|(_, cache)| cache.emptied()))?;
        let Emptied { mut device, superblock, notes, is_copied } = emptied?;
        let leaving = match end {
            End::Leaves(leaving) => Some(leaving),
            End::MayLose => is_copied.then_some(Leaving::Detach),
        };
        if let (Some(leaving), Some(notes)) = (leaving, &notes) {
            self.note_leaving(volume, notes, leaving, &superblock)?;
        }
        let given_up = give_up(&mut device, &superblock);
        drop(device);
        // Of a note that stays where the cache was given up, the next start says too much and nothing wrong is served.
        let is_forgotten = (given_up.is_ok() || may_lose) && self.forget_cache(volume, notes, &superblock, end)?;
        let name = volume.to_owned();
        match given_up {
            Ok(()) if !may_lose => self.call(move |engine| engine.conductor.drop_cache(&name))?.map(|()| 0),
            Err(error) if !may_lose || !is_forgotten => {
                tracing::error!(%error, volume, "the cache cannot be given up");
                self.keep_cache(volume, true, STAYS)
            }
            given_up => {
                let has_failed = given_up.is_err();
                if let Err(error) = given_up {
                    tracing::error!(%error, volume, "cannot mark the cache on its device as given up; do not attach \
                                                     that cache to the volume again");
                }
                self.drop_cache_with_losses(volume, has_failed)
            }
        }
    }

    /// Notes that everything is on the slow device. Where that cannot be noted, the cache stays. It takes no writes if
    /// it cannot be told either that the note holds no more: a start would believe it.
    fn note_leaving(
        &self,
        volume: &str,
        notes: &Notes,
        leaving: Leaving,
        superblock: &Superblock,
    ) -> Result<(), EngineError> {
        let (config, _) = self.volume_config(volume)?;
        let CacheSettings { name, path, .. } = self.cache_settings(volume)?;
        let mut is_as_before = true;
        let noted = match notes.get::<CacheNote>(&config) {
            // This engine has the cache, so nothing need be read to know which it is.
            Err(error) if DamagedNote::behind(&error).is_some() => {
                Ok(Some(CacheNote::new(volume, &name, &path, superblock)))
            }
            noted => noted,
        };
        let noted = noted.and_then(|note| {
            let Some(note) = note else { return Ok(()) };
            let mut leaves = note.clone();
            leaves.leaving = Some(leaving);
            let put = notes.put(&config, &leaves);
            is_as_before = put.is_ok() || notes.put(&config, &note).is_ok();
            put
        });
        noted.or_else(|error| {
            tracing::error!(%error, volume, "cannot note the end of the cache, so it stays");
            self.keep_cache(volume, !is_as_before, if is_as_before { STAYS_AS_IT_IS } else { STAYS })
        })
    }

    /// An emptied cache stays attached after all. The answer is an error with `what` as the reason.
    fn keep_cache<T: Send + 'static>(
        &self,
        volume: &str,
        refuses_writes: bool,
        what: &'static str,
    ) -> Result<T, EngineError> {
        let name = volume.to_owned();
        self.call(move |engine| {
            let (index, cache) = engine.conductor.cache_of(&name)?;
            let error = cache.work_on(refuses_writes, what);
            engine.conductor.caches.moved(index);
            Err(error)
        })?
    }

    /// Notes that a volume has no cache any more, and that this cache is old if it comes back. Says whether that was
    /// done, or need not be.
    fn forget_cache(
        &self,
        volume: &str,
        notes: Option<Notes>,
        superblock: &Superblock,
        end: End,
    ) -> Result<bool, EngineError> {
        let Some(notes) = notes else { return Ok(true) };
        let (config, _) = self.volume_config(volume)?;
        let forgotten = notes.give_up(&superblock.uuid).and_then(|()| match end {
            // The note goes when the next cache is made.
            End::Leaves(Leaving::Resize { .. }) => Ok(None),
            End::Leaves(Leaving::Detach) | End::MayLose => notes.remove::<CacheNote>(&config),
        });
        if let Err(error) = &forgotten {
            tracing::error!(%error, volume, "the note that there is a cache cannot be removed");
        }
        Ok(forgotten.is_ok())
    }

    /// Detaches a cache that is not found again, after a copy of what its journal may not know of. Answers how many
    /// bytes are lost.
    fn drop_cache_with_losses(&self, volume: &str, has_failed: bool) -> Result<u64, EngineError> {
        let (name, (answer, answered)) = (volume.to_owned(), channel());
        self.call(move |engine| engine.conductor.empty_given_up_cache(&name, has_failed, answer))??;
        answered.recv().unwrap_or(Err(EngineError::Stopped))?;
        let name = volume.to_owned();
        self.call(move |engine| {
            let lost = engine.conductor.cache_of(&name)?.1.dirty_bytes();
            engine.conductor.drop_cache(&name)?;
            if lost > 0 {
                tracing::error!(volume = name, lost, "dirty data that could not be read from the cache is given up");
            }
            Ok(lost)
        })?
    }
}
