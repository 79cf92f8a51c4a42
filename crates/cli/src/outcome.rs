//! How a command ends.

use crate::config::ConfigurationError;
use std::io::Write;
use std::process::ExitCode;
use thiserror::Error;

/// Why a command did not do what it was asked. Each kind has its exit code; success has 0.
#[derive(Debug, Error)]
pub enum Failure {
    /// Exit code 1: something went wrong while running, or a claim that was checked does not hold.
    #[error("{0}")]
    Failed(String),
    /// Exit code 2: the configuration or an argument is wrong; nothing was started.
    #[error("{0}")]
    BadInput(String),
    /// Exit code 2: the configuration is wrong; nothing was started.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// Exit code 3: this machine or this user cannot run it, so nothing is known about the outcome.
    #[error("not run: {0}")]
    NotRun(String),
    /// Exit code 4: the engine of a device failed while the daemon served; all others were closed in order.
    #[error("{0}")]
    EngineFailed(String),
}

/// The exit code of [`Failure::EngineFailed`].
pub const ENGINE_FAILED: u8 = 4;

impl Failure {
    /// The exit code, 1 to 4.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::BadInput(_) | Failure::Configuration(_) => 2,
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
            // Nobody may read it: the code says it, too.
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.code())
        }
    }
}
