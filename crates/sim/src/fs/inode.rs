//! What the machine knows of a file, whatever the file system.

use crate::cache::{InodeNumber, PAGE_BYTES};
use crate::executor::wait::{Group, Semaphore};
use plimsoll_core::{Class, Time};
use std::cell::Cell;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// A file or directory.
pub struct Inode {
    /// Its number, never used again in a run.
    pub number: InodeNumber,
    /// What it is.
    pub kind: InodeKind,
    /// Held by a task that writes, truncates, or changes a directory (Linux `i_rwsem`; its readers are not modelled).
    pub lock: Semaphore,
    size: Cell<u64>,
    is_deleted: Cell<bool>,
    /// What the application says that its data is.
    pub(crate) class: Cell<Option<Class>>,
    /// When its first page became dirty of those that are; `None` if none is.
    pub(crate) dirtied_at: Cell<Option<Time>>,
    /// Where the flusher left off (Linux `writeback_index`).
    pub(crate) writeback_index: Cell<u64>,
    /// Pages are getting their places: no task may cut the file meanwhile (Linux holds the pages' locks).
    pub(crate) allocating: Group,
}

impl Inode {
    /// An empty one.
    pub(crate) fn new(number: InodeNumber, kind: InodeKind) -> Inode {
        Inode {
            number,
            kind,
            lock: Semaphore::new(1),
            size: Cell::new(0),
            is_deleted: Cell::new(false),
            class: Cell::new(None),
            dirtied_at: Cell::new(None),
            writeback_index: Cell::new(0),
            allocating: Group::default(),
        }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size.get()
    }

    /// Pages that the bytes take.
    pub fn pages(&self) -> u64 {
        self.size.get().div_ceil(PAGE_BYTES)
    }

    pub(crate) fn set_size(&self, bytes: u64) {
        self.size.set(bytes);
    }

    /// Whether it has lost its name.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.get()
    }

    pub(crate) fn set_deleted(&self) {
        self.is_deleted.set(true);
    }
}
