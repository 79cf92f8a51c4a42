//! What a store, a file or a block device, is known by: so that no cache is put before another store, nor before a copy
//! of its own.
//!
//! A regular file is known by its inode and the time at which that was made. A copy of the file, or an older one that
//! was put back, is another. A block device is known by the first of these that there is:
//!
//! 1. what its disk reports in `/sys`: WWID, the UUID of a device mapper or RAID, serial number, a loop device's file.
//!    A partition adds its number. `/dev/disk/by-id` is made from the same;
//! 2. of a partition, its UUID in the disk's partition table (PARTUUID);
//! 3. its path, which is another disk's after the next boot, perhaps. So what it *holds* is noted, too
//!    ([`content_of`]): the UUID of a file system or a table of partitions that is on it. That alone names nothing,
//!    since a new file system has a new one. But if it changed while no daemon served the volume, the disk may be
//!    another one.

use crate::backend::{Backing, VolumeConfig};
use md5::{Digest, Md5};
use plimsoll_cache::store::{BLOCK_BYTES, Identity};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// What names a block device, below its directory in `/sys`, the best first.
const DEVICE_NAMES: &[&str] =
    &["wwid", "device/wwid", "dm/uuid", "md/uuid", "device/serial", "serial", "loop/backing_file"];

/// Offset of a loop device in its file: one file may have several loop devices.
const LOOP_OFFSET: &str = "loop/offset";

/// Identity of any volume in memory. It is empty at each start, so the content of a cache belongs to none.
const IN_MEMORY: &[u8; 16] = b"volume in memory";

/// Sixteen bytes that no other cache has.
pub(crate) fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What the store of `volume`, which has so many bytes, is known by.
pub(crate) fn identity_of(volume: &VolumeConfig, volume_bytes: u64) -> io::Result<Identity> {
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

/// The identity of a loop device on all of the file at `path`, which has no links.
pub(crate) fn store_of_loop(path: &Path) -> [u8; 16] {
    let words = words_for(Some(path.display().to_string()), "", None, path).words;
    Md5::digest(words).into()
}

/// What a block device says of itself in its directory in `/sys`. Devices without a serial number have an empty one,
/// which names none.
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

/// What a block device is, and how it is known.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    words: String,
    /// By nothing else than its path.
    is_path_only: bool,
}

/// The words for a block device. `disk` is what its disk says of itself, `partition` its number, empty for a whole
/// disk, and `uuid` that of the partition.
fn words_for(disk: Option<String>, partition: &str, uuid: Option<String>, path: &Path) -> Words {
    let (words, is_path_only) = match (disk, uuid) {
        (Some(name), _) => (format!("device {name} partition {partition}"), false),
        (None, Some(uuid)) => (format!("partition {uuid}"), false),
        (None, None) => (format!("device {} partition {partition}", path.display()), true),
    };
    Words { words, is_path_only }
}

