//! A folder of groups in a controller of cgroups version 1, removed at the end of the run.
//!
//! It is written down before it is made: a run that is killed leaves it, and the next one removes it.

use super::error::failed;
use super::{HostError, clock};
use plimsoll_core::Span;
use plimsoll_linux::{MOUNT_TABLE, MountTable};
use std::path::{Path, PathBuf};

/// Its name, before the host's process number.
const NAME: &str = "plimsoll-live-";
/// A process that was just killed may still be in its group.
const REMOVE_TRIES: u32 = 40;
const REMOVE_WAIT: Span = Span::from_millis(50);

/// Where the controller called `name` is mounted.
pub(super) fn controller(name: &str) -> Option<PathBuf> {
    controller_in(&MountTable::parse(&std::fs::read(MOUNT_TABLE).ok()?), name)
}

fn controller_in(mounts: &MountTable, name: &str) -> Option<PathBuf> {
    let mount = mounts.iter().find(|mount| mount.kind == "cgroup" && mount.has_option(name))?;
    Some(mount.target.clone())
}

/// A folder that was made. Dropping it removes it and the groups in it; their processes must have gone.
pub(super) struct GroupFolder {
    path: PathBuf,
    note: PathBuf,
}

impl GroupFolder {
    /// Makes it in the controller called `controller`, and notes it at `note`.
    pub(super) fn make(controller_name: &str, note: PathBuf) -> Result<GroupFolder, HostError> {
        let controller = controller(controller_name);
        let missing = || failed(format!("find the {controller_name} controller"), "it is not mounted");
        let path = controller.ok_or_else(missing)?.join(format!("{NAME}{}", std::process::id()));
        let folder = GroupFolder { path, note };
        std::fs::write(&folder.note, folder.path.display().to_string())
            .map_err(|error| failed(folder.note.display(), error))?;
        std::fs::create_dir(&folder.path).map_err(|error| failed(folder.path.display(), error))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it now. Says whether it is gone.
    pub(super) fn remove(&self) -> bool {
        match remove(&self.path) {
            Ok(()) => {
                let _ = std::fs::remove_file(&self.note);
                true
            }
            Err(error) => {
                eprintln!("groups were not removed: {error}; {} names them", self.note.display());
                false
            }
        }
    }

    /// What a run that was killed left, if it noted it at `note`.
    pub(super) fn left(controller_name: &str, note: PathBuf) -> Option<GroupFolder> {
        let text = std::fs::read_to_string(&note).ok()?;
        Some(GroupFolder { path: noted(&text, controller(controller_name))?, note })
    }
}

impl Drop for GroupFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes the groups in `folder` and it.
fn remove(folder: &Path) -> Result<(), String> {
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let groups = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir());
    for path in groups.chain([folder.to_owned()]) {
        let mut tries = 1;
        while let Err(error) = std::fs::remove_dir(&path) {
            if tries == REMOVE_TRIES {
                return Err(named(&path, error));
            }
            tries += 1;
            clock::sleep_until(clock::now() + REMOVE_WAIT);
        }
    }
    Ok(())
}

/// The folder that a note names, if it is one of the laboratory's.
fn noted(note: &str, controller: Option<PathBuf>) -> Option<PathBuf> {
    let folder = PathBuf::from(note);
    let number = folder.file_name()?.to_str()?.strip_prefix(NAME)?;
    let is_ours = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_ours && folder.parent() == controller.as_deref()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_a_folder_of_ours_or_none() {
        let controller = || Some(PathBuf::from("/sys/fs/cgroup/blkio"));
        let ours = "/sys/fs/cgroup/blkio/plimsoll-live-17";
        assert_eq!(noted(ours, controller()), Some(PathBuf::from(ours)));
        for other in
            ["/sys/fs/cgroup/blkio/system", "/sys/fs/plimsoll-live-17", "/sys/fs/cgroup/blkio/plimsoll-live-", ""]
        {
            assert_eq!(noted(other, controller()), None, "{other:?}");
        }
        assert_eq!(noted(ours, None), None);
    }

    #[test]
    fn a_controller_is_found_among_the_mounts() {
        let mounts = MountTable::parse(
            b"31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
              32 30 0:28 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
              34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,memory\n",
        );
        assert_eq!(controller_in(&mounts, "blkio"), Some(PathBuf::from("/sys/fs/cgroup/blkio")));
        assert_eq!(controller_in(&mounts, "memory"), None);
    }
}
