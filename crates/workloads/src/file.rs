//! A file of a workload.

use plimsoll_core::Class;

/// What a file must be like before the workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// Not there: a thread makes it.
    Absent,
    /// There, with no bytes.
    Empty,
    /// There, with data in its blocks.
    Filled,
}

/// A file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Its path below the folder that the host gives the workload, such as `d17/f262160`.
    pub path: String,
    /// Bytes that it has before the start; 0 if it is absent or empty.
    pub bytes: u64,
    /// What it must be like before the start.
    pub before: Before,
    /// Whether it is read and written past the page cache (O_DIRECT).
    pub is_direct: bool,
    /// What the program says that its blocks are (Differentiated Storage Services, section 3.4); `None` if it says
    /// nothing.
    pub class: Option<Class>,
}

impl FileSpec {
    pub(crate) fn filled(path: String, bytes: u64) -> FileSpec {
        FileSpec { path, bytes, before: Before::Filled, is_direct: false, class: None }
    }

    pub(crate) fn with(path: String, bytes: u64, before: Before) -> FileSpec {
        FileSpec { path, bytes, before, is_direct: false, class: None }
    }
}
