//! One agent a disk: a lock that no stranger can hold.

use super::LimitsError;
use plimsoll_gates::directory::make_state;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where locks are, wherever an agent notes its limits: in a directory of root's, which nobody else can enter a file into. The name
/// of a socket could be anybody's.
pub(super) const LOCKS: &str = "/run/plimsoll";

/// Held for as long as this lives, or its process does; the file goes with it.
#[derive(Debug)]
pub(super) struct DiskLock {
    path: PathBuf,
    _file: OwnedFd,
}

impl DiskLock {
    /// Takes the lock of a disk, by its number.
    ///
    /// # Errors
    /// Another agent has it; the directory is not ours.
    pub(super) fn take(directory: &Path, device: &str) -> Result<DiskLock, LimitsError> {
        make_state(directory)?;
        let path = directory.join(format!("limits-{}.lock", device.replace(':', "-")));
        loop {
            let failed = |errno: Errno| LimitsError::File { path: path.clone(), source: errno.into() };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(LimitsError::Held { device: device.to_owned() }),
                locked => locked.map_err(failed)?,
            }
            // Whoever had it may have removed the file meanwhile.
            let ours = fstat(&file).map_err(failed)?;
            if stat(&path).is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)) {
                return Ok(DiskLock { path, _file: file });
            }
        }
    }
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // Nobody else has it while it is locked.
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
    #[test]
    fn a_disk_is_one_agents_and_the_next_ones_when_it_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("run");
        let lock = DiskLock::take(&directory, "8:16").unwrap();
        let refused = DiskLock::take(&directory, "8:16").unwrap_err().to_string();
        assert_eq!(refused, "another agent already sets the limits on 8:16");
        let other = DiskLock::take(&directory, "8:0").unwrap();
        drop((lock, other));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        // A killed agent's file is nobody's.
        std::fs::write(directory.join("limits-8-16.lock"), "").unwrap();
        DiskLock::take(&directory, "8:16").unwrap();
    }

    #[test]
    fn where_anybody_may_have_been_nothing_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let refused = DiskLock::take(folder.path(), "8:16").unwrap_err().to_string();
        assert!(refused.contains("others may write to it"), "{refused}");
    }
}
