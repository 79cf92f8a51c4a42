//! How the kernel names a cgroup: by hierarchy and number.

use crate::error::TagsError;
use crate::shared::Group;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `CGROUP2_SUPER_MAGIC`, `include/uapi/linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

impl Group {
    /// The cgroup whose directory is `path`, of version 2 or of a hierarchy of version 1.
    pub(crate) fn of(path: &Path) -> Result<Group, TagsError> {
        let nobody = || TagsError::Nobody { what: format!("cgroup {}", path.display()) };
        // The inode's number is the kernel's number of the cgroup on machines of 64 bits.
        let id = fs::metadata(path).map_err(|_| nobody())?.ino();
        let file_system = rustix::fs::statfs(path).map_err(|_| nobody())?;
        if file_system.f_type as u64 == CGROUP2_MAGIC {
            return Ok(Group { id, hierarchy: 0 });
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(TagsError::file("/proc/self/mountinfo"))?;
        let hierarchies = fs::read_to_string("/proc/self/cgroup").map_err(TagsError::file("/proc/self/cgroup"))?;
        let path = fs::canonicalize(path).map_err(|_| nobody())?;
        let hierarchy = hierarchy_of(&path, &mounts, &hierarchies).ok_or_else(nobody)?;
        Ok(Group { id, hierarchy })
    }
}

/// The number of the hierarchy of version 1 that is mounted above `path`: the mount says its controllers, and
/// `/proc/self/cgroup` which hierarchy has them.
fn hierarchy_of(path: &Path, mounts: &str, hierarchies: &str) -> Option<u64> {
    let mounted = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut source = source.split(' ');
        (source.next()? == "cgroup" && path.starts_with(point)).then_some((point.len(), source.nth(1)?))
    });
    let options: BTreeSet<_> = mounted.max()?.1.split(',').collect();
    hierarchies.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (number, controllers) = (fields.next()?, fields.next()?);
        let is_it = !controllers.is_empty() && controllers.split(',').all(|name| options.contains(name));
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
        let of = |path| hierarchy_of(Path::new(path), mounts, hierarchies);
        assert_eq!(of("/sys/fs/cgroup/memory/tenant"), Some(4));
        assert_eq!(of("/sys/fs/cgroup/cpu,cpuacct"), Some(3));
        assert_eq!(of("/sys/fs/cgroup/systemd/x"), Some(9));
        assert_eq!(of("/tmp"), None);
    }
}
