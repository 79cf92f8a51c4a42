//! Cgroups that can be frozen.
//!
//! Version 2 has `cgroup.freeze` in each cgroup but the root (Linux 5.2). It needs no controller, so the unified tree
//! that is mounted beside version 1 has it too. Version 1 has the controller `freezer`. A frozen cgroup of version 2
//! can be killed; one of version 1 dies when it is thawed.
//!
//! Both stop a process where it returns from the kernel, or where it sleeps there by its own wish. So it never has a
//! lock of a file system. A process that is stopped, traced, or in an uninterruptible sleep stops later than the
//! others.

use plimsoll_linux::{MOUNT_TABLE, MountTable};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

const CONTROLLER_1: &str = "freezer";
const MEMBERS: &str = "cgroup.procs";
const STATE_1: &str = "freezer.state";
const ITSELF_1: &str = "freezer.self_freezing";
const STATE_2: &str = "cgroup.freeze";
const EVENTS_2: &str = "cgroup.events";
/// Bytes of an answer of the kernel's that are read.
const ANSWER_MAX: usize = 64;

/// The versions of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// With the controller `freezer`.
    First,
    /// With `cgroup.freeze`.
    Second,
}

/// A mounted tree of cgroups that can be frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its version.
    pub version: CgroupVersion,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Which of its cgroups is mounted there.
    root: PathBuf,
}

impl Hierarchy {
    /// Those that this process sees, version 2 first.
    pub fn all() -> Vec<Hierarchy> {
        Hierarchy::among(&MountTable::parse(&fs::read(MOUNT_TABLE).unwrap_or_default()))
    }

    /// Those in a table of mounts, version 2 first.
    pub fn among(mounts: &MountTable) -> Vec<Hierarchy> {
        let find = |version| {
            let is_it = |mount: &&plimsoll_linux::Mount| match version {
                CgroupVersion::Second => mount.kind == "cgroup2",
                CgroupVersion::First => mount.kind == "cgroup" && mount.has_option(CONTROLLER_1),
            };
            let mount = mounts.iter().find(is_it)?;
            Some(Hierarchy { version, mount: mount.target.clone(), root: mount.root.clone() })
        };
        [CgroupVersion::Second, CgroupVersion::First].into_iter().filter_map(find).collect()
    }

    /// The directory of the cgroup that a process is in, if it is below the mount.
    pub fn directory_of(&self, process: u32) -> Option<PathBuf> {
        self.directory_in(&fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
    }

    /// From the text of `/proc/PID/cgroup` (cgroups(7)).
    fn directory_in(&self, text: &str) -> Option<PathBuf> {
        let path = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = match self.version {
                CgroupVersion::Second => controllers.is_empty(),
                CgroupVersion::First => controllers.split(',').any(|name| name == CONTROLLER_1),
            };
            is_it.then_some(Path::new(path))
        })?;
        // In another namespace, or deleted.
        if path.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let directory = self.mount.join(path.strip_prefix(&self.root).ok()?);
        directory.is_dir().then_some(directory)
    }
}

/// A cgroup that can be frozen. It stays the same one, also where its name is given to another.
#[derive(Debug)]
pub struct FreezableCgroup {
    /// Where it is.
    pub directory: PathBuf,
    /// Its version.
    pub version: CgroupVersion,
    /// The number of its directory.
    pub inode: u64,
    state: File,
    /// Says whether it is frozen itself, and not by one that it is in.
    itself: Option<File>,
}

impl FreezableCgroup {
    /// The cgroup at `directory`.
    ///
    /// # Errors
    /// In one line, after its name: it is none, the root of its tree, or this user may not freeze it.
    pub fn open(directory: &Path) -> Result<FreezableCgroup, String> {
        let open = |name: &str, may_write| File::options().read(true).write(may_write).open(directory.join(name));
        let inode = fs::metadata(directory).map_err(|error| format!("cannot be looked at: {error}"))?.ino();
        let directory = directory.to_owned();
        match (open(STATE_2, true), open(STATE_1, true)) {
            (Ok(state), _) => {
                Ok(FreezableCgroup { directory, version: CgroupVersion::Second, inode, state, itself: None })
            }
            (_, Ok(state)) => {
                let itself = Some(open(ITSELF_1, false).map_err(|error| format!("{ITSELF_1}: {error}"))?);
                Ok(FreezableCgroup { directory, version: CgroupVersion::First, inode, state, itself })
            }
            (Err(error), _) => Err(format!("cannot be frozen: {STATE_2}, {STATE_1}: {error}")),
        }
    }

