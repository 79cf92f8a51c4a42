//! The kernel's word on processes: their identity, and the bytes that they have read and written.

use crate::shared::Group;
use procfs::process::{Io, Process};

/// I/O of a process since its start, with that of children that it waited for. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Read from any disk: counted when the request is submitted.
    pub(super) read: u64,
    /// Of pages that it made dirty, and what it wrote past the page cache.
    pub(super) written: u64,
    /// Of dirty pages that it truncated or deleted.
    pub(super) cancelled: u64,
}

impl Moved {
    pub(super) fn add(&mut self, other: Moved) {
        self.read += other.read;
        self.written += other.written;
        self.cancelled += other.cancelled;
    }

    /// What came since `before`; nothing where it did not grow.
    pub(super) fn since(self, before: Moved) -> Moved {
        Moved {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            cancelled: self.cancelled.saturating_sub(before.cancelled),
        }
    }
}

impl From<Io> for Moved {
    fn from(io: Io) -> Moved {
        Moved { read: io.read_bytes, written: io.write_bytes, cancelled: io.cancelled_write_bytes }
    }
}

/// Which process it is, and which account's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) parent: u32,
    /// Its start time, in the kernel's ticks. With its number it names a process for ever.
    pub(super) began: u64,
}

/// A table of processes.
pub(super) trait Processes {
    /// The numbers of all.
    fn list(&self) -> Vec<u32>;
    /// `None`: there is none of that number.
    fn identity(&self, process: u32) -> Option<Identity>;
    /// `None`: there is none any more.
    fn moved(&self, process: u32) -> Option<Moved>;
    /// The process of a thread, and what that thread has moved by itself.
    fn thread(&self, thread: u32) -> Option<(u32, Moved)>;
    /// The cgroups that a process is in, with those above.
    fn groups(&self, process: u32) -> Vec<Group>;
    /// Threads of a process that are not running, each with the number of its system call, or a negative number.
    fn calls(&self, process: u32) -> Vec<(u32, i64)>;
}

/// `/proc`.
pub(super) struct Proc;

impl Processes for Proc {
    fn list(&self) -> Vec<u32> {
        let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn identity(&self, process: u32) -> Option<Identity> {
        let stat = open(process)?.stat().ok()?;
        Some(Identity { parent: stat.ppid as u32, began: stat.starttime })
    }

    fn moved(&self, process: u32) -> Option<Moved> {
        Some(open(process)?.io().ok()?.into())
    }

    fn thread(&self, thread: u32) -> Option<(u32, Moved)> {
        let of = open(thread)?;
        let process = of.status().ok()?.tgid as u32;
        let task = of.task_from_tid(thread as i32).ok()?;
        Some((process, task.io().ok()?.into()))
    }

    fn groups(&self, process: u32) -> Vec<Group> {
        let directories = crate::cgroups_of(process);
        let all = directories.iter().flat_map(|directory| directory.ancestors().map_while(|path| Group::of(path).ok()));
        all.collect()
    }

    fn calls(&self, process: u32) -> Vec<(u32, i64)> {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let call_of = |task: std::fs::DirEntry| {
            let thread = task.file_name().to_str()?.parse().ok()?;
            let call = std::fs::read_to_string(task.path().join("syscall")).ok()?;
            Some((thread, call.split(' ').next()?.parse().ok()?))
        };
        tasks.filter_map(call_of).collect()
    }
}

fn open(process: u32) -> Option<Process> {
    Process::new(process as i32).ok()
}
