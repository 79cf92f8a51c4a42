//! The memory of the scenario's machine: a group of the memory controller, which its processes are in.
//!
//! **The intuition.** A page cache as large as this machine's would answer what a small machine asks its disk for.
//! **The rule.** With a cache before the device, processes are in a group with as much memory as the scenario's
//! machine. That covers their pages, the pages of their files, and the kernel's inodes and names of these. The
//! processes that prepare the files are in it, too. **The complication.** What the kernel's own threads read for
//! themselves (bitmaps of blocks, while they write back) is in no group. Limits of dirty memory are not a group's in
//! version 1: these are the machine's ([`knobs`](super::knobs)).

use super::HostError;
use super::error::failed;
use super::group_folder::{self, GroupFolder};
use std::path::{Path, PathBuf};

const CONTROLLER: &str = "memory";
/// Where the group is noted, beside the state directory.
const NOTE: &str = "memory-group";
const LIMIT: &str = "memory.limit_in_bytes";
const MEMBERS: &str = "cgroup.procs";

/// Why processes cannot be given a memory of their own, if so.
pub(super) fn why_not() -> Option<String> {
    let is_missing = group_folder::controller(CONTROLLER).is_none();
    is_missing.then(|| "a cache takes the memory controller of cgroups version 1, which is not mounted".to_owned())
}

/// The group. Dropping it removes it; its processes must have gone.
pub(super) struct MemoryGroup {
    folder: GroupFolder,
}

impl MemoryGroup {
    /// Makes a group of `bytes`; `mounted` is where the file system is mounted.
    pub(super) fn make(bytes: u64, mounted: &Path) -> Result<MemoryGroup, HostError> {
        let group = MemoryGroup { folder: GroupFolder::make(CONTROLLER, mounted.with_file_name(NOTE))? };
        group.write(LIMIT, &bytes.to_string())?;
        Ok(group)
    }

    /// Puts a process into it.
    pub(super) fn join(&self, process: u32) -> Result<(), HostError> {
        self.write(MEMBERS, &process.to_string())
    }

    fn write(&self, file: &str, value: &str) -> Result<(), HostError> {
        let path: PathBuf = self.folder.path().join(file);
        std::fs::write(&path, value).map_err(|error| failed(path.display(), error))
    }
}

/// Removes what a run that was killed left, if it did; `mounted` as for [`MemoryGroup::make`].
pub(super) fn recover(mounted: &Path) -> bool {
    GroupFolder::left(CONTROLLER, mounted.with_file_name(NOTE)).is_some()
}
