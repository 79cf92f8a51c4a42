//! The disk and the mount point of a file system, from the kernel's table of mounts.
//!
//! People name a mount point; programs of the kernel want a block device. The table has the number of the superblock's
//! device, which is the disk's own on ext4 and XFS. Btrfs has a number that belongs to no disk, and names the disk as
//! the mount's source. Its files have yet another number, one for each subvolume, which is in no table. To find out
//! whether a file is on a disk, a caller asks the roots of the mounts for theirs ([`device_numbers`]). Most containers
//! have an overlay as root. Its files have the overlay's own number if all its layers are of one file system. So
//! overlays that write to the disk are asked, too.

use crate::error::AgentError;
use plimsoll_linux::{MOUNT_TABLE, Mount, MountTable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const BLOCK_DEVICES: &str = "/sys/class/block";
/// Of the kernel's sizes, whatever the disk's own.
const SECTOR_BYTES: u64 = 512;

/// Numbers of devices, major and minor, as files on them have them.
pub type DeviceNumbers = BTreeSet<(u32, u32)>;

/// A file system that is mounted, and its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedDisk {
    /// The block device: a disk or a partition.
    pub device: PathBuf,
    /// Where all of it is mounted, or a part of it where all is not.
    pub mount_point: PathBuf,
    /// What the kernel calls the file system: `ext4`, `xfs`.
    pub file_system: String,
}

/// A disk or partition that is there, mounted or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentDisk {
    /// The block device.
    pub device: PathBuf,
    /// Its file system, if that is mounted.
    pub mounted: Option<MountedDisk>,
}

/// Says when something was mounted or unmounted.
pub struct MountChanges(File);

impl MountedDisk {
    /// The file system at the mount point `path`, or on the block device `path`.
    ///
    /// # Errors
    /// Nothing is mounted there, or what is has no disk (tmpfs, NFS).
    pub fn of(path: &Path) -> Result<MountedDisk, AgentError> {
        let problem = |problem: String| AgentError::Mount { path: path.to_owned(), problem };
        let real = fs::canonicalize(path).map_err(|error| problem(error.to_string()))?;
        let found = fs::metadata(&real).map_err(|error| problem(error.to_string()))?;
        let table = table()?;
        if found.file_type().is_block_device() {
            let number = (major(found.rdev()), minor(found.rdev()));
            let is_on_it = |mount: &&Mount| mount.device == number || names(mount, &real);
            let mount = table.iter().filter(is_on_it).min_by_key(|mount| is_a_part(mount));
            let mount = mount.ok_or_else(|| problem("no file system on it is mounted here".to_owned()))?;
            return Ok(on(mount, real));
        }
        let Some(mount) = table.on_top_at(&real) else {
            let around = table.iter().filter(|mount| real.starts_with(&mount.target));
            let around = around.max_by_key(|mount| mount.target.as_os_str().len());
            let hint = around.map_or(String::new(), |mount| format!("; it is on {}", mount.target.display()));
            return Err(problem(format!("is neither a mount point nor a block device{hint}")));
        };
        let device = disk_of(mount).ok_or_else(|| problem(format!("{} has no disk of its own", mount.kind)))?;
        Ok(on(mount, device))
    }

    /// All that is mounted and has a disk, each disk once.
    ///
    /// # Errors
    /// The kernel shows no table.
    pub fn all() -> Result<Vec<MountedDisk>, AgentError> {
        let table = table()?;
        let mut mounts: Vec<&Mount> = table.iter().collect();
        mounts.sort_by_key(|mount| is_a_part(mount));
        let mut disks: Vec<MountedDisk> = Vec::new();
        for mount in mounts {
            let Some(device) = disk_of(mount) else { continue };
            if disks.iter().all(|disk| disk.device != device) {
                disks.push(on(mount, device));
            }
        }
        Ok(disks)
    }
}

/// The device numbers of files on a block device. They are its own, of its node and of ext4 and XFS on it, and those of
/// the roots of other mounts from it. Overlays that write to it add theirs. A look at the table, and at each of those
/// roots.
///
/// # Errors
/// There is no such block device, or the kernel shows no table.
pub fn device_numbers(device: &Path) -> Result<DeviceNumbers, AgentError> {
    let system = |source| AgentError::System { action: "look at the block device", source };
    let real = fs::canonicalize(device).map_err(system)?;
    let found = fs::metadata(&real).map_err(system)?;
    let own = (major(found.rdev()), minor(found.rdev()));
    let table = table()?;
    let of_disk = table.iter().filter(|mount| names(mount, &real));
    let mut numbers: DeviceNumbers = of_disk.filter_map(number_of_root).chain([own]).collect();
    let is_written_to = |directory: PathBuf| {
        statx(CWD, &directory, AtFlags::NO_AUTOMOUNT, StatxFlags::TYPE)
            .is_ok_and(|found| numbers.contains(&(found.stx_dev_major, found.stx_dev_minor)))
    };
    let overlays = table.iter().filter(|mount| mount.upper_directory().is_some_and(is_written_to));
    let overlays: Vec<(u32, u32)> = overlays.filter_map(number_of_root).collect();
    numbers.extend(overlays);
    Ok(numbers)
}

impl MountChanges {
    /// Those from now on.
    ///
    /// # Errors
    /// The kernel shows no table.
    pub fn new() -> Result<MountChanges, AgentError> {
        let table = File::open(MOUNT_TABLE);
        let table = table.map_err(|source| AgentError::System { action: "open the table of mounts", source })?;
        Ok(MountChanges(table))
    }

