//! A thread of a workload, as the host should know it.

use crate::step::FileIndex;

/// Threads of one workload at most ("1000s" in the split-level paper, figure 15). Files that threads make are numbered
/// in strides of this, so that a thread more renumbers no other's files.
pub const THREADS_MAX: u32 = 16_384;

/// A thread of a plan, as the host should know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSpec {
    /// What it is and its number, such as `client.3` or `checkpointer`: hosts give deadlines and priorities by it.
    pub name: String,
    /// Units of [`Step::Start`] that may be outstanding at once, 1 to `DEPTH_UNLIMITED`.
    pub depth: u32,
    /// The files that it opens first and never closes.
    pub files: Vec<FileIndex>,
    /// No user waits for its units: hosts pace them and do not count them as such.
    pub is_background: bool,
}

impl ThreadSpec {
    /// One that makes a call after the other.
    pub(crate) fn new(name: impl Into<String>, files: Vec<FileIndex>) -> ThreadSpec {
        ThreadSpec { name: name.into(), depth: 1, files, is_background: false }
    }

    /// A thread that works in the background.
    pub(crate) fn background(name: impl Into<String>, files: Vec<FileIndex>) -> ThreadSpec {
        ThreadSpec { is_background: true, ..ThreadSpec::new(name, files) }
    }
}
