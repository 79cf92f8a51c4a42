//! Finds files by inode number, which is all that is known of them below the page cache.
//!
//! To start writeback of a file one needs it open. No process gives us a descriptor: the process that dirtied it is
//! busy, or gone. The file system opens it by its inode, as it does for NFS (open_by_handle_at(2),
//! `CAP_DAC_READ_SEARCH`). Ext4, XFS, and the mounted subvolume of btrfs can do that. An opened file is kept, as long
//! as there are no more than [`FILES_MAX`].
//!
//! An open file cannot be deleted for good. So a file is closed after [`KEPT_FOR`] without a request for it.
//!
//! **Opening and closing takes the disk.** Opening may have to read the inode. The last close of a deleted file frees
//! it: it waits for pages that are being written, and for the journal. A thread that serves the volume which these
//! files lie on would wait for itself. So [`Files`] stay on the thread that opened them, which the compiler sees to:
//!
//! ```compile_fail,E0277
//! fn can_be_sent<T: Send>() {}
//! can_be_sent::<plimsoll_agent::files::Files>();
//! ```

mod handle;

use handle::{open_on_btrfs, open_on_ext4, open_on_xfs};
use plimsoll_core::{FileId, Span, Time};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most files that are kept open: a small part of what a process may have open (1024 by default).
pub const FILES_MAX: usize = 256;
/// How long a file without calls is kept open. A tenant that deletes it soon has its space back.
pub const KEPT_FOR: Span = Span::from_secs(1);

const EXT4_MAGIC: i64 = 0xEF53;
const XFS_MAGIC: i64 = 0x5846_5342;
const BTRFS_MAGIC: i64 = 0x9123_683E;

type Open = fn(&File, u64, OFlags) -> Result<File, Errno>;

/// To read it; a file that no thread may wait for.
const TO_READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOATIME);

/// The files of one mounted file system. They are opened and closed on the thread that made this, and on no other.
pub struct Files {
    mount: File,
    open: Option<Open>,
    kept: BTreeMap<FileId, (File, Time)>,
    /// Like a pointer, this is not sent to another thread.
    stays: PhantomData<*const ()>,
}

impl Files {
    /// The files of the file system that is mounted at `mount_point`.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(mount_point: &Path) -> std::io::Result<Files> {
        let mount = File::open(mount_point)?;
        let open: Option<Open> = match rustix::fs::fstatfs(&mount)?.f_type {
            EXT4_MAGIC => Some(open_on_ext4),
            XFS_MAGIC => Some(open_on_xfs),
            BTRFS_MAGIC => Some(open_on_btrfs),
            _ => None,
        };
        Ok(Files { mount, open, kept: BTreeMap::new(), stays: PhantomData })
    }

    /// The regular file with this inode, if there is one and it can be opened. O(log files) if it is kept.
    pub fn find(&mut self, now: Time, file: FileId) -> Option<&File> {
        if !self.kept.contains_key(&file) {
            let found = self.open_regular(file)?;
            if self.kept.len() >= FILES_MAX {
                self.kept.clear();
            }
            self.kept.insert(file, (found, now));
        }
        let (found, asked) = self.kept.get_mut(&file)?;
        *asked = now;
        Some(found)
    }

    fn open_regular(&self, file: FileId) -> Option<File> {
        let found = self.open?(&self.mount, file.0, TO_READ).ok()?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode);
        (kind == FileType::RegularFile).then_some(found)
    }

    /// The path of the regular file with this inode below the mount point, if the kernel remembers it. `None` for a
    /// file that no process has opened by name lately, or that was deleted.
    pub fn path(&mut self, now: Time, file: FileId) -> Option<PathBuf> {
        let found = self.find(now, file)?;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
        // A file that is opened by its inode may have no name in memory.
        let is_it = std::fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == file.0);
        is_it.then_some(path)
    }

    /// The inode's status, of whatever kind it is. Nothing is kept open, and nothing of it is read or begun: it may be
    /// a device.
    ///
    /// # Errors
    /// There is none (`STALE`), or files of this file system cannot be found by their inode (`OPNOTSUPP`).
    pub fn look(&self, inode: u64) -> Result<Stat, Errno> {
        let open = self.open.ok_or(Errno::OPNOTSUPP)?;
        rustix::fs::fstat(open(&self.mount, inode, OFlags::PATH)?)
    }

    /// Whether some are kept open.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Closes all.
    pub fn close(&mut self) {
        self.kept.clear();
    }

    /// Closes what was not asked for lately. O(files kept).
    pub fn close_old(&mut self, now: Time) {
        self.kept.retain(|_, (_, asked)| now.since(*asked) < KEPT_FOR);
    }
}
