//! What can go wrong with a gate.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a gate was not built, or a command not started behind it.
#[derive(Debug, Error)]
pub enum GateError {
    /// A file of the gates cannot be made, read or written.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The run directory is not in memory. Its files are written so often that no disk with a protected journal may be
    /// behind them.
    #[error("{directory} is not on a tmpfs; gates need one, for example below /run", directory = directory.display())]
    NotInMemory {
        /// The run directory.
        directory: PathBuf,
    },
    /// What is executed or loaded from there would be refused.
    #[error("{directory} is mounted noexec; programs need a directory that is not, for example below /var/lib",
        directory = directory.display())]
    NotExecutable {
        /// The directory for programs.
        directory: PathBuf,
    },
    /// The loader splits its list of libraries at spaces and colons, and expands dollar signs.
    #[error("{directory} cannot be the shim's directory: allowed is an absolute path without spaces, colons and dollar signs",
        directory = directory.display())]
    Unloadable {
        /// The directory.
        directory: PathBuf,
    },
    /// Another agent owns the words.
    #[error("{path} belongs to an agent that is running; stop it, or give this one a run directory of its own",
        path = path.display())]
    Held {
        /// The file of words.
        path: PathBuf,
    },
    /// A file of that name exists, and it is not a file of gate words.
    #[error("{path} is not a file of gate words: {problem}; delete it if nothing needs it", path = path.display())]
    NotWords {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another agent was there before.
    #[error("{path} cannot be used: {problem}; delete it if nothing needs it", path = path.display())]
    Foreign {
        /// The path that should be the gates' directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An account beyond the last one with words.
    #[error("account {got} has no gate, allowed are 0 to {max}")]
    Account {
        /// The account.
        got: u32,
        /// The last that has one.
        max: u32,
    },
    /// One step failed in the kernel.
    #[error("cannot {step}: {source}")]
    Step {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A command's own process cannot be put behind a filter.
    #[error("cannot put the command behind a filter: {source}{}", because(source))]
    Filter {
        /// The kernel's answer.
        source: io::Error,
    },
    /// No agent listens to a command's filter.
    #[error("the agent did not take the command's filter over: {source}")]
    HandOver {
        /// What happened at its socket.
        source: io::Error,
    },
    /// A container's seccomp profile, into which the gates are to be put.
    #[error("the seccomp profile {problem}")]
    Profile {
        /// What is wrong with it.
        problem: String,
    },
    /// A socket's path is too long for the kernel.
    #[error("{path} is too long for a socket: allowed are {max} bytes", path = path.display())]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Bytes that the kernel takes.
        max: usize,
    },
    /// The sender may have done so on purpose.
    #[error("the descriptor is no seccomp listener but {got}")]
    NotListener {
        /// What it leads to.
        got: String,
    },
    /// What thaws after a dead agent did not start.
    #[error("the thawer did not start ({outcome}); without one a dead agent would leave its tenants frozen")]
    Thawer {
        /// Its exit status.
        outcome: String,
    },
    /// What stood behind a listener did not start.
    #[error("the keeper did not start ({outcome}); without one a dead agent would fail its tenants' calls")]
    Keeper {
        /// Its exit status.
        outcome: String,
    },
}

/// What the kernel means, where it says little.
fn because(filter: &io::Error) -> &'static str {
    match filter.raw_os_error() {
        Some(libc::EBUSY) => "; the command is behind a seccomp filter with a listener already, and Linux allows one",
        Some(libc::EINVAL) => "; this takes Linux 6.1 or later",
        _ => "",
    }
}

impl GateError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> GateError {
        let path = path.into();
        move |source| GateError::File { action, path, source }
    }

    pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> GateError {
        move |source| GateError::Step { step, source: source.into() }
    }
}
