//! Whether a file or block device has another user than Plimsoll: a mount, swap space, another device.
//!
//! What is written below a file system that is mounted destroys it. A lock keeps daemons apart, and says nothing of the
//! kernel. So a block device that is written is opened with O_EXCL. The kernel refuses that for a device that is
//! mounted, is swap or belongs to a RAID or volume group. It also refuses if that is true of one of its partitions. It
//! refuses the mount as long as the device is open. For a regular file there is no such claim: whether it is swap, or
//! what a loop device lies on, is looked up.
//!
//! A loop device has the bytes of a file. So what lies beneath a block device ([`beneath`]) is looked up and locked,
//! too ([`lock`]). A process that opens the file and one that opens a loop device on it keep each other away, in either
//! order.

pub(crate) mod beneath;
mod loops;
mod range_lock;

use beneath::{ByteExtent, Layer};
use loops::loop_on;
use plimsoll_linux::files::open_storage;
use plimsoll_linux::process::is_ending;
use plimsoll_linux::{MOUNT_TABLE, MountTable};
use range_lock::lock_range;
use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Flags for opening `path` for writing, so that no other process has it. None for a regular file, or for what is not
/// there: with O_CREAT the flag means something else.
pub(crate) fn exclusive(path: &Path) -> OFlags {
    match fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        true => OFlags::EXCL,
        false => OFlags::empty(),
    }
}

/// What in the kernel uses the block device or file at `path`, in words: `mounted on /srv`. `None` where nothing does,
/// as far as it tells.
pub fn kernel_user_of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let kernel = Kernel {
        swaps: fs::read_to_string("/proc/swaps").unwrap_or_default(),
        table: MountTable::parse(&fs::read(MOUNT_TABLE).unwrap_or_default()),
    };
    kernel.user_of(&metadata, ByteExtent::ALL, None).or_else(|| {
        let layers = beneath::layers(path);
        // A member of a mapped device is in use: by that one.
        layers.iter().filter(|layer| layer.is_exact).find_map(|layer| {
            let by = kernel.user_of_layer(layer)?;
            Some(format!("{}, a device beneath it, is {by}", layer.path.display()))
        })
    })
}

/// What the kernel says of what is in use: swap and mounts.
struct Kernel {
    swaps: String,
    table: MountTable,
}

impl Kernel {
    /// The user of these bytes of a file, or of all of a block device, besides the loop device `except`.
    fn user_of(&self, metadata: &Metadata, extent: ByteExtent, except: Option<&str>) -> Option<String> {
        let of_device = metadata.file_type().is_block_device().then(|| {
            let number = (major(metadata.rdev()), minor(metadata.rdev()));
            with_partitions(number).into_iter().find_map(|number| user_of_device(number, &self.table, &self.swaps))
        });
        if let Some(user) = of_device.flatten() {
            return Some(user);
        }
        let is_it = |other: &Path| {
            fs::metadata(other).is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
        };
        if metadata.is_file() && swap_areas(&self.swaps).any(|area| is_it(&area)) {
            return Some("swap space".to_owned());
        }
        loop_on(metadata, extent, except, &self.table).map(|name| format!("the loop device /dev/{name}"))
    }

    /// The same of a layer beneath a block device. A partition's disk has other partitions, which may be in use.
    fn user_of_layer(&self, layer: &Layer) -> Option<String> {
        let metadata = fs::metadata(&layer.path).ok()?;
        if metadata.file_type().is_block_device() && !layer.above.starts_with("loop") {
            return None;
        }
        self.user_of(&metadata, layer.extent, Some(&layer.above))
    }
}

/// Locks that hold as long as the files are open.
pub(crate) type Locks = Vec<File>;

/// Locks the open file of `path` and all layers beneath it, shared with other readers or exclusively for a writer. What
/// lies beneath stays locked as long as the answer lives. `Err(WOULDBLOCK)`: another program has a lock.
pub(crate) fn lock(path: &Path, file: &File, is_shared: bool) -> Result<Locks, Errno> {
    let whole = match is_shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    patiently(path, || flock(file, whole))?;
    patiently(path, || lock_if_known(file, ByteExtent::ALL, is_shared))?;
    let mut locks = Vec::new();
    for layer in beneath::layers(path) {
        // A partition's disk is the kernel's to keep: by O_EXCL.
        if layer.path.is_file() || layer.above.starts_with("loop") {
            locks.extend(lock_layer(&layer, is_shared)?);
        }
    }
    Ok(locks)
}

