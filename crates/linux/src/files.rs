//! Opening what has to be a regular file or a block device, without waiting.
//!
//! **Intuition.** To open a FIFO takes until a process opens its other end. A path that an operator named, or that a
//! note names, may lead to one. So each of these functions looks at the kind before it opens, and opens without
//! waiting. Then it looks at the kind of what it has opened: the path may lead to something else by then.

use rustix::fs::OFlags;
use std::error::Error;
use std::fmt;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// What is at a path has another kind than it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKind {
    /// The kind, in words: `a FIFO`.
    pub got: &'static str,
    /// The kinds that are allowed, in words.
    pub allowed: &'static str,
}

impl WrongKind {
    /// The wrong kind that `error` tells of, if it tells of one.
    pub fn behind(error: &io::Error) -> Option<WrongKind> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for WrongKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "got {}, allowed {}", self.got, self.allowed)
    }
}

impl Error for WrongKind {}

/// Opens the regular file at `path` for reading.
///
/// # Errors
/// The system's, or a [`WrongKind`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path, false, regular)
}

/// Opens the regular file or block device at `path` for reading, and for writing if `writes`.
///
/// # Errors
/// The system's, or a [`WrongKind`].
pub fn open_storage(path: &Path, writes: bool) -> io::Result<File> {
    open(path, writes, storage)
}

/// The content of the regular file at `path`.
///
/// # Errors
/// The system's, or a [`WrongKind`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses what is neither a regular file nor a block device.
///
/// # Errors
/// A [`WrongKind`].
pub fn storage(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    refuse_unless(kind.is_file() || kind.is_block_device(), kind, "a regular file or a block device")
}

pub(crate) fn regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    refuse_unless(kind.is_file(), kind, "a regular file")
}

fn open(path: &Path, writes: bool, check: fn(&Metadata) -> io::Result<()>) -> io::Result<File> {
    check(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn refuse_unless(is_allowed: bool, kind: FileType, allowed: &'static str) -> io::Result<()> {
    let got = match () {
        () if is_allowed => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() => "a block device",
        () => "a character device",
    };
    Err(io::Error::other(WrongKind { got, allowed }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::replace_file;
    use std::process::Command;

    /// A FIFO that no process writes to or reads. Outcome: each function refuses it at once; a draft of a note that is
    /// one is refused, too, and the note stays.
    ///
    /// Planted breaks: the kind is not looked at and the file is opened as any; the draft is made as any file. Both
    /// hung, seen by the time limit of tests.
    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let [fifo, note] = ["fifo", "note.json"].map(|name| directory.path().join(name));
        let make = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        make(&fifo);
        let kind = |error: io::Error| WrongKind::behind(&error).expect("of another kind");
        let wrong = WrongKind { got: "a FIFO", allowed: "a regular file" };
        assert_eq!(kind(read_regular(&fifo).unwrap_err()), wrong);
        let storage = WrongKind { allowed: "a regular file or a block device", ..wrong };
        assert_eq!([false, true].map(|writes| kind(open_storage(&fifo, writes).unwrap_err())), [storage; 2]);
        assert_eq!(kind(open_regular(directory.path()).unwrap_err()).got, "a directory");
        replace_file(&note, b"one").unwrap();
        make(&note.with_extension("new"));
        assert!(replace_file(&note, b"two").is_err());
        assert_eq!(read_regular(&note).unwrap(), b"one");
        assert_eq!(read_regular(&fifo.with_extension("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
