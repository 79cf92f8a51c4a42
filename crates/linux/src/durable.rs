//! Files that are replaced durably, whole or not at all.
//!
//! **Rule.** A note is written before the change that it describes. A daemon that dies between the two leaves a note
//! without a change, which its successor can find out. It never leaves a change without a note. So the note is on the
//! disk when [`replace_file`] returns.

use crate::files::regular;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path` by one with `bytes` in it, or makes it. After a crash or power loss the old content is
/// there, or the new one. A process that is killed in the middle leaves `path` with the extension `new` behind; the
/// next call replaces that file. Two flushes of the disk: the file, then its directory.
///
/// # Errors
/// The system's: no space, no permission, a directory that is not there. The old file is untouched then.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // A FIFO there would be waited for.
    let mut draft = OpenOptions::new();
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut file = draft.write(true).create(true).truncate(true).custom_flags(flags).open(&new)?;
    regular(&file.metadata()?)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.and_then(|()| sync_directory_of(path))
}

/// Removes the file at `path` durably; a file that is not there is no error.
///
/// # Errors
/// The system's.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_directory_of(path)),
    }
}

/// Makes what was made, renamed or removed at `path` durable.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: the file is written in place (a directory where the draft should lie destroys it).
    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("note.json");
        replace_file(&path, b"one").unwrap();
        replace_file(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(replace_file(&path, b"three").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        // Nothing is left of a replacement that fails at its end.
        let folder = directory.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(replace_file(&folder, b"four").is_err() && !folder.with_extension("new").exists());
    }

    #[test]
    fn a_file_that_is_removed_is_gone_and_one_that_is_not_there_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("note");
        remove_file(&path).unwrap();
        replace_file(&path, b"").unwrap();
        remove_file(&path).unwrap();
        assert!(!path.exists());
        assert!(remove_file(&directory.path().join("note/below")).is_ok());
    }
}
