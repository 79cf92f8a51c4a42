//! Caches that have what is newest of a volume, though nothing on the volume's side says so.
//!
//! **The intuition.** A note says that a volume has a cache. Where every copy of it was deleted, or where a plain copy
//! took the slow file's place, the cache is the only witness left. So the caches that a daemon knows are asked before a
//! volume is served without them.
//!
//! | the cache belongs to the volume | evidence |
//! | --- | --- |
//! | by its store | its superblock names the store of the volume |
//! | by the volume's name | a note of another store gives a volume of that name this cache; no volume has that store |
//! | by its size, perhaps | no note names the cache, no volume has its store, and the volume has as many blocks |
//!
//! A cache that was given up, or that leaves, has nothing that is missed. An administrator's word that the store is
//! served without a cache is noted for that store. A cache that another process has is that process's business.

use super::note::CacheNote;
use super::rescue::ReadOnlyDevice;
use super::{CacheDevice, give_up};
use crate::backend::{Backing, VolumeConfig};
use crate::notes::Notes;
use crate::occupied::beneath::file_beneath;
use crate::store_identity::{store_of, store_of_loop};
use plimsoll_cache::store::{BLOCK_BYTES, Identity, ReadOnly, Superblock, open, probe};
use plimsoll_cache::{CacheConfig, policies};
use plimsoll_core::class::Scheme;
use plimsoll_linux::files::open_storage;
use std::io;
use std::path::{Path, PathBuf};

/// By what a cache is known to be a volume's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BelongsBy {
    /// Its superblock names the volume's store.
    Store,
    /// A note names the volume, which has another store now.
    Name,
    /// The volume has as many blocks as its store: it may be that one.
    Size,
}

/// A cache that has blocks of a volume which are not on the slow device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedCache {
    /// Its name, as the configuration or its note has it.
    pub cache: String,
    /// Its device.
    pub path: PathBuf,
    /// Why it is the volume's.
    pub belongs_by: BelongsBy,
    /// Blocks that the slow device lacks; `None` where the cache's own records do not tell.
    pub dirty_units: Option<u32>,
    uuid: [u8; 16],
}

/// The first cache that has blocks which the slow device of `volume` lacks: of `caches`, each with its name and path,
/// or of those that notes name. `volume_bytes` is the size of the volume, `others` are the other volumes. Nothing is
/// written. `None` also where a note says which cache the volume has: then that note decides.
///
/// O(notes), two reads for each cache, and all records of one that may be the volume's.
///
/// # Errors
/// The notes cannot be read.
pub fn unserved_cache(
    notes: &Notes,
    volume: &VolumeConfig,
    volume_bytes: u64,
    caches: &[(String, PathBuf)],
    others: &[VolumeConfig],
) -> io::Result<Option<UnservedCache>> {
    let stores = stores_of(volume);
    if stores.is_empty() || volume.backing.is_encrypted() {
        return Ok(None);
    }
    if notes.get::<CacheNote>(volume)?.is_some() || Notes::of_its_original::<CacheNote>(volume)?.is_some() {
        return Ok(None);
    }
    let noted = notes.all::<CacheNote>()?;
    let of_others: Vec<[u8; 16]> = others.iter().flat_map(stores_of).collect();
    let of_notes = noted.iter().filter(|note| note.volume == volume.name);
    let of_notes = of_notes.filter(|note| caches.iter().all(|(_, path)| *path != note.path));
    let of_notes = of_notes.map(|note| (note.cache.clone(), note.path.clone()));
    for (cache, path) in caches.iter().cloned().chain(of_notes) {
        let Some((mut device, superblock)) = look_into(&path) else { continue };
        let Superblock { uuid, store, store_blocks, .. } = superblock;
        let note = noted.iter().find(|note| note.is_of(&uuid));
        if notes.is_given_up(&uuid)? || note.is_some_and(|note| note.leaving.is_some()) {
            continue;
        }
        let is_of_another = of_others.contains(&store);
        let belongs_by = match note {
            _ if stores.contains(&store) => BelongsBy::Store,
            Some(note) if note.volume == volume.name && !is_of_another => BelongsBy::Name,
            None if !is_of_another && store_blocks == volume_bytes / BLOCK_BYTES as u64 => BelongsBy::Size,
            _ => continue,
        };
        // A daemon that was killed has the device until what it had under way is done.
        let is_free = device.lock_shared().is_ok();
        if !is_free || probe(&mut device).is_ok_and(|now| now.uuid != uuid) {
            continue;
        }
        if belongs_by != BelongsBy::Store && notes.is_served_without(volume, &uuid)? {
            continue;
        }
        let dirty_units = dirty_units(&mut device, &superblock);
        if dirty_units != Some(0) {
            return Ok(Some(UnservedCache { cache, path, belongs_by, dirty_units, uuid }));
        }
    }
    Ok(None)
}

/// Takes an administrator's word that `volume` is served without the cache that was found so. One of its store is given
/// up: that is noted first, and the cache is never used again. Any other stays as it is. Answers whether it was given
/// up.
///
/// # Errors
/// The system's, or what is at its path is not that cache any more.
pub fn forget_unserved(notes: &Notes, volume: &VolumeConfig, unserved: &UnservedCache) -> io::Result<bool> {
    if unserved.belongs_by != BelongsBy::Store {
        return notes.serve_without(volume, &unserved.uuid).map(|()| false);
    }
    let mut device = CacheDevice::open_existing(&unserved.cache, &unserved.path).map_err(io::Error::other)?;
    let superblock = probe(&mut device).map_err(io::Error::other)?;
    if superblock.uuid != unserved.uuid {
        return Err(io::Error::other(format!("{} holds another cache by now", unserved.path.display())));
    }
    notes.give_up(&unserved.uuid)?;
    give_up(&mut device, &superblock).map(|()| true)
}

/// What the store of a volume, or another way to exactly its bytes, is known by. There is nothing for a store in
/// memory, or one that is not there.
fn stores_of(volume: &VolumeConfig) -> Vec<[u8; 16]> {
    let Backing::File { path, .. } = &volume.backing else { return Vec::new() };
    let Ok(own) = store_of(path) else { return Vec::new() };
    let other = match file_beneath(path) {
        Some((file, extent)) if extent.begin == 0 => store_of(&file).ok(),
        Some(_) => None,
        None => path.canonicalize().ok().filter(|file| file.is_file()).map(|file| store_of_loop(&file)),
    };
    std::iter::once(own).chain(other).collect()
}

/// The device of a cache and what its superblock says; `None` where no cache can be read there.
fn look_into(path: &Path) -> Option<(ReadOnlyDevice, Superblock)> {
    let mut device = ReadOnlyDevice::of(open_storage(path, false).ok()?).ok()?;
    let superblock = probe(&mut device).ok()?;
    Some((device, superblock))
}

/// Units that the store lacks, believed or not; `None` where the records are damaged.
fn dirty_units(device: &mut ReadOnlyDevice, superblock: &Superblock) -> Option<u32> {
    let Superblock { store, store_blocks, .. } = *superblock;
    let config = CacheConfig::new(superblock.layout.units, Scheme::default());
    let identity = Identity { store, store_blocks };
    let report = open(&mut ReadOnly(device), identity, &config, policies().first()?, true).ok()?.report;
    (report.lost_pages == 0).then_some(report.dirty_units + report.given_up_dirty_units)
}
