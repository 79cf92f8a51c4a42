//! What every kind of workload has to say of itself, and what they have in common.

use crate::file::FileSpec;
use crate::pace::{Arrivals, Bursts, Pace};
use crate::script::Program;
use crate::step::{Action, DEPTH_UNLIMITED, DirectoryIndex, FileIndex};
use crate::thread::ThreadSpec;
use plimsoll_core::Span;
use std::fmt::Debug;
use std::ops::Range;

/// One kind of workload with its parameters: files to prepare, and threads.
pub(crate) trait Design: Debug + Send + Sync {
    /// Files 0 to this - 1 are to be prepared; files beyond are made by the threads.
    fn file_count(&self, common: &Common) -> u64;

    /// Any file, also one that is not made yet.
    fn file(&self, common: &Common, seed: u64, file: FileIndex) -> FileSpec;

    /// Directories 0 to this - 1 are to be made before the start.
    fn directory_count(&self, _common: &Common) -> u64 {
        0
    }

    /// Any directory.
    fn directory(&self, directory: DirectoryIndex) -> String {
        format!("d{}", directory.0)
    }

    /// Threads 0 to this - 1 run.
    fn thread_count(&self, common: &Common) -> u32 {
        common.threads
    }

    /// What the host should know of a thread.
    fn thread(&self, common: &Common, thread: u32) -> ThreadSpec;

    /// What a thread does.
    fn program(&self, common: &Common, seed: u64, thread: u32) -> Program;
}

/// How a unit is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncRule {
    /// fdatasync instead of fsync.
    pub(crate) is_data_only: bool,
    /// After so many writes.
    pub(crate) every: u64,
}

impl SyncRule {
    pub(crate) fn action(self, file: FileIndex) -> Action {
        if self.is_data_only { Action::Fdatasync { file } } else { Action::Fsync { file } }
    }
}

/// What stands behind the commas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Common {
    pub(crate) sync: Option<SyncRule>,
    pub(crate) arrivals: Arrivals,
    pub(crate) bursts: Option<Bursts>,
    pub(crate) depth: Option<u32>,
    pub(crate) threads: u32,
    pub(crate) is_direct: bool,
    pub(crate) active: Range<Span>,
}

impl Default for Common {
    fn default() -> Common {
        Common {
            sync: None,
            arrivals: Arrivals::Closed { think: Span::ZERO },
            bursts: None,
            depth: None,
            threads: 1,
            is_direct: false,
            active: Span::ZERO..Span::MAX,
        }
    }
}

impl Common {
    pub(crate) fn pace(&self) -> Pace {
        Pace::new(self.arrivals, self.bursts)
    }

    /// Outstanding units of one call each: one in a closed process, all that come in an open one. What ends with an
    /// fsync goes one after the other.
    pub(crate) fn depth(&self) -> u32 {
        match (self.sync, self.depth, self.arrivals) {
            (Some(_), ..) => 1,
            (None, Some(depth), _) => depth,
            (None, None, Arrivals::Closed { .. }) => 1,
            (None, None, _) => DEPTH_UNLIMITED,
        }
    }
}
