//! What a process asked the kernel for: the system-call level of split scheduling (split-level paper, table 2).

use crate::account::AccountId;
use crate::time::Time;

/// The host's name for a call between its entry and its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A file, by a number that the host gives out (live: device and inode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

impl FileId {
    /// The device itself, as the file of a file system's metadata: each of its pages at its place on the device. What a
    /// journal or log writes is not: it is no process's page.
    pub const DEVICE: FileId = FileId(0);
}

/// A thread, by a number that the host gives out (live: the kernel's thread id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// Which call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// read, pread, readv.
    Read,
    /// write, pwrite, writev, pwritev2.
    Write,
    /// fsync.
    Fsync,
    /// fdatasync.
    Fdatasync,
    /// open with O_CREAT, creat.
    Create,
    /// mkdir.
    MakeDirectory,
    /// unlink, rmdir.
    Unlink,
    /// rename.
    Rename,
    /// truncate, ftruncate.
    Truncate,
    /// fallocate.
    Allocate,
}

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The host's name for it.
    pub id: CallId,
    /// The account that pays.
    pub account: AccountId,
    /// The thread that waits.
    pub thread: ThreadId,
    /// Which call it is.
    pub kind: CallKind,
    /// The file it works on.
    pub file: FileId,
    /// First byte, for reads and writes.
    pub offset: u64,
    /// Number of bytes, for reads and writes.
    pub length: u64,
    /// When the process entered it.
    pub entered: Time,
}
