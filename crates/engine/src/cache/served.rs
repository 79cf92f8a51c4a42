//! Files that hold a cache and must not be served as a volume: the first write would destroy the cache.

use super::note::CacheNote;
use super::rescue::ReadOnlyDevice;
use crate::notes::Notes;
use plimsoll_cache::store::superblock::{Found, Superblock};
use plimsoll_cache::store::{BLOCK_BYTES, Layout, probe};
use plimsoll_linux::files::open_storage;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes of the blocks that the cache on the file or block device at `path` can hold; `None` where none can be
/// read.
pub fn cached_bytes_on(path: &Path) -> Option<u64> {
    let mut device = ReadOnlyDevice::of(open_storage(path, false).ok()?).ok()?;
    probe(&mut device).ok().map(|superblock| bytes_of(&superblock.layout))
}

/// The same of a cache that is made with this size; `None` where that is too small.
pub fn cached_bytes_of(size_bytes: u64) -> Option<u64> {
    Layout::of_device(size_bytes / BLOCK_BYTES as u64).map(|layout| bytes_of(&layout))
}

fn bytes_of(layout: &Layout) -> u64 {
    u64::from(layout.units) * BLOCK_BYTES as u64
}

/// The note of the cache that the file or block device at `path` holds. `None` where it holds none, and where it cannot
/// be read. `None` also where no note names the cache: it may be a guest's, which has it on a volume. Two reads, and
/// O(notes) if there is a superblock.
///
/// # Errors
/// The directory of notes cannot be read.
pub fn noted_cache_on(notes: &Notes, path: &Path) -> io::Result<Option<CacheNote>> {
    let Ok(file) = open_storage(path, false) else { return Ok(None) };
    let found: Vec<Superblock> = [0, BLOCK_BYTES as u64].iter().filter_map(|at| superblock(&file, *at)).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let is_there = |note: &CacheNote| note.leaving.is_none() && found.iter().any(|found| note.is_of(&found.uuid));
    Ok(notes.all::<CacheNote>()?.into_iter().find(is_there))
}

fn superblock(file: &File, at: u64) -> Option<Superblock> {
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, at).ok()?;
    match Superblock::decode(&block) {
        Found::Superblock(superblock) => Some(superblock),
        _ => None,
    }
}
