//! What can be wrong with a trace, and where.

use plimsoll_core::Span;
use std::borrow::Cow;
use std::fmt;
use std::io;
use thiserror::Error;

/// The longest line, bytes without its end: as long as those that fio reads (`read_iolog` in its `iolog.c`).
pub(crate) const LINE_BYTES_MAX: usize = 4096;

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
        /// The window ([`Order::Sorted`](crate::Order::Sorted)).
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