/// UUID of partition `number` in the partition table of a disk, as the kernel and udev write it.
fn partition_uuid(
    number: u64,
    sector_bytes: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> Option<String> {
    let mut first = [0; SECTOR_BYTES_MAX];
    let first = &mut first[..(sector_bytes as usize).clamp(512, SECTOR_BYTES_MAX)];
    read(sector_bytes, first).ok()?;
    if first.starts_with(GPT_MAGIC) {
        let word = |at: usize| u32::from_le_bytes(first[at..at + 4].try_into().expect("four bytes"));
        let entries = u64::from_le_bytes(first[72..80].try_into().expect("eight bytes"));
        let (count, entry_bytes) = (u64::from(word(80)), u64::from(word(84)));
        if !(1..=count).contains(&number) || !(128..=4096).contains(&entry_bytes) {
            return None;
        }
        let at = entries.checked_mul(sector_bytes)?.checked_add((number - 1) * entry_bytes)?;
        let mut block = [0; SECTOR_BYTES_MAX];
        // Whole sectors, as a device is read without the page cache, too.
        let (begin, within) = (at / sector_bytes * sector_bytes, (at % sector_bytes) as usize);
        read(begin, &mut block[..sector_bytes as usize]).ok()?;
        let uuid = block.get(within + 16..within + 32)?;
        return uuid.iter().any(|byte| *byte != 0).then(|| guid(uuid));
    }
    read(0, first).ok()?;
    let signature = u32::from_le_bytes(first[440..444].try_into().expect("four bytes"));
    (first[510..512] == [0x55, 0xaa] && signature != 0).then(|| format!("{signature:08x}-{number:02x}"))
}

const GPT_MAGIC: &[u8] = b"EFI PART";
const SECTOR_BYTES_MAX: usize = 4096;

/// A GUID of a partition table. Its first three numbers have the least significant byte first.
fn guid(bytes: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    uuid(&ORDER.map(|at| bytes[at]))
}

fn uuid(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The name that the content in `head`, the first 128 KiB, has for itself: the UUID of a file system or partition
/// table.
fn content_in(head: &[u8]) -> Option<String> {
    let has = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let named = |kind: &str, at: usize| Some(format!("{kind} {}", uuid(head.get(at..at + 16)?)));
    match () {
        () if has(1024 + 0x38, &[0x53, 0xef]) => named("ext", 1024 + 0x68),
        () if has(0, b"XFSB") => named("xfs", 32),
        () if has((64 << 10) + 0x40, b"_BHRfS_M") => named("btrfs", (64 << 10) + 0x20),
        () if has(512, GPT_MAGIC) => Some(format!("gpt {}", guid(head.get(512 + 56..512 + 72)?))),
        () if has(510, &[0x55, 0xaa]) => {
            Some(format!("mbr {:08x}", u32::from_le_bytes(head[440..444].try_into().ok()?)))
        }
        () => None,
    }
}

/// By what the content of the store of `volume` names itself, where the store is known by its path only.
pub(crate) fn content_of(volume: &VolumeConfig) -> io::Result<Option<String>> {
    let Backing::File { path, .. } = &volume.backing else { return Ok(None) };
    if !is_known_by_path_only(path)? {
        return Ok(None);
    }
    let mut head = vec![0; HEAD_BYTES];
    let read = File::open(path)?.read_at(&mut head, 0)?;
    Ok(content_in(&head[..read]))
}

const HEAD_BYTES: usize = 128 << 10;

/// Whether nothing but its path tells what is at `path` from others.
pub(crate) fn is_known_by_path_only(path: &Path) -> io::Result<bool> {
    let metadata = std::fs::metadata(path)?;
    Ok(metadata.file_type().is_block_device() && words_of_device(path, metadata.rdev())?.is_path_only)
}

fn words_of_device(path: &Path, number: u64) -> io::Result<Words> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let below = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    // A partition's disk is the directory above.
    let partition = std::fs::read_to_string(below.join("partition")).unwrap_or_default();
    let partition = partition.trim();
    let disk = if partition.is_empty() { below } else { std::fs::canonicalize(below.join(".."))? };
    let name = name_of(&disk);
    let uuid = partition.parse().ok().filter(|_| name.is_none()).and_then(|number| uuid_on(&disk, number));
    Ok(words_for(name, partition, uuid, path))
}

/// The UUID of partition `number` of the disk that is described in this directory.
fn uuid_on(disk: &Path, number: u64) -> Option<String> {
    let said = |name: &str| std::fs::read_to_string(disk.join(name)).ok();
    let events = said("uevent")?;
    let node = events.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let sector_bytes = said("queue/logical_block_size")?.trim().parse().ok()?;
    let device = File::open(Path::new("/dev").join(node)).ok()?;
    partition_uuid(number, sector_bytes, |offset, bytes| device.read_exact_at(bytes, offset))
}

fn words_of(path: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if metadata.file_type().is_block_device() {
        return Ok(words_of_device(path, metadata.rdev())?.words);
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
    /// Promise: notes-required-cache.
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

    /// Promise: notes-device-names.
    #[test]
    fn a_device_is_known_by_its_disk_then_by_its_partition_and_by_its_path_at_last() {
        let [one, other] = ["/dev/vda1", "/dev/vdb1"].map(Path::new);
        let known = |disk: Option<&str>, uuid: Option<&str>, path| {
            words_for(disk.map(str::to_owned), "1", uuid.map(str::to_owned), path)
        };
        assert_eq!(known(Some("naa.5"), Some("u"), one), known(Some("naa.5"), Some("v"), other));
        assert_eq!(known(None, Some("u"), one), known(None, Some("u"), other));
        assert_ne!(known(None, Some("u"), one), known(None, Some("v"), one));
        let by_path = known(None, None, one);
        assert!(by_path.is_path_only && !known(None, Some("u"), one).is_path_only);
        assert_eq!(by_path.words, "device /dev/vda1 partition 1");
        assert_ne!(by_path, known(None, None, other));
    }

    fn table(marks: &[(usize, &[u8])]) -> Vec<u8> {
        let mut disk = vec![0; 1 << 20];
        marks.iter().for_each(|(at, bytes)| disk[*at..at + bytes.len()].copy_from_slice(bytes));
        disk
    }

    fn uuid_in(disk: &[u8], number: u64, sector_bytes: u64) -> Option<String> {
        partition_uuid(number, sector_bytes, |offset, bytes| {
            let from = disk.get(offset as usize..offset as usize + bytes.len());
            bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    /// Promise: notes-device-names.
    #[test]
    fn a_partition_has_the_uuid_of_its_entry_in_the_table() {
        let id: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        for sector in [512_usize, 4096] {
            let second = 2 * sector + 128 + 16;
            let (count, size) = (128_u32.to_le_bytes(), 128_u32.to_le_bytes());
            let disk = table(&[
                (sector, GPT_MAGIC),
                (sector + 72, &2_u64.to_le_bytes()),
                (sector + 80, &count),
                (sector + 84, &size),
                (second, &id),
            ]);
            let uuid = uuid_in(&disk, 2, sector as u64);
            assert_eq!(uuid.as_deref(), Some("04030201-0605-0807-090a-0b0c0d0e0f10"));
            assert_eq!([1, 129, 0].map(|number| uuid_in(&disk, number, sector as u64)), [None, None, None]);
        }
        let mbr = table(&[(440, &0x1234_abcd_u32.to_le_bytes()), (510, &[0x55, 0xaa])]);
        assert_eq!(uuid_in(&mbr, 3, 512).as_deref(), Some("1234abcd-03"));
        assert_eq!(uuid_in(&table(&[]), 1, 512), None);
        assert_eq!(uuid_in(&[0; 100], 1, 512), None);
    }

    /// Promise: notes-device-names.
    #[test]
    fn content_names_itself_where_it_has_a_uuid() {
        let id: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        let plain = "01020304-0506-0708-090a-0b0c0d0e0f10";
        let content = |marks: &[(usize, &[u8])]| content_in(&table(marks));
        assert_eq!(content(&[(1080, &[0x53, 0xef]), (1128, &id)]), Some(format!("ext {plain}")));
        assert_eq!(content(&[(0, b"XFSB"), (32, &id)]), Some(format!("xfs {plain}")));
        assert_eq!(content(&[(65_600, b"_BHRfS_M"), (65_568, &id)]), Some(format!("btrfs {plain}")));
        assert_eq!(
            content(&[(512, GPT_MAGIC), (568, &id)]).as_deref(),
            Some("gpt 04030201-0605-0807-090a-0b0c0d0e0f10")
        );
        assert_eq!(content(&[]), None);
        assert_eq!(content_in(&[]), None);
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