/// A file that is gone, or that this user may not open, cannot be locked.
fn lock_layer(layer: &Layer, is_shared: bool) -> Result<Option<File>, Errno> {
    let is_shared = is_shared || !layer.is_exact;
    let file = match open_storage(&layer.path, !is_shared) {
        Ok(file) => file,
        Err(error) => {
            let (path, above) = (layer.path.display(), &layer.above);
            tracing::warn!(%path, above, %error, "cannot lock a device beneath a block device");
            return Ok(None);
        }
    };
    patiently(&layer.path, || flock(&file, FlockOperation::NonBlockingLockShared))?;
    patiently(&layer.path, || lock_if_known(&file, layer.extent, is_shared))?;
    Ok(Some(file))
}

/// A file system without locks on ranges has those on files.
fn lock_if_known(file: &File, extent: ByteExtent, is_shared: bool) -> Result<(), Errno> {
    match lock_range(file, extent, is_shared) {
        Err(Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        locked => locked,
    }
}

/// Tries to lock, and waits a moment for a daemon that was killed. The kernel does what its ring had under way, and
/// keeps the lock until that is done. So a daemon that has the lock knows that no write of a predecessor comes any
/// more. On a busy disk that takes longer than for a living holder to let go. Where every holder is dead or about to
/// die, the wait is longer.
pub(crate) fn patiently(path: &Path, lock: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    for tries in 0.. {
        match lock() {
            Err(Errno::WOULDBLOCK | Errno::ACCESS)
                if tries < TRIES || (tries < TRIES_OF_THE_DEAD && is_left_by_the_dead(path)) =>
            {
                pause();
            }
            // Between the try and the look at its holders the lock may have become free.
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => {
                return lock().map_err(|errno| if errno == Errno::ACCESS { Errno::WOULDBLOCK } else { errno });
            }
            locked => return locked,
        }
    }
    Err(Errno::WOULDBLOCK)
}

/// Whether processes have a lock on what is at `path`, and all of them are dead or about to die.
fn is_left_by_the_dead(path: &Path) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let Ok(file) = fs::metadata(path) else { return false };
    let own = std::process::id();
    let others = holders(&locks, file.dev(), file.ino()).into_iter().filter(|&holder| holder != own);
    let dead: Vec<bool> = others.map(is_ending).collect();
    !dead.is_empty() && dead.into_iter().all(|is_dead| is_dead)
}

fn pause() {
    // One that is interrupted is shorter.
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: PAUSE_NS });
}

/// Whether the block device at `path` is read-only, by its own flag or its disk's.
pub(crate) fn is_read_only_device(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let Ok(directory) = sys_of((major(metadata.rdev()), minor(metadata.rdev()))).canonicalize() else { return false };
    let disk = directory.parent().filter(|_| directory.join("partition").exists());
    let is_set = |of: &Path| fs::read_to_string(of.join("ro")).is_ok_and(|text| text.trim() == "1");
    is_set(&directory) || disk.is_some_and(is_set)
}

/// The process that has locked `path` or a file beneath it, in words: `served by the plimsoll daemon, process 812`.
pub(crate) fn locked_by(path: &Path) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let beneath = beneath::layers(path).into_iter().map(|layer| layer.path);
    let files = std::iter::once(path.to_owned()).chain(beneath).filter_map(|path| fs::metadata(path).ok());
    let holders: Vec<u32> = files.flat_map(|file| holders(&locks, file.dev(), file.ino())).collect();
    // What this process has locked itself on its way down is not in its way.
    let (own, others): (Vec<u32>, Vec<u32>) = holders.into_iter().partition(|&holder| holder == std::process::id());
    let Some(process) = others.first() else {
        return match own.is_empty() {
            true => "locked by another process".to_owned(),
            false => "used by another volume or cache of this daemon".to_owned(),
        };
    };
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    match name.trim_end() {
        "plimsoll" => format!("served by the plimsoll daemon, process {process}"),
        "" => format!("locked by process {process}"),
        name => format!("locked by process {process} ({})", plimsoll_core::shown(name)),
    }
}

/// Processes with a flock(2) lock on a file, from the text of /proc/locks. They are those of this PID namespace only.
fn holders(locks: &str, device: u64, inode: u64) -> Vec<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let holder = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        // Those that wait have an arrow before the kind.
        [_, "FLOCK", _, _, process, at, ..] if at == file => process.parse().ok().filter(|&process| process > 0),
        _ => None,
    };
    locks.lines().filter_map(holder).collect()
}

