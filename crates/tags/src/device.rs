//! The device that is tagged: its numbers, its size, and the file system on it.

use crate::error::TagsError;
use plimsoll_linux::Mount;
use rustix::fs::{FileType, fstat, major, minor};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a sector, whatever the device's own block size.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Bits of the minor number in the kernel's own device numbers (`MINORBITS`).
const MINOR_BITS: u32 = 20;
/// Where the superblocks have their magic numbers (see `plimsoll_engine::content`).
const EXT_MAGIC_AT: usize = 1024 + 0x38;
const EXT_MAGIC: [u8; 2] = 0xEF53u16.to_le_bytes();
const XFS_MAGIC: &[u8] = b"XFSB";
const BTRFS_MAGIC_AT: usize = (64 << 10) + 0x40;
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";
const HEAD_BYTES: usize = BTRFS_MAGIC_AT + BTRFS_MAGIC.len();

/// What is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// Unknown: another file system, none yet, or a program that uses the bare device.
    Other,
}

/// A block device, or a partition of one.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// As the kernel has it.
    pub(crate) number: u32,
    /// Where the partition begins on its disk; bios have the disk's sectors.
    pub(crate) start_sector: u64,
    pub(crate) sectors: u64,
    pub(crate) file_system: FileSystem,
    /// The superblock's own device number, if it is mounted.
    pub(crate) mounted: Option<u32>,
}

impl Device {
    pub(crate) fn open(path: &Path) -> Result<Device, TagsError> {
        let problem = |problem: String| TagsError::Device { device: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| problem(format!("cannot be opened: {error}")))?;
        let status = fstat(&file).map_err(|error| problem(format!("cannot be looked at: {error}")))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::BlockDevice {
            return Err(problem("is not a block device".to_owned()));
        }
        let (major, minor) = (major(status.st_rdev), minor(status.st_rdev));
        let sysfs = |name| {
            let path = format!("/sys/dev/block/{major}:{minor}/{name}");
            fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
        };
        let sectors = sysfs("size").ok_or_else(|| problem("has no size in sysfs".to_owned()))?;
        if sectors == 0 {
            return Err(problem("is empty".to_owned()));
        }
        let mut head = vec![0; HEAD_BYTES.min((sectors * SECTOR_BYTES) as usize)];
        file.read_exact_at(&mut head, 0).map_err(|error| problem(format!("cannot be read: {error}")))?;
        let number = major << MINOR_BITS | minor;
        let start_sector = sysfs("start").unwrap_or(0);
        Ok(Device {
            number,
            start_sector,
            sectors,
            file_system: file_system(&head),
            mounted: mounted(path, (major, minor)),
        })
    }

    /// Whether the superblock has a device number of its own.
    pub(crate) fn other_number(&self) -> Option<u32> {
        self.mounted.filter(|mounted| *mounted != self.number)
    }
}

fn file_system(head: &[u8]) -> FileSystem {
    let is_at = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if is_at(0, XFS_MAGIC) {
        FileSystem::Xfs
    } else if is_at(BTRFS_MAGIC_AT, BTRFS_MAGIC) {
        FileSystem::Btrfs
    } else if is_at(EXT_MAGIC_AT, &EXT_MAGIC) {
        FileSystem::Ext4
    } else {
        FileSystem::Other
    }
}

/// The superblock's device number, if a mount shows the device: by its number, or (btrfs) by its path.
fn mounted(path: &Path, number: (u32, u32)) -> Option<u32> {
    let path = fs::canonicalize(path).ok()?;
    let table = crate::group::mounts().ok()?;
    let names =
        |mount: &Mount| mount.source_disk().and_then(|source| fs::canonicalize(source).ok()).as_ref() == Some(&path);
    let is_on_it = |mount: &&Mount| mount.device == number || names(mount);
    let (major, minor) = table.iter().find(is_on_it)?.device;
    Some(major << MINOR_BITS | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_told_apart() {
        let with = |at: usize, magic: &[u8]| {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + magic.len()].copy_from_slice(magic);
            file_system(&head)
        };
        assert_eq!(with(EXT_MAGIC_AT, &EXT_MAGIC), FileSystem::Ext4);
        assert_eq!(with(0, XFS_MAGIC), FileSystem::Xfs);
        assert_eq!(with(BTRFS_MAGIC_AT, BTRFS_MAGIC), FileSystem::Btrfs);
        assert_eq!(with(7, XFS_MAGIC), FileSystem::Other);
        assert_eq!(file_system(&[0; 512]), FileSystem::Other);
    }
}
