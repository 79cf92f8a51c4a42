//! Why a request of the control socket was not carried out.

use crate::control::protocol::{ErrorKind, ErrorReport, Response};
use plimsoll_agent::AgentError;
use plimsoll_core::account::AccountError;
use plimsoll_engine::EngineError;

/// Why a request was not carried out.
pub(super) enum Refusal {
    Invalid(String),
    NotFound(String),
    Failed(String),
    Engine(EngineError),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Invalid(message) | Refusal::NotFound(message) | Refusal::Failed(message) => out.write_str(message),
            Refusal::Engine(error) => error.fmt(out),
        }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Refusal {
        Refusal::Engine(error)
    }
}

impl From<AgentError> for Refusal {
    fn from(error: AgentError) -> Refusal {
        match error {
            AgentError::Engine(error) => Refusal::Engine(error),
            error => Refusal::Failed(error.to_string()),
        }
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Response {
        match refusal {
            Refusal::Invalid(message) => Response::error(ErrorKind::Invalid, message),
            Refusal::NotFound(message) => Response::error(ErrorKind::NotFound, message),
            Refusal::Failed(message) => Response::error(ErrorKind::Failed, message),
            Refusal::Engine(EngineError::Account(error)) if error.excess() > 0.0 => Response::Error(ErrorReport {
                kind: ErrorKind::Refused,
                message: error.to_string(),
                excess_runs_per_second: Some(error.excess()),
            }),
            Refusal::Engine(error @ (EngineError::UnknownPool { .. } | EngineError::UnknownVolume { .. })) => {
                Response::error(ErrorKind::NotFound, error)
            }
            Refusal::Engine(
                error @ (EngineError::Account(AccountError::Allocation { .. }) | EngineError::NotCached { .. }),
            ) => Response::error(ErrorKind::Invalid, error),
            Refusal::Engine(error) => Response::error(ErrorKind::Failed, error),
        }
    }
}
