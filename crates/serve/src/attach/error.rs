//! What can go wrong while a volume becomes a file system, or stops being one.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a volume was not attached, formatted or mounted.
#[derive(Debug, Error)]
pub enum AttachError {
    /// A file of the daemon cannot be read or written.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another daemon that is alive owns the directory, and with it what it attached.
    #[error(
        "{directory} belongs to a daemon that is running (process {process}); \
         stop it, or give this one a state directory of its own", directory = directory.display()
    )]
    Held {
        /// The state directory.
        directory: PathBuf,
        /// Its process, as far as it said.
        process: String,
    },
    /// The state file is invalid, so it is unknown what a predecessor left behind.
    #[error("{path} is not a valid state file: {problem}; detach by hand the devices and mounts that it names, and \
             delete it",
        path = path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A volume's name becomes a file's name.
    #[error("{got:?} cannot be a volume's name, allowed are 1 to 100 letters, digits, '-', '_' and '.', no '.' first")]
    VolumeName {
        /// The name.
        got: String,
    },
    /// Two volumes of one name, one attached twice, or one that a predecessor left attached and that could not be
    /// undone.
    #[error("volume {volume} is attached already")]
    Attached {
        /// The volume.
        volume: String,
    },
    /// One step failed in the kernel.
    #[error("volume {volume}: cannot {step}: {source}")]
    Step {
        /// The volume.
        volume: String,
        /// What was tried.
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mounted file differs from the volume in size: another server is behind it, or none.
    #[error("volume {volume}: the mounted file has {got} bytes, expected {expected}")]
    Size {
        /// The volume.
        volume: String,
        /// Bytes that the kernel sees.
        got: u64,
        /// Bytes of the volume.
        expected: u64,
    },
    /// The loop device would cache every page a second time, and its writeback could wait for itself.
    #[error("volume {volume}: /dev/loop{number} refuses direct I/O")]
    Cached {
        /// The volume.
        volume: String,
        /// The loop device's number.
        number: u32,
    },
    /// A program that makes file systems is missing.
    #[error("{program} was not found; on Debian it is in the package {package}")]
    ProgramMissing {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({outcome}): {said}")]
    ProgramFailed {
        /// The program.
        program: &'static str,
        /// Its exit status.
        outcome: String,
        /// What it said, first lines.
        said: String,
    },
    /// The volume holds something other than the requested file system; it is left as it is.
    #[error("volume {volume} holds {found}, expected {expected}; nothing was changed")]
    Content {
        /// The volume.
        volume: String,
        /// What it holds.
        found: String,
        /// What was asked for.
        expected: String,
    },
    /// The file system was made for smaller blocks than the volume can read and write.
    #[error("volume {volume} holds {found}, with blocks smaller than the volume's of {block_bytes} bytes")]
    Blocks {
        /// The volume.
        volume: String,
        /// What it holds.
        found: String,
        /// Bytes of the volume's smallest I/O.
        block_bytes: u32,
    },
}

impl AttachError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AttachError {
        let path = path.into();
        move |source| AttachError::File { action, path, source }
    }

    pub(crate) fn step<E: Into<io::Error>>(volume: &str, step: impl Into<String>) -> impl FnOnce(E) -> AttachError {
        let (volume, step) = (volume.to_owned(), step.into());
        move |source| AttachError::Step { volume, step, source: source.into() }
    }
}