/// The numbers of a block device and of its partitions.
fn with_partitions(number: (u32, u32)) -> Vec<(u32, u32)> {
    let below = fs::read_dir(sys_of(number)).into_iter().flatten().flatten();
    let partitions = below.filter(|entry| entry.path().join("partition").exists());
    let numbers = partitions.filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    std::iter::once(number).chain(numbers).collect()
}

fn sys_of((major, minor): (u32, u32)) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

fn user_of_device(number: (u32, u32), table: &MountTable, swaps: &str) -> Option<String> {
    let has_number = |path: &Path| {
        fs::metadata(path).is_ok_and(|metadata| {
            metadata.file_type().is_block_device() && (major(metadata.rdev()), minor(metadata.rdev())) == number
        })
    };
    let is_of = |mount: &&plimsoll_linux::Mount| mount.device == number || mount.source_disk().is_some_and(has_number);
    if let Some(mount) = table.iter().find(is_of) {
        return Some(format!("mounted on {}", mount.target.display()));
    }
    if swap_areas(swaps).any(|area| has_number(&area)) {
        return Some("swap space".to_owned());
    }
    let holder = fs::read_dir(sys_of(number).join("holders")).ok()?.flatten().next()?;
    Some(format!("part of {}", holder.file_name().to_string_lossy()))
}

/// The first words of the lines of `/proc/swaps` behind its heading.
fn swap_areas(swaps: &str) -> impl Iterator<Item = PathBuf> {
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| PathBuf::from(path.replace("\\040", " ")))
}

/// How often a busy device is tried, with pauses, for two seconds in all. The kernel keeps the claim of a daemon that
/// was killed until what its ring had under way is done.
const TRIES: u32 = 100;
/// The same where it is known that the holder is dead or dying: 30 seconds.
const TRIES_OF_THE_DEAD: u32 = 1500;
const PAUSE_NS: i64 = 20_000_000;

/// Opens what is at `path` by `open`. If it is busy and has no known user, the daemon tries it again for a moment.
pub(crate) fn open_patiently(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let is_busy = |opened: &io::Result<File>| {
        opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) && kernel_user_of(path).is_none()
    };
    for _ in 0..TRIES {
        let opened = open();
        if !is_busy(&opened) {
            return opened;
        }
        pause();
    }
    open()
}

/// What uses what is at `path`, if `error` says that something does.
pub(crate) fn user_behind(path: &Path, error: &io::Error) -> Option<String> {
    let is_busy = error.raw_os_error() == Some(libc::EBUSY);
    is_busy.then(|| kernel_user_of(path).unwrap_or_else(|| "open elsewhere".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that was killed has its locks as long as the kernel does what its ring had under way. Here a child has
    /// them for longer than a living holder is waited for.
    ///
    /// Planted break: the dead are waited for as the living are; the lock is refused.
    #[test]
    fn a_lock_that_the_dead_left_is_waited_for() {
        use std::process::{Command, Stdio};
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut holder = Command::new("flock");
        holder.arg(file.path()).args(["sh", "-c", "echo; exec sleep 3"]).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        holder.kill().unwrap();
        assert!(lock(file.path(), file.as_file(), false).is_ok());
        holder.wait().unwrap();
    }

    #[test]
    fn swap_areas_are_the_first_words_behind_the_heading() {
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition 1 0 -2\n/a\\040file  file 1 0 -3\n";
        let areas: Vec<PathBuf> = swap_areas(swaps).collect();
        assert_eq!(areas, [Path::new("/dev/sda2"), Path::new("/a file")]);
        assert_eq!(swap_areas("").count(), 0);
    }

    /// Planted break, seen red: a process that waits for a lock is taken for the one that has it.
    #[test]
    fn the_holder_of_a_lock_is_told_from_those_that_wait_and_from_locks_of_other_kinds() {
        let locks = "1: -> FLOCK  ADVISORY  WRITE 7 08:01:42 0 EOF\n2: POSIX  ADVISORY  WRITE 8 08:01:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 08:01:42 0 EOF\n4: FLOCK  ADVISORY  READ 0 08:01:43 0 EOF\n";
        let device = rustix::fs::makedev(8, 1);
        assert_eq!(holders(locks, device, 42), [9]);
        assert_eq!((holders(locks, device, 43), holders(locks, device, 4)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_file_that_only_this_test_has_is_not_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!((kernel_user_of(&path), exclusive(&path)), (None, OFlags::empty()));
        std::fs::write(&path, [1; 4096]).unwrap();
        assert_eq!((kernel_user_of(&path), exclusive(&path)), (None, OFlags::empty()));
    }
}
