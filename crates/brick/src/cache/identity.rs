//! What a cache is of: so that it is not put before another store, nor before a copy of its own.
//!
//! A regular file is known by its inode and the time at which that was made: a copy of the file, or an older one that was put back,
//! is another. A block device is known by what it says of itself (`/sys`), or else by its path.

use crate::backend::{Backing, VolumeConfig};
use md5::{Digest, Md5};
use plimsoll_cache::store::{BLOCK_BYTES, Identity};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What names a block device, below its directory in `/sys`, the best first.
const DEVICE_NAMES: &[&str] =
    &["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial", "loop/backing_file"];

/// Where the part of its file begins that a loop device is: of one file there may be several.
const LOOP_OFFSET: &str = "loop/offset";

/// What any volume in memory is known by: it is empty at each start, so what a cache of one has is nobody's.
const IN_MEMORY: &[u8; 16] = b"volume in memory";

/// Sixteen bytes that nobody else has.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What the store of `volume`, which has so many bytes, is known by.
pub(super) fn identity_of(volume: &VolumeConfig, volume_bytes: u64) -> io::Result<Identity> {
    let store = match &volume.backing {
        Backing::Memory { .. } | Backing::CompressedMemory { .. } => *IN_MEMORY,
        Backing::File { path, .. } => store_of(path)?,
    };
    Ok(Identity { store, store_blocks: volume_bytes / BLOCK_BYTES as u64 })
}

/// What the store in a file or on a block device is known by.
pub(crate) fn store_of(path: &Path) -> io::Result<[u8; 16]> {
    Ok(Md5::digest(words_of(path)?).into())
}

/// What a block device says of itself in its directory in `/sys`. Devices without a serial number have an empty one, which names none.
fn name_of(disk: &Path) -> Option<String> {
    let said = |name: &str| {
        let text = std::fs::read_to_string(disk.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let name = DEVICE_NAMES.iter().find_map(|name| said(name))?;
    Some(match said(LOOP_OFFSET) {
        Some(offset) if offset != "0" => format!("{name} from {offset}"),
        _ => name,
    })
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
        let name = name_of(&disk).unwrap_or_else(|| path.display().to_string());
        return Ok(format!("device {name} partition {}", partition.trim()));
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

    /// Planted breaks that were seen red: an empty name is one; where a loop device begins is of no account.
    #[test]
    fn a_device_is_known_by_what_it_says_of_itself_and_not_by_an_empty_word() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path();
        let says = |name: &str, text: &str| {
            std::fs::create_dir_all(disk.join(name).parent().unwrap()).unwrap();
            std::fs::write(disk.join(name), text).unwrap();
            name_of(disk)
        };
        assert_eq!(name_of(disk), None);
        assert_eq!(says("serial", "\n"), None);
        assert_eq!(says("loop/offset", "0\n"), None);
        assert_eq!(says("loop/backing_file", "/disk\n").as_deref(), Some("/disk"));
        assert_eq!(says("loop/offset", "4096\n").as_deref(), Some("/disk from 4096"));
        says("loop/offset", "0\n");
        assert_eq!(says("serial", "123 \n").as_deref(), Some("123"));
        assert_eq!(says("wwid", "").as_deref(), Some("123"));
        assert_eq!(says("device/wwid", "naa.5\n").as_deref(), Some("naa.5"));
    }

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
