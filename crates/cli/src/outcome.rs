//! How a command ends.

use crate::config::ConfigurationError;
use plimsoll_core::shown_lines;
use std::io::Write;
use std::process::ExitCode;
use thiserror::Error;

/// A command that runs another program has failed itself.
pub const OWN_FAILURE: u8 = 125;
/// The other program is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The other program is not there.
const NOT_FOUND: u8 = 127;

/// Why a command did not do what it was asked. Each kind has its exit code; success has 0.
#[derive(Debug, Error)]
pub enum Failure {
    /// Exit code 1: a command failed while running, or a checked claim does not hold.
    #[error("{0}")]
    Failed(String),
    /// Exit code 2: the configuration or an argument is wrong; nothing was started.
    #[error("{0}")]
    BadInput(String),
    /// Exit code 2: the configuration is wrong; nothing was started.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Exit code 3: this machine or this user cannot run it, so the outcome is unknown.
    #[error("not run: {0}")]
    NotRun(String),
    /// Exit code 4: a device's engine failed while the daemon served; all others were closed in order.
    #[error("{0}")]
    EngineFailed(String),
    /// A command that runs another program ends as `env`, `nohup` and `timeout` do. 125 stands for its own failure, 126
    /// for a program that cannot be executed, 127 for a missing one. All other codes are the program's.
    #[error("{message}")]
    Wrapped {
        /// 125 to 127.
        code: u8,
        /// Why.
        message: String,
    },
}

/// The exit code of [`Failure::BadInput`].
const BAD_INPUT: u8 = 2;
/// The exit code of [`Failure::EngineFailed`].
pub const ENGINE_FAILED: u8 = 4;

impl Failure {
    /// All of these failures as one, with a line each; `None` if there are none. It is bad input if each of them is.
    pub fn of_all(failures: Vec<Failure>) -> Option<Failure> {
        let is_bad_input = failures.iter().all(|failure| failure.code() == BAD_INPUT);
        let lines: Vec<String> = failures.iter().map(Failure::to_string).collect();
        let make = if is_bad_input { Failure::BadInput } else { Failure::Failed };
        (!lines.is_empty()).then(|| make(lines.join("\n")))
    }

    /// The same failure, of a command that was to run another program and did not come so far.
    pub fn of_wrapper(self) -> Failure {
        match self {
            Failure::Wrapped { .. } => self,
            other => Failure::Wrapped { code: OWN_FAILURE, message: other.to_string() },
        }
    }

    /// `program` could not be executed.
    pub fn not_executed(error: &std::io::Error, message: String) -> Failure {
        let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
        Failure::Wrapped { code, message }
    }

    /// The exit code: 1 to 4, or 125 to 127.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Wrapped { code, .. } => *code,
            Failure::Failed(_) => 1,
            Failure::BadInput(_) | Failure::Configuration(_) => BAD_INPUT,
            Failure::NotRun(_) => 3,
            Failure::EngineFailed(_) => ENGINE_FAILED,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Failed(error.to_string())
    }
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

/// The process's exit code for `outcome`, after telling the reason on stderr.
pub fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard error may be closed: the code says it, too.
            let _ = writeln!(std::io::stderr(), "{}", shown_lines(&failure.to_string()));
            ExitCode::from(failure.code())
        }
    }
}
