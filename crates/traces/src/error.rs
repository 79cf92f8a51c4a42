//! What can be wrong with a trace, and where.

use crate::order::Order;
use crate::source::LINE_BYTES_MAX;
use plimsoll_core::Span;
use std::borrow::Cow;
use std::fmt;
use std::io;
use thiserror::Error;

/// Bytes of a wrong field that an error repeats at the most.
const EXCERPT_BYTES_MAX: usize = 64;

/// Where in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line of a text format; the first is 1.
    Line(u64),
    /// The first byte of a record of a binary format; the first is 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(line) => write!(out, "line {line}"),
            Position::Byte(byte) => write!(out, "byte {byte}"),
        }
    }
}

/// Why a trace cannot be read, or not further.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file could not be opened.
    #[error("{file}: {source}")]
    Open {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// Reading or decompressing failed; a compressed file that was cut off ends like this.
    #[error("{file}: byte {byte} of the content: {source}")]
    Read {
        /// The file.
        file: String,
        /// How many bytes had been read, after decompression.
        byte: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A field is not what the format allows.
    #[error("{file}: {position}: {field}: got {got:?}, allowed {allowed}")]
    Field {
        /// The file.
        file: String,
        /// The line or record.
        position: Position,
        /// The field's name in the format's definition.
        field: &'static str,
        /// What was found; its beginning if it is long.
        got: String,
        /// What would have been right, in words.
        allowed: Cow<'static, str>,
    },
    /// A line that does not end where it should.
    #[error("{file}: line {line}: got no end of line for {LINE_BYTES_MAX} bytes, allowed are {LINE_BYTES_MAX}")]
    LineTooLong {
        /// The file.
        file: String,
        /// The line.
        line: u64,
    },
    /// The file ends within a binary record.
    #[error("{file}: byte {byte}: got {got} bytes of a record, allowed {expected}")]
    Truncated {
        /// The file.
        file: String,
        /// Where the record starts, after decompression.
        byte: u64,
        /// Bytes that there are.
        got: u64,
        /// Bytes that a record has.
        expected: u64,
    },
    /// A record is too far behind its place in time.
    #[error(
        "{file}: {position}: time: got {late} before a record that was already handed out, \
         allowed {window_records} records out of order"
    )]
    Unordered {
        /// The file.
        file: String,
        /// The line or record that came too late.
        position: Position,
        /// By how much.
        late: Span,
        /// The window ([`Order::Sorted`]).
        window_records: usize,
    },
    /// No format fits.
    #[error("{file}: format: got {got}, known are {known}")]
    UnknownFormat {
        /// The file.
        file: String,
        /// How the content begins.
        got: String,
        /// Every format's name.
        known: String,
    },
    /// More than one format fits: the caller must name one.
    #[error("{file}: format: got content that fits {candidates}, allowed is one: name it")]
    AmbiguousFormat {
        /// The file.
        file: String,
        /// The names of the formats that fit.
        candidates: String,
    },
}

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
    Unordered { late: Span, order: Order },
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
            Fault::Unordered { late, order } => {
                TraceError::Unordered { file, position, late, window_records: order.window_records() }
            }
        }
    }
}
