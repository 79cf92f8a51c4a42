//! Copies a cache's dirty data to the slow device, from a device that cannot be written.
//!
//! Such a cache cannot be opened to work, since that begins with a write. Nothing of it is changed here: see
//! `plimsoll_cache::store::Opened::rescue`, and why it may be done again whatever stopped it.

use super::{CacheError, CacheSettings, evidence, refuse_encrypted};
use crate::backend::{Backing, Volume};
use crate::occupied;
use crate::store_identity::identity_of;
use plimsoll_cache::store::{BLOCK_BYTES, Blocks, ReadOnly, Report, Rescued, open, probe};
use plimsoll_linux::files::open_storage;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// A device that is opened for reading only.
pub(super) struct ReadOnlyDevice {
    file: File,
    blocks: u64,
}

impl ReadOnlyDevice {
    /// The device that is open.
    pub(super) fn of(mut file: File) -> io::Result<ReadOnlyDevice> {
        let bytes = file.seek(SeekFrom::End(0))?;
        Ok(ReadOnlyDevice { file, blocks: bytes / BLOCK_BYTES as u64 })
    }

    /// Locks it beside other readers, as long as it is open.
    pub(super) fn lock_shared(&self) -> Result<(), Errno> {
        occupied::patiently(|| flock(&self.file, FlockOperation::NonBlockingLockShared))
    }
}

impl Blocks for ReadOnlyDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, first * BLOCK_BYTES as u64)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(Errno::ROFS.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(Errno::ROFS.into())
    }
}

/// Copies the dirty data of the cache to the slow device of `volume`, which no other process has open. The cache stays
/// as it is, and the note of it, too.
///
/// # Errors
/// There is no cache of this volume, it cannot be opened or is damaged, another process has it, or the slow device
/// cannot be written.
pub fn rescue(settings: &CacheSettings, volume: &Volume) -> Result<Rescued, CacheError> {
    refuse_encrypted(volume.config())?;
    let (cache, path) = (&settings.name, &settings.path);
    let system = |action: &'static str| {
        move |source| CacheError::System { cache: cache.clone(), action, path: path.clone(), source }
    };
    let wrong = |source| CacheError::Open { cache: cache.clone(), path: path.clone(), source };
    let file = open_storage(path, false).map_err(system("open"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        Errno::WOULDBLOCK => {
            CacheError::Locked { cache: cache.clone(), path: path.clone(), by: occupied::locked_by(path) }
        }
        errno => system("lock")(errno.into()),
    })?;
    let mut device = ReadOnlyDevice::of(file).map_err(system("measure"))?;
    let superblock = probe(&mut device).map_err(wrong)?;
    let config = volume.config();
    // What is older than the slow device is not copied over it.
    let is_named = evidence::is_named(settings, config, &superblock)?;
    let identity = identity_of(config, volume.info().size_bytes).map_err(system("identify the volume of"))?;
    let of_cache = settings.config(superblock.layout.units);
    let accepts = settings.accepts_losses;
    let opened = open(&mut ReadOnly(&mut device), identity, &of_cache, settings.policy, accepts).map_err(wrong)?;
    let Report { units, dirty_units, .. } = opened.report;
    if !is_named && dirty_units > 0 {
        let (cache, path, volume) = (cache.clone(), path.clone(), config.name.clone());
        return Err(CacheError::Unnoted { cache, path, volume, units, dirty_units });
    }
    let Backing::File { path: store, .. } = &config.backing else { return Ok(Rescued::default()) };
    let to_store = |source| CacheError::System {
        cache: cache.clone(),
        action: "copy to the slow device",
        path: store.clone(),
        source,
    };
    let slow = open_storage(store, true).map_err(to_store)?;
    let rescued = opened.rescue(&mut device, |block, data| slow.write_all_at(data, block * BLOCK_BYTES as u64));
    let rescued = rescued.map_err(to_store)?;
    slow.sync_all().map_err(to_store)?;
    Ok(rescued)
}
