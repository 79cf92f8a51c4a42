//! What a cache is of: so that it is not put before another store, nor before a copy of its own.
//!
//! A regular file is known by its inode and the time at which that was made: a copy of the file, or an older one that was put back,
//! is another. A block device is known by what it says of itself (`/sys`), or else by its path.

use crate::backend::{Backing, VolumeConfig};
use md5::{Digest, Md5};
use plimsoll_cache::store::{BLOCK_BYTES, Blocks, Identity, OpenError, probe};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What names a block device, below its directory in `/sys`, the best first.
const DEVICE_NAMES: &[&str] =
    &["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial", "loop/backing_file"];

/// Sixteen bytes that nobody else has.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What the store of `volume`, which has so many bytes, is known by.
pub(super) fn identity_of(volume: &VolumeConfig, volume_bytes: u64) -> io::Result<Identity> {
    let store = match &volume.backing {
        Backing::Memory { .. } | Backing::CompressedMemory { .. } => random()?,
        Backing::File { path, .. } => store_of(path)?,
    };
    Ok(Identity { store, store_blocks: volume_bytes / BLOCK_BYTES as u64 })
}

/// What the store in a file or on a block device is known by.
pub(crate) fn store_of(path: &Path) -> io::Result<[u8; 16]> {
    Ok(Md5::digest(words_of(path)?).into())
}

/// What the cache on `device` says that it is of.
pub(super) fn found_on(device: &mut dyn Blocks) -> Result<Identity, OpenError> {
    let superblock = probe(device)?;
    Ok(Identity { store: superblock.store, store_blocks: superblock.store_blocks })
}

fn words_of(path: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if metadata.file_type().is_block_device() {
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let below = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
        // A partition's disk is the directory above.
        let partition = std::fs::read_to_string(below.join("partition")).unwrap_or_default();
        let disk = if partition.is_empty() { below } else { std::fs::canonicalize(below.join(".."))? };
        let names = DEVICE_NAMES.iter().find_map(|name| std::fs::read_to_string(disk.join(name)).ok());
        let name = names.unwrap_or_else(|| path.display().to_string());
        return Ok(format!("device {} partition {}", name.trim(), partition.trim()));
    }
    let statx = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME)?;
    let born = match StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::BTIME) {
        true => format!("{}.{}", statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec),
        false => String::new(),
    };
    Ok(format!("file {} of {born}", statx.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_file_is_another_store_and_a_renamed_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let [one, copy, renamed] = ["one", "copy", "renamed"].map(|name| directory.path().join(name));
        std::fs::write(&one, [1; 4096]).unwrap();
        std::fs::copy(&one, &copy).unwrap();
        let words = words_of(&one).unwrap();
        assert_ne!(words, words_of(&copy).unwrap());
        std::fs::rename(&one, &renamed).unwrap();
        assert_eq!(words, words_of(&renamed).unwrap());
    }
}