    /// The file by which it is frozen.
    pub fn state_path(&self) -> PathBuf {
        self.directory.join(match self.version {
            CgroupVersion::First => STATE_1,
            CgroupVersion::Second => STATE_2,
        })
    }

    /// Whether it is frozen itself, by us or its owner. One system call.
    ///
    /// # Errors
    /// It is gone.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let answer = answer(self.itself.as_ref().unwrap_or(&self.state))?;
        Ok(answer.trim() == "1")
    }

    /// Freezes or thaws it. One system call, which waits for no process of it; the kernel may make it wait for other
    /// changes of cgroups.
    ///
    /// # Errors
    /// It is gone.
    pub fn set_frozen(&self, is_frozen: bool) -> io::Result<()> {
        let text = match (self.version, is_frozen) {
            (CgroupVersion::First, true) => "FROZEN",
            (CgroupVersion::First, false) => "THAWED",
            (CgroupVersion::Second, true) => "1",
            (CgroupVersion::Second, false) => "0",
        };
        self.state.write_all_at(text.as_bytes(), 0)
    }

    /// Whether all its processes have stopped.
    pub fn is_complete(&self) -> bool {
        match self.version {
            CgroupVersion::First => answer(&self.state).is_ok_and(|state| state.trim() == "FROZEN"),
            CgroupVersion::Second => fs::read_to_string(self.directory.join(EVENTS_2))
                .is_ok_and(|events| events.lines().any(|line| line == "frozen 1")),
        }
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<u32> {
        members(&self.directory)
    }
}

/// The processes of a cgroup.
pub fn members(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join(MEMBERS)).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Moves a process into a cgroup. It takes up to some ten milliseconds.
///
/// # Errors
/// The process is gone, or the kernel refuses.
pub fn move_into(directory: &Path, process: u32) -> io::Result<()> {
    fs::write(directory.join(MEMBERS), process.to_string())
}

fn answer(file: &File) -> io::Result<String> {
    let mut bytes = [0; ANSWER_MAX];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        32 30 0:28 /a /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
        34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";

    /// Planted breaks: version 1 first; a controller with a name that begins like it; a path outside of the mount.
    #[test]
    fn both_trees_are_found_and_where_a_process_is_in_them() {
        let found = Hierarchy::among(&MountTable::parse(MOUNTS.as_bytes()));
        let versions: Vec<_> = found.iter().map(|hierarchy| hierarchy.version).collect();
        assert_eq!(versions, [CgroupVersion::Second, CgroupVersion::First]);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        let within = |hierarchy: &Hierarchy, text: &str| {
            let hierarchy = Hierarchy { mount: folder.path().to_owned(), ..hierarchy.clone() };
            let found = hierarchy.directory_in(text)?;
            Some(found.strip_prefix(folder.path()).unwrap().display().to_string())
        };
        let (second, first) = (&found[0], &found[1]);
        let text = "7:freezers:/a/x\n6:freezer:/a/b\n1:cpu:/y\n0::/b/c\n";
        assert_eq!((within(second, text).as_deref(), within(first, text).as_deref()), (Some("b/c"), Some("b")));
        assert_eq!(within(first, "6:freezer:/other/b\n"), None);
        assert_eq!((within(second, "0::/../b\n"), within(second, "0::/gone (deleted)\n")), (None, None));
        assert_eq!(within(second, "0::/\n").as_deref(), Some(""));
    }

    #[test]
    fn what_cannot_be_frozen_is_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = FreezableCgroup::open(folder.path()).unwrap_err();
        assert!(refusal.starts_with("cannot be frozen: cgroup.freeze, freezer.state: "), "{refusal}");
        assert!(FreezableCgroup::open(&folder.path().join("none")).unwrap_err().starts_with("cannot be looked at: "));
    }
}
