//! Which loop devices lie on a file.
//!
//! **Complication.** LOOP_GET_STATUS64 says which file a loop device has. A path in sysfs says little if the file was
//! renamed or has several names. The kernel then asks the file system of that file. The loop devices of this daemon's
//! own mounts lie on FUSE files; their server may be this daemon, or one that hangs. So a loop device on another FUSE
//! file system is passed over.

use super::beneath::ByteExtent;
use crate::loop_control;
use plimsoll_linux::MountTable;
use rustix::fs::{major, minor};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A loop device, other than `except`, that has some of these bytes of the file.
pub(super) fn loop_on(file: &Metadata, extent: ByteExtent, except: Option<&str>, table: &MountTable) -> Option<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("loop") && except != Some(name)).find(|name| {
        let directory = Path::new("/sys/block").join(name).join("loop");
        let Ok(backing) = fs::read_to_string(directory.join("backing_file")) else { return false };
        let backing = Path::new(backing.trim_end_matches('\n'));
        if is_elsewhere_on_fuse(backing, file, table) {
            return false;
        }
        let number = |what: &str| {
            fs::read_to_string(directory.join(what)).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (offset, limit) = (number("offset"), number("sizelimit"));
        let end = if limit == 0 { u64::MAX } else { offset.saturating_add(limit) };
        is_on(name, backing, file) && extent.meets(ByteExtent { begin: offset, end })
    })
}

/// Whether the file of this loop device is `file`: by the loop device's word, or by its path if that is not permitted.
fn is_on(name: &str, backing: &Path, file: &Metadata) -> bool {
    let asked = File::open(Path::new("/dev").join(name)).and_then(|device| loop_control::status(&device));
    match asked {
        Ok(status) => (status.device, status.inode) == (file.dev(), file.ino()),
        Err(_) => fs::metadata(backing).is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino())),
    }
}

fn is_elsewhere_on_fuse(backing: &Path, file: &Metadata, table: &MountTable) -> bool {
    let above = table.iter().filter(|mount| backing.starts_with(&mount.target));
    let mount = above.max_by_key(|mount| mount.target.as_os_str().len());
    mount.is_some_and(|mount| mount.kind.starts_with("fuse") && mount.device != (major(file.dev()), minor(file.dev())))
}
