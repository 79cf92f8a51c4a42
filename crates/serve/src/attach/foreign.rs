//! Mounts of other daemons. A daemon with another state directory knows nothing of them, and would mount over them.
//!
//! A daemon that was killed leaves its mounts. The next one with the same state directory undoes them
//! ([`recover`](super::recover)). One with another directory finds a mount point that is a directory like any other. So
//! the table of mounts tells what is on top there. A loop device on a file that a Plimsoll daemon mounted is a volume
//! of that daemon.

use super::state::{MARKED_NAMES_BEGIN, is_held};
use plimsoll_linux::{MOUNT_TABLE, MountTable};
use std::path::{Path, PathBuf};

/// The other daemon's volume that is mounted at `target`, in words; `None` if there is none. `own` is the state
/// directory of this daemon.
pub fn foreign_mount(target: &Path, own: &Path) -> Option<String> {
    let absolute = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let (target, own) = (absolute(target).ok()?, absolute(own).ok()?);
    let backing_file = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    };
    let disk = disk_beneath(&MountTable::parse(&std::fs::read(MOUNT_TABLE).ok()?), &target, backing_file)?;
    let state = disk.parent().filter(|state| *state != own)?;
    let (volume, state_directory) = (disk.file_stem().unwrap_or_default().to_string_lossy(), state.display());
    let of = format!("on which volume {volume} of a daemon with the state directory {state_directory} is mounted");
    Some(match is_held(state) {
        true => format!("{of}, which is running"),
        false => format!("{of}, which has ended: plimsoll up with that directory undoes it, or umount"),
    })
}

/// The file, mounted by a Plimsoll daemon, beneath the top file system at `target`.
fn disk_beneath(table: &MountTable, target: &Path, backing_file: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let device = table.on_top_at(target)?.source.strip_prefix("/dev").ok()?.to_str()?.to_owned();
    let disk = backing_file(&device)?;
    let is_ours = |mount: &plimsoll_linux::Mount| {
        mount.kind == "fuse" && mount.source.as_os_str().as_encoded_bytes().starts_with(MARKED_NAMES_BEGIN.as_bytes())
    };
    table.on_top_at(&disk).is_some_and(is_ours).then_some(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_another_daemon_is_told_from_other_mounts() {
        let table = MountTable::parse(
            b"36 35 7:3 / /mnt/a rw - ext4 /dev/loop3 rw\n37 35 7:4 / /mnt/b rw - ext4 /dev/loop4 rw\n\
              38 35 8:1 / /mnt/c rw - ext4 /dev/sda1 rw\n39 35 0:50 / /run/p/db.disk rw - fuse plimsoll:0123:db rw\n\
              40 35 0:51 / /run/q/db.disk rw - fuse sshfs rw\n",
        );
        let backing_file = |name: &str| match name {
            "loop3" => Some("/run/p/db.disk".into()),
            "loop4" => Some("/run/q/db.disk".into()),
            _ => None,
        };
        let found = |target: &str| disk_beneath(&table, Path::new(target), backing_file);
        assert_eq!(found("/mnt/a"), Some("/run/p/db.disk".into()));
        assert_eq!(["/mnt/b", "/mnt/c", "/mnt/d"].map(found), [None, None, None]);
    }
}