    /// Whether something has changed since this was last asked. O(1).
    pub fn have_come(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Where it cannot be told, it is looked at.
        poll(&mut polled, Some(&at_once)).map_or(true, |changed| changed > 0)
    }
}

impl PresentDisk {
    /// The disk of the file system at the mount point `path`, or the block device `path`, mounted or not.
    ///
    /// # Errors
    /// `path` is neither.
    pub fn of(path: &Path) -> Result<PresentDisk, AgentError> {
        let real = fs::canonicalize(path).ok();
        let is_device = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        match (MountedDisk::of(path), real.filter(is_device)) {
            (Ok(disk), _) => Ok(PresentDisk { device: disk.device.clone(), mounted: Some(disk) }),
            (Err(_), Some(device)) => Ok(PresentDisk { device, mounted: None }),
            (Err(error), None) => Err(error),
        }
    }

    /// What it holds, bytes; without end where the kernel does not tell.
    pub fn size_bytes(&self) -> u64 {
        let sectors = self.described("size").and_then(|text| text.trim().parse::<u64>().ok());
        sectors.map_or(u64::MAX, |sectors| sectors * SECTOR_BYTES)
    }

    /// Whether the kernel takes it for one that turns.
    pub fn is_rotational(&self) -> bool {
        // A partition has no queue of its own.
        let described = self.described("queue/rotational").or_else(|| self.described("../queue/rotational"));
        described.is_some_and(|text| text.trim() == "1")
    }

    /// Whether it consists of other devices (LVM, RAID, dm-crypt) and so has no requests of its own.
    pub fn is_made_of_others(&self) -> bool {
        let others = self.directory().and_then(|directory| fs::read_dir(directory.join("slaves")).ok());
        others.is_some_and(|mut others| others.next().is_some())
    }

    /// The number of the whole disk, `8:0`, under which the kernel limits its partitions too.
    pub fn number(&self) -> Option<String> {
        let of_partition = self.described("partition").and_then(|_| self.described("../dev"));
        of_partition.or_else(|| self.described("dev")).map(|text| text.trim().to_owned())
    }

    /// Where the kernel describes it.
    fn directory(&self) -> Option<PathBuf> {
        let name = fs::canonicalize(&self.device).ok()?;
        fs::canonicalize(Path::new(BLOCK_DEVICES).join(name.file_name()?)).ok()
    }

    fn described(&self, what: &str) -> Option<String> {
        fs::read_to_string(self.directory()?.join(what)).ok()
    }
}

/// Whether a part of the file system is mounted there, and not all of it.
fn is_a_part(mount: &Mount) -> bool {
    mount.root != Path::new("/")
}

/// Whether a mount's source is this disk, by whatever link to it.
fn names(mount: &Mount, disk: &Path) -> bool {
    mount.source_disk().is_some() && disk_of(mount).as_deref() == Some(disk)
}

/// The block device of a mount, if there is one.
fn disk_of(mount: &Mount) -> Option<PathBuf> {
    let (major, minor) = mount.device;
    let described = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    if let Some(name) = described.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        return Some(Path::new("/dev").join(name));
    }
    let source = fs::canonicalize(mount.source_disk()?).ok()?;
    let is_disk = fs::metadata(&source).is_ok_and(|found| found.file_type().is_block_device());
    is_disk.then_some(source)
}

/// The device number of files at the root of a mount; `None` if another mount covers it.
fn number_of_root(mount: &Mount) -> Option<(u32, u32)> {
    let wanted = StatxFlags::MNT_ID;
    let found = statx(CWD, &mount.target, AtFlags::NO_AUTOMOUNT, wanted).ok()?;
    let is_it = found.stx_mask & wanted.bits() != 0 && found.stx_mnt_id == mount.id;
    is_it.then_some((found.stx_dev_major, found.stx_dev_minor))
}

fn on(mount: &Mount, device: PathBuf) -> MountedDisk {
    MountedDisk { device, mount_point: mount.target.clone(), file_system: mount.kind.clone() }
}

/// Every mount that this process sees.
pub(crate) fn table() -> Result<MountTable, AgentError> {
    let text = fs::read(MOUNT_TABLE);
    let text = text.map_err(|source| AgentError::System { action: "read the table of mounts", source })?;
    Ok(MountTable::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_disk_is_refused_with_what_it_is() {
        let refused = |path: &str| MountedDisk::of(Path::new(path)).unwrap_err().to_string();
        assert_eq!(refused("/proc"), "/proc: proc has no disk of its own");
        assert!(refused("/proc/self").ends_with(": is neither a mount point nor a block device; it is on /proc"));
        assert!(refused("/nowhere").contains("No such file"), "{}", refused("/nowhere"));
    }

    #[test]
    fn every_disk_is_listed_once_and_found_by_its_device() {
        let all = MountedDisk::all().unwrap();
        for disk in &all {
            assert_eq!(all.iter().filter(|other| other.device == disk.device).count(), 1);
            // A container may not have the device's node.
            if disk.device.exists() {
                assert!((1..u64::MAX).contains(&PresentDisk::of(&disk.device).unwrap().size_bytes()), "{disk:?}");
                assert_eq!(MountedDisk::of(&disk.device).unwrap().device, disk.device);
            }
        }
    }
}
