//! What went wrong inside the reader, before it is known in which file and where.

use crate::error::{Position, TraceError};
use plimsoll_core::Span;
use std::borrow::Cow;
use std::io;

/// Bytes of a wrong field that an error repeats at the most.
const EXCERPT_BYTES_MAX: usize = 64;

/// A field that is not what it should be; the reader adds file and position.
#[derive(Debug)]
pub(crate) struct FieldError {
    pub field: &'static str,
    pub got: String,
    pub allowed: Cow<'static, str>,
}

impl FieldError {
    pub fn new(field: &'static str, got: &str, allowed: impl Into<Cow<'static, str>>) -> FieldError {
        FieldError { field, got: excerpt(got), allowed: allowed.into() }
    }
}

/// The beginning of `text`, not longer than a line of an error should be.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().find(|(at, char)| at + char.len_utf8() > EXCERPT_BYTES_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// What went wrong below the reader, which knows the file and where it stands.
#[derive(Debug)]
pub(crate) enum Fault {
    Field(FieldError),
    Io(io::Error),
    LineTooLong,
    Truncated { got: u64, expected: u64 },
    Unordered { late: Span, window_records: usize },
}

impl From<FieldError> for Fault {
    fn from(error: FieldError) -> Fault {
        Fault::Field(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

impl Fault {
    /// The error that a caller sees. `byte` is how far the content was read, `position` what was being read.
    pub fn located(self, file: &str, position: Position, byte: u64) -> TraceError {
        let file = file.to_owned();
        let (Position::Line(at) | Position::Byte(at)) = position;
        match self {
            Fault::Field(FieldError { field, got, allowed }) => {
                TraceError::Field { file, position, field, got, allowed }
            }
            Fault::Io(source) => TraceError::Read { file, byte, source },
            Fault::LineTooLong => TraceError::LineTooLong { file, line: at },
            Fault::Truncated { got, expected } => TraceError::Truncated { file, byte: at, got, expected },
            Fault::Unordered { late, window_records } => TraceError::Unordered { file, position, late, window_records },
        }
    }
}
