//! Why a record cannot be written.

use crate::format::Format;
use std::borrow::Cow;
use std::fmt;
use std::io;
use thiserror::Error;

/// Why a record cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// No writer knows the format.
    #[error("format: got {got}, allowed {}", Format::names(Format::WRITABLE))]
    Format {
        /// The format.
        got: Format,
    },
    /// The format has no way to say this. Nothing was written; other records still can be.
    #[error("{field}: got {got}, allowed {allowed}")]
    Unwritable {
        /// The record's field.
        field: &'static str,
        /// What it was.
        got: String,
        /// What the format can say, in words.
        allowed: Cow<'static, str>,
    },
    /// Writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl WriteError {
    pub(crate) fn unwritable(
        field: &'static str,
        got: &dyn fmt::Debug,
        allowed: impl Into<Cow<'static, str>>,
    ) -> WriteError {
        WriteError::Unwritable { field, got: format!("{got:?}"), allowed: allowed.into() }
    }
}
