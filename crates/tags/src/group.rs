//! The kernel's identification of a cgroup, by hierarchy and number, and the cgroups of a process.

use crate::error::TagsError;
use crate::shared::Group;
use plimsoll_linux::{MOUNT_TABLE, MountTable};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Before the name of a hierarchy without controllers, in place of their names. The kernel keeps no way from a task to
/// its cgroup there that a program could take.
const NAMED: &str = "name=";
/// `CGROUP2_SUPER_MAGIC` and `CGROUP_SUPER_MAGIC`, `include/uapi/linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;
const CGROUP1_MAGIC: u64 = 0x0027_e0eb;

impl Group {
    /// The cgroup with the directory `path`, of version 2 or a hierarchy of version 1.
    pub(crate) fn of(path: &Path) -> Result<Group, TagsError> {
        let nobody = || TagsError::Nobody { what: format!("cgroup {}", path.display()) };
        // The inode's number is the kernel's number of the cgroup on machines of 64 bits.
        let id = fs::metadata(path).map_err(|_| nobody())?.ino();
        let file_system = rustix::fs::statfs(path).map_err(|_| nobody())?;
        match file_system.f_type as u64 {
            CGROUP2_MAGIC => return Ok(Group { id, hierarchy: 0 }),
            CGROUP1_MAGIC => {}
            _ => return Err(nobody()),
        }
        let mounts = mounts().map_err(TagsError::file(MOUNT_TABLE))?;
        let hierarchies = fs::read_to_string("/proc/self/cgroup").map_err(TagsError::file("/proc/self/cgroup"))?;
        let path = fs::canonicalize(path).map_err(|_| nobody())?;
        let without = || TagsError::Nobody { what: format!("controller of cgroup {}", path.display()) };
        let hierarchy = hierarchy_of(&path, &mounts, &hierarchies).ok_or_else(without)?;
        Ok(Group { id, hierarchy })
    }
}

/// Every mount that this process sees.
pub(crate) fn mounts() -> io::Result<MountTable> {
    fs::read(MOUNT_TABLE).map(|text| MountTable::parse(&text))
}

/// Directories of the mounted cgroups of a process that can be registered: version 2 first, then those of version 1
/// with controllers. Empty if there is no such process.
pub fn cgroups_of(process: u32) -> Vec<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mounts = mounts().unwrap_or_default();
    directories_of(&groups, &mounts)
}

/// From `/proc/PID/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc_pid_mountinfo(5)).
fn directories_of(groups: &str, mounts: &MountTable) -> Vec<PathBuf> {
    let mut found: Vec<_> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, Path::new(fields.next()?));
            let is_of_version_1 = !controllers.is_empty() && !controllers.starts_with(NAMED);
            let directory = mounts.iter().find_map(|mount| {
                let is_it = match mount.kind.as_str() {
                    "cgroup2" => controllers.is_empty(),
                    "cgroup" => is_of_version_1 && controllers.split(',').all(|name| mount.has_option(name)),
                    _ => false,
                };
                is_it.then(|| Some(mount.target.join(path.strip_prefix(&mount.root).ok()?)))?
            })?;
            Some((!controllers.is_empty(), directory))
        })
        .collect();
    found.sort_by_key(|(is_version_1, _)| *is_version_1);
    found.into_iter().map(|(_, directory)| directory).collect()
}

/// Number of the hierarchy of version 1 that is mounted above `path`. The mount has its controllers, and
/// `/proc/self/cgroup` the hierarchy of each. `None` for one without controllers.
fn hierarchy_of(path: &Path, mounts: &MountTable, hierarchies: &str) -> Option<u64> {
    let above = mounts.iter().filter(|mount| mount.kind == "cgroup" && path.starts_with(&mount.target));
    let mount = above.max_by_key(|mount| mount.target.as_os_str().len())?;
    hierarchies.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (number, controllers) = (fields.next()?, fields.next()?);
        let has_controllers = !controllers.is_empty() && !controllers.starts_with(NAMED);
        let is_it = has_controllers && controllers.split(',').all(|name| mount.has_option(name));
        is_it.then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_found_by_its_controllers() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
                      32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup none rw,name=systemd\n";
        let hierarchies = "9:name=systemd:/\n4:memory:/a\n3:cpu,cpuacct:/\n0::/\n";
        let of = |path| hierarchy_of(Path::new(path), &MountTable::parse(mounts.as_bytes()), hierarchies);
        assert_eq!(of("/sys/fs/cgroup/memory/tenant"), Some(4));
        assert_eq!(of("/sys/fs/cgroup/cpu,cpuacct"), Some(3));
        assert_eq!(of("/sys/fs/cgroup/systemd/x"), None);
        assert_eq!(of("/tmp"), None);
    }

    #[test]
    fn the_directories_of_a_process_are_below_the_mounts_of_its_hierarchies() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
                      32 30 0:28 /pod /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup none rw,name=systemd\n\
                      34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
        let of = |groups| {
            let found = directories_of(groups, &MountTable::parse(mounts.as_bytes())).into_iter();
            found.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all = ["/sys/fs/cgroup/unified/a:b", "/sys/fs/cgroup/memory/c", "/sys/fs/cgroup/cpu,cpuacct/"];
        assert_eq!(of("9:name=systemd:/x\n4:memory:/pod/c\n3:cpu,cpuacct:/\n2:pids:/y\n0::/a:b\n"), all);
        assert_eq!(of("4:memory:/outside\n"), [""; 0]);
        assert_eq!(of("nonsense\n\n:"), [""; 0]);
    }
}
