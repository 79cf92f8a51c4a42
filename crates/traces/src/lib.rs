//! Block traces: what really reached a device once, in the formats in which such recordings are published.
//!
//! [`open`] looks at a file's first bytes, decompresses it and says which format it is in. The [`Reader`] is an
//! iterator of [`TraceRecord`]s in order of time, however long the file is, in bounded memory. A [`Writer`] writes
//! records in the formats that other tools take. The reader guesses nothing. A field that contradicts its format's
//! definition ends the trace, with an error at its line or byte.
//!
//! ```
//! use plimsoll_traces::{Format, ReadOptions, Reader};
//!
//! let trace = "0,20941264,8192,W,0.551706\n0,20939840,8192,W,0.554041\n";
//! let reader = Reader::new("financial.spc", trace.as_bytes(), ReadOptions::default())?;
//! assert_eq!(reader.format(), Format::Spc);
//! let bytes: u64 = reader.map(|record| record.map(|record| record.length)).sum::<Result<_, _>>()?;
//! assert_eq!(bytes, 16_384);
//! # Ok::<(), plimsoll_traces::TraceError>(())
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | `record` | [`TraceRecord`], the one vocabulary |
//! | `reader` | [`Reader`]: opens, detects, iterates |
//! | `writer` | [`Writer`] |
//! | `format` | [`Format`], and a file for each: definition, reading, writing |
//! | `detect` | which format content is in |
//! | `order` | [`Order`]: the window that puts records in order of time |
//! | `source`, `fields`, `names` | lines and records with their position; the parts of a line |
//! | `compression` | gzip, zstd and bzip2 |
//! | `error`, `fault` | [`TraceError`], and what becomes one once file and place are known |
//! | `write_error` | [`WriteError`] |

#![forbid(unsafe_code)]

mod compression;
mod detect;
mod error;
mod fault;
mod fields;
mod format;
mod names;
mod order;
mod reader;
mod record;
mod source;
mod write_error;
mod writer;

pub use error::{Position, TraceError};
pub use format::{BlockAction, Format, ParseFormatError};
pub use order::{Order, WINDOW_RECORDS};
pub use reader::{ReadOptions, Reader, open};
pub use record::TraceRecord;
pub use write_error::WriteError;
pub use writer::Writer;
