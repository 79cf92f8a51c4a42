//! Open files, and the calls on them.

mod direct;
mod metadata;
mod read;
mod write;

use super::read_ahead::ReadAhead;
use crate::fs::Inode;
use crate::process::Process;
use plimsoll_core::Class;
use std::cell::Cell;
use std::rc::Rc;

/// An open file of a process.
pub struct File {
    process: Process,
    inode: Rc<Inode>,
    /// Where its reader stands; threads that share the open file share this.
    read_ahead: Rc<Cell<ReadAhead>>,
    is_direct: bool,
    /// What the process says that it reads and writes.
    class: Option<Class>,
}

impl File {
    pub(crate) fn new(process: Process, inode: Rc<Inode>) -> File {
        File { process, inode, read_ahead: Rc::default(), is_direct: false, class: None }
    }

    /// The same file, read and written past the page cache (O_DIRECT).
    pub fn direct(self) -> File {
        File { is_direct: true, ..self }
    }

    /// The same file, with `class` on its reads and writes (Differentiated Storage Services, `O_CLASSIFIED`). What is
    /// written later by the kernel carries what the last writer said.
    pub fn classified(self, class: Class) -> File {
        File { class: Some(class), ..self }
    }

    /// The same open file in the hands of another thread of its machine.
    pub(crate) fn in_thread(&self, process: Process) -> File {
        File { process, inode: self.inode.clone(), read_ahead: self.read_ahead.clone(), ..*self }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.inode.size()
    }

    /// The inode.
    pub fn inode(&self) -> &Rc<Inode> {
        &self.inode
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn class(&self) -> Option<Class> {
        self.class
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub(crate) fn with_read_ahead<T>(&self, change: impl FnOnce(&mut ReadAhead) -> T) -> T {
        let mut state = self.read_ahead.get();
        let answer = change(&mut state);
        self.read_ahead.set(state);
        answer
    }
}
