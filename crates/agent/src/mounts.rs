//! Which disk a file system is on, and where it is mounted, from the kernel's table of mounts.
//!
//! People name a mount point; programs of the kernel want a block device. The table has the number of the superblock's
//! device, which is the disk's own on ext4 and XFS; btrfs has a number that belongs to no disk, and names the disk as the
//! mount's source. Its files have yet another number, one for each subvolume, which is in no table: whoever wants to know whether a
//! file is on a disk asks the roots of the mounts for theirs ([`device_numbers`]).

use crate::error::AgentError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const TABLE: &str = "/proc/self/mountinfo";
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
pub struct Disk {
    /// The block device.
    pub device: PathBuf,
    /// Its file system, if that is mounted.
    pub mounted: Option<MountedDisk>,
}

/// Says when something was mounted or unmounted.
pub struct MountChanges(File);

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// The kernel's number of the mount.
    id: u64,
    device: (u32, u32),
    /// What of the file system is mounted: `/` for all of it.
    root: String,
    mount_point: PathBuf,
    file_system: String,
    source: PathBuf,
}

impl MountedDisk {
    /// The file system that is mounted at `path`, or on the block device that `path` is.
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
            let is_on_it = |line: &&Line| line.device == number || line.source == real;
            let line = table.iter().filter(is_on_it).min_by_key(|line| line.root != "/");
            let line = line.ok_or_else(|| problem("no file system on it is mounted here".to_owned()))?;
            return Ok(line.on(real));
        }
        // The last one covers those before it.
        let Some(line) = table.iter().rfind(|line| line.mount_point == real) else {
            let around = table.iter().filter(|line| real.starts_with(&line.mount_point));
            let around = around.max_by_key(|line| line.mount_point.as_os_str().len());
            let hint = around.map_or(String::new(), |line| format!("; it is on {}", line.mount_point.display()));
            return Err(problem(format!("is neither a mount point nor a block device{hint}")));
        };
        let device = line.disk().ok_or_else(|| problem(format!("{} has no disk of its own", line.file_system)))?;
        Ok(line.on(device))
    }

    /// All that is mounted and has a disk, each disk once.
    ///
    /// # Errors
    /// The kernel shows no table.
    pub fn all() -> Result<Vec<MountedDisk>, AgentError> {
        let mut table = table()?;
        table.sort_by_key(|line| line.root != "/");
        let mut disks: Vec<MountedDisk> = Vec::new();
        for line in table {
            let Some(device) = line.disk() else { continue };
            if disks.iter().all(|disk| disk.device != device) {
                disks.push(line.on(device));
            }
        }
        Ok(disks)
    }
}

/// The numbers that files on a block device have: its own, of its node and of ext4 and XFS on it, and those of the roots of what else is
/// mounted from it. A look at the table, and at each of those roots.
///
/// # Errors
/// There is no such block device, or the kernel shows no table.
pub fn device_numbers(device: &Path) -> Result<DeviceNumbers, AgentError> {
    let system = |source| AgentError::System { action: "look at the block device", source };
    let real = fs::canonicalize(device).map_err(system)?;
    let found = fs::metadata(&real).map_err(system)?;
    let own = (major(found.rdev()), minor(found.rdev()));
    let table = table()?;
    // Only those that belong to no disk have another one's name.
    let is_on_it = |line: &&Line| line.device.0 == 0 && line.disk().as_ref() == Some(&real);
    let roots = table.iter().filter(is_on_it).filter_map(Line::number_of_root);
    Ok(roots.chain([own]).collect())
}

