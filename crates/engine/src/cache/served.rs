//! Files that hold a cache and must not be served as a volume: the first write would destroy the cache.

use super::note::CacheNote;
use crate::notes::Notes;
use plimsoll_cache::store::BLOCK_BYTES;
use plimsoll_cache::store::superblock::{Found, Superblock};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The note of the cache that the file or block device at `path` holds. `None` if it holds none, cannot be read, or no
/// note names the cache. Such a cache may be a guest's, which has it on a volume. Two reads, and O(notes) if there is a
/// superblock.
///
/// # Errors
/// The directory of notes cannot be read.
pub fn noted_cache_on(notes: &Notes, path: &Path) -> io::Result<Option<CacheNote>> {
    let Ok(file) = File::open(path) else { return Ok(None) };
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
