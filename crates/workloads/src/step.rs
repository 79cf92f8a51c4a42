//! What a host is asked to do, one step after the other.
//!
//! A *unit* is what a user waits for: one read, an append with its fsync, a transaction. It is either bracketed by
//! [`Step::Begin`] and [`Step::End`], with calls in between that are waited for one by one. Or it is a single
//! [`Step::Start`] that is not waited for. A unit's latency counts from when it was due, or else from when it began.

use plimsoll_core::Span;

/// As many outstanding units as come: an open arrival process.
pub const DEPTH_UNLIMITED: u32 = u32::MAX;

/// A file of a plan; `Plan::file` says its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u64);

/// A directory of a plan; `Plan::directory` says its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryIndex(pub u64);

/// A number that the host keeps for all threads of a plan; it starts at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counter(pub u8);

/// One system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make a new file and open it.
    Create {
        /// The file.
        file: FileIndex,
    },
    /// Open a file that exists.
    Open {
        /// The file.
        file: FileIndex,
    },
    /// Close an open file.
    Close {
        /// The file.
        file: FileIndex,
    },
    /// Read; short at the end of the file.
    Read {
        /// An open file.
        file: FileIndex,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Write; a write past the end makes the file longer.
    Write {
        /// An open file.
        file: FileIndex,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Make data and metadata durable.
    Fsync {
        /// An open file.
        file: FileIndex,
    },
    /// Make data durable.
    Fdatasync {
        /// An open file.
        file: FileIndex,
    },
    /// Cut to a length.
    Truncate {
        /// An open file.
        file: FileIndex,
        /// Bytes that stay.
        length: u64,
    },
    /// Remove the name.
    Unlink {
        /// A closed file.
        file: FileIndex,
    },
    /// Ask for the attributes (stat).
    Stat {
        /// The file.
        file: FileIndex,
    },
    /// Change an attribute (chmod): the inode becomes dirty, its data stays.
    SetAttributes {
        /// The file.
        file: FileIndex,
    },
    /// Make a directory (mkdir).
    MakeDirectory {
        /// The directory.
        directory: DirectoryIndex,
    },
    /// List a directory (readdir).
    ReadDirectory {
        /// The directory.
        directory: DirectoryIndex,
    },
}

/// What a thread does next. Times are since the workload's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A unit begins. The host waits until it is due. If that is past, it continues at once and the lateness counts.
    Begin {
        /// When it arrives; none: now.
        due: Option<Span>,
        /// When it should be done.
        deadline: Option<Span>,
    },
    /// Make a call and wait for it.
    Call(Action),
    /// The unit that began is done.
    End,
    /// A unit of one call. Wait until it is due and until fewer than the thread's `depth` are outstanding, then make
    /// the call without waiting for it.
    Start {
        /// When it arrives; none: now.
        due: Option<Span>,
        /// The call.
        action: Action,
    },
    /// Wait so long.
    Sleep(Span),
    /// Use so much of a core's time.
    Compute(Span),
    /// Add to a counter.
    Post {
        /// The counter.
        counter: Counter,
        /// How much.
        count: u64,
    },
    /// Wait until a counter has `at_least` this much, or until a time; then take what it has, `at_most` so much. The
    /// host tells how much that was by `Thread::took`. Waiters of one counter are served in the order in which they
    /// came.
    Take {
        /// The counter.
        counter: Counter,
        /// What to wait for; 0: do not wait.
        at_least: u64,
        /// What to take at most; the rest stays.
        at_most: u64,
        /// When to take what there is, without waiting longer; none: never.
        until: Option<Span>,
    },
}
