//! One agent a disk: a machine-wide lock by the disk's number, which only root can take. The kernel releases it when
//! the process that has it ends.

use plimsoll_gates::GateError;
use plimsoll_gates::directory::make_state;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Directory of locks, wherever an agent keeps its state. It is root's, so no other user can create a file in it. Any
/// process could take the name of a socket.
const LOCKS: &str = "/run/plimsoll";

/// What one process a disk may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskUse {
    /// Sets the limits of cgroups on it.
    Limits,
    /// Observes its requests and has tenants on it.
    Tenants,
}

impl DiskUse {
    fn name(self) -> &'static str {
        match self {
            DiskUse::Limits => "limits",
            DiskUse::Tenants => "tenants",
        }
    }

    fn told(self) -> &'static str {
        match self {
            DiskUse::Limits => "sets the limits on",
            DiskUse::Tenants => "has the tenants of",
        }
    }
}

/// Why a disk cannot be locked.
#[derive(Debug, Error)]
pub enum DiskLockError {
    /// Another process has the lock.
    #[error("another agent already {} {device}", usage.told())]
    Held {
        /// The disk's number.
        device: String,
        /// The use that it is locked for.
        usage: DiskUse,
    },
    /// There is no place for its lock.
    #[error(transparent)]
    Directory(#[from] GateError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A lock that lasts as long as this value or its process. Its file goes with it.
#[derive(Debug)]
pub struct DiskLock {
    path: PathBuf,
    _file: OwnedFd,
}

impl DiskLock {
    /// Takes the lock of a disk for `usage`, by its number, such as `8:16`.
    ///
    /// # Errors
    /// Another process has the lock, or another user owns the directory of locks.
    pub fn take(usage: DiskUse, device: &str) -> Result<DiskLock, DiskLockError> {
        DiskLock::take_in(Path::new(LOCKS), usage, device)
    }

    fn take_in(directory: &Path, usage: DiskUse, device: &str) -> Result<DiskLock, DiskLockError> {
        make_state(directory)?;
        let path = directory.join(format!("{}-{}.lock", usage.name(), device.replace(':', "-")));
        loop {
            let failed = |errno: Errno| DiskLockError::File { path: path.clone(), source: errno.into() };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(DiskLockError::Held { device: device.to_owned(), usage }),
                locked => locked.map_err(failed)?,
            }
            // Its holder may have removed the file meanwhile.
            let ours = fstat(&file).map_err(failed)?;
            if stat(&path).is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)) {
                return Ok(DiskLock { path, _file: file });
            }
        }
    }
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // No other process has it while it is locked.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Broken on purpose and seen red: nothing is locked; the file stays.
    /// Promise: tenants-one-agent, tenants-strangers-disk.
    #[test]
    fn a_disk_is_one_agents_and_the_next_ones_when_it_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("run");
        let take = |usage, device| DiskLock::take_in(&directory, usage, device);
        let lock = take(DiskUse::Limits, "8:16").unwrap();
        let refused = take(DiskUse::Limits, "8:16").unwrap_err().to_string();
        assert_eq!(refused, "another agent already sets the limits on 8:16");
        let others = [take(DiskUse::Limits, "8:0").unwrap(), take(DiskUse::Tenants, "8:16").unwrap()];
        let refused = take(DiskUse::Tenants, "8:16").unwrap_err().to_string();
        assert_eq!(refused, "another agent already has the tenants of 8:16");
        drop((lock, others));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        // A killed agent's file has no owner.
        std::fs::write(directory.join("limits-8-16.lock"), "").unwrap();
        take(DiskUse::Limits, "8:16").unwrap();
    }

    /// Promise: tenants-strangers-disk.
    #[test]
    fn where_any_user_may_have_been_nothing_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let refused = DiskLock::take_in(folder.path(), DiskUse::Tenants, "8:16").unwrap_err().to_string();
        assert!(refused.contains("others may write to it"), "{refused}");
    }
}
