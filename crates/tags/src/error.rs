//! Why nothing is tagged.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why tags were not loaded, or an account was not opened.
#[derive(Debug, Error)]
pub enum TagsError {
    /// This machine, this user or this build cannot do it: not a fault. A caller that continues without tags knows an
    /// I/O by the thread that submitted it, and should say so.
    #[error("not run: {0}")]
    NotRun(String),
    /// The device cannot be used.
    #[error("{device}: {problem}", device = device.display())]
    Device {
        /// The device's path.
        device: PathBuf,
        /// The fault, and the allowed values.
        problem: String,
    },
    /// The kernel refused a program or a map though BPF is permitted.
    #[error("cannot {action}: {reason}")]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer, with libbpf's words.
        reason: String,
    },
    /// All accounts are in use, or end and are still carried by pages.
    #[error(
        "no account is free for {name}: {open} are open, allowed are {allowed}; {ending} have ended and I/O that they \
             caused is still to be written"
    )]
    NoAccountFree {
        /// The name that wanted one.
        name: String,
        /// Accounts in use.
        open: u32,
        /// Accounts that ended and keep their number for now.
        ending: u32,
        /// How many there can be at once.
        allowed: u32,
    },
    /// An account that is not open.
    #[error("account {account} is not open")]
    NotOpen {
        /// Its number.
        account: u32,
    },
    /// A thread, process or cgroup that does not exist.
    #[error("{what} does not exist")]
    Nobody {
        /// What was looked for.
        what: String,
    },
    /// A system call that Linux does not have.
    #[error("system call {number} does not exist, allowed are 0 to 511")]
    Call {
        /// Its number.
        number: u32,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl TagsError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TagsError {
        let path = path.into();
        move |source| TagsError::File { path, source }
    }
}
