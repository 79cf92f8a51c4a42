//! Why a live run went wrong, in words.

use super::HostError;

pub(super) fn interrupted() -> HostError {
    HostError::Failed("interrupted".to_owned())
}

pub(super) fn failed(doing: impl std::fmt::Display, error: impl std::fmt::Display) -> HostError {
    HostError::Failed(format!("{doing}: {error}"))
}