impl MountChanges {
    /// Those from now on.
    ///
    /// # Errors
    /// The kernel shows no table.
    pub fn new() -> Result<MountChanges, AgentError> {
        let table = File::open(TABLE);
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

impl Disk {
    /// The disk of the file system that is mounted at `path`, or the block device that `path` is, mounted or not.
    ///
    /// # Errors
    /// `path` is neither.
    pub fn of(path: &Path) -> Result<Disk, AgentError> {
        let real = fs::canonicalize(path).ok();
        let is_device = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        match (MountedDisk::of(path), real.filter(is_device)) {
            (Ok(disk), _) => Ok(Disk { device: disk.device.clone(), mounted: Some(disk) }),
            (Err(_), Some(device)) => Ok(Disk { device, mounted: None }),
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

    /// Whether it is made of others (LVM, RAID, dm-crypt): then it has no requests of its own.
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

impl Line {
    /// `36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/root rw`, see proc_pid_mountinfo(5).
    fn parse(line: &str) -> Option<Line> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        let id = place.next()?.parse().ok()?;
        let mut place = place.skip(1);
        let (major, minor) = place.next()?.split_once(':')?;
        let (root, mount_point) = (unescaped(place.next()?), unescaped(place.next()?));
        let mut kind = kind.split(' ');
        let (file_system, source) = (kind.next()?.to_owned(), unescaped(kind.next()?));
        let device = (major.parse().ok()?, minor.parse().ok()?);
        Some(Line { id, device, root, mount_point: mount_point.into(), file_system, source: source.into() })
    }

    /// The block device, if there is one.
    fn disk(&self) -> Option<PathBuf> {
        let (major, minor) = self.device;
        let described = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
        if let Some(name) = described.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
            return Some(Path::new("/dev").join(name));
        }
        let source = fs::canonicalize(&self.source).ok()?;
        let is_disk = fs::metadata(&source).is_ok_and(|found| found.file_type().is_block_device());
        is_disk.then_some(source)
    }

    /// The number of the device that the files at the root of this mount have; `None` if another mount covers it.
    fn number_of_root(&self) -> Option<(u32, u32)> {
        let wanted = StatxFlags::MNT_ID;
        let found = statx(CWD, &self.mount_point, AtFlags::NO_AUTOMOUNT, wanted).ok()?;
        let is_it = found.stx_mask & wanted.bits() != 0 && found.stx_mnt_id == self.id;
        is_it.then_some((found.stx_dev_major, found.stx_dev_minor))
    }

    fn on(&self, device: PathBuf) -> MountedDisk {
        MountedDisk { device, mount_point: self.mount_point.clone(), file_system: self.file_system.clone() }
    }
}

fn table() -> Result<Vec<Line>, AgentError> {
    let text = fs::read_to_string(TABLE);
    let text = text.map_err(|source| AgentError::System { action: "read the table of mounts", source })?;
    Ok(text.lines().filter_map(Line::parse).collect())
}

/// The table writes blanks and the like as three octal digits behind a backslash.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => plain.extend([char::from(byte)].into_iter().chain(part[3..].chars())),
            None => plain.extend(['\\'].into_iter().chain(part.chars())),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read() {
        let line =
            Line::parse(r"36 35 98:0 /sub /mnt/a\040b rw,noatime master:1 shared:2 - ext4 /dev/ro\134ot rw,errors=x");
        let expected = Line {
            id: 36,
            device: (98, 0),
            root: "/sub".into(),
            mount_point: "/mnt/a b".into(),
            file_system: "ext4".into(),
            source: r"/dev/ro\ot".into(),
        };
        assert_eq!(line, Some(expected));
        for broken in [
            "",
            "x 35 98:0 / / rw - ext4 /dev/a rw",
            "36 35 98:0 / /",
            "36 35 x:0 / / rw - ext4 /dev/a",
            "36 35 98:0 / / rw - ",
        ] {
            assert_eq!(Line::parse(broken), None, "{broken}");
        }
    }

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
                assert!((1..u64::MAX).contains(&Disk::of(&disk.device).unwrap().size_bytes()), "{disk:?}");
                assert_eq!(MountedDisk::of(&disk.device).unwrap().device, disk.device);
            }
        }
    }
}
