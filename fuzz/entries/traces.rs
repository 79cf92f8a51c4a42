//! What the fuzz targets of the traces do with their bytes, and what must hold for any bytes.
//!
//! The fuzz targets call these functions, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/traces/tests/corpus.rs`). Each says whether the bytes were a trace to their end.

use plimsoll_core::Time;
use plimsoll_traces::{BlockAction, Format, Order, ReadOptions, Reader, TraceRecord};
use std::io::Read;

/// Records that are looked at: compressed bytes may stand for far more than a fuzzer has time for.
const RECORDS_MAX: usize = 20_000;
/// Bytes that arrive at a time when they arrive in pieces: no divisor of any record's size.
const PIECE_BYTES: usize = 7;
/// A window that a few records fill.
const WINDOW_RECORDS: usize = 3;

/// The first byte names a text format, or none (then it is detected), and the order; the rest is the content.
pub fn text(bytes: &[u8]) -> bool {
    chosen(bytes, |format| !format.is_binary())
}

/// The first byte names a binary format, or none (then it is detected), the order and the event; the rest is the
/// content, which may be compressed.
pub fn binary(bytes: &[u8]) -> bool {
    chosen(bytes, Format::is_binary)
}

fn chosen(bytes: &[u8], is_eligible: fn(Format) -> bool) -> bool {
    let (choice, content) = bytes.split_first().unwrap_or((&0, &[]));
    let formats: Vec<_> = Format::ALL.iter().copied().filter(|format| is_eligible(*format)).collect();
    let order = if choice & 0x40 == 0 { Order::Sorted { window_records: WINDOW_RECORDS } } else { Order::AsRecorded };
    let action = if choice & 0x80 == 0 { BlockAction::Queue } else { BlockAction::Issue };
    let format = formats.get(usize::from(choice & 0x3f).wrapping_sub(1)).copied();
    check(content, ReadOptions { format, order, action })
}

/// Time goes forwards, every request ends within the address space, and the same bytes in pieces mean the same.
fn check(content: &[u8], options: ReadOptions) -> bool {
    let at_once = outcome(content, content.len().max(1), options);
    assert_eq!(outcome(content, PIECE_BYTES, options), at_once);
    let (records, error) = at_once;
    let mut reached = Time::ZERO;
    for record in &records {
        assert!(record.offset.checked_add(record.length).is_some());
        assert!(record.at >= reached || options.order == Order::AsRecorded);
        reached = record.at;
    }
    if let Some(error) = &error {
        assert!(error.starts_with("fuzz: ") && !error.contains('\n'), "{error}");
    }
    error.is_none()
}

/// The records up to an error, and the error, when the content arrives in pieces.
fn outcome(content: &[u8], piece_bytes: usize, options: ReadOptions) -> (Vec<TraceRecord>, Option<String>) {
    let pieces = Pieces { content: content.to_vec(), taken: 0, piece_bytes };
    let reader = match Reader::new("fuzz", pieces, options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let (mut records, mut failure) = (Vec::new(), None);
    for record in reader.take(RECORDS_MAX) {
        assert!(failure.is_none(), "nothing follows an error");
        match record {
            Ok(record) => records.push(record),
            Err(error) => failure = Some(error.to_string()),
        }
    }
    (records, failure)
}

/// Content that arrives a little at a time.
struct Pieces {
    content: Vec<u8>,
    taken: usize,
    piece_bytes: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.content[self.taken..];
        let count = rest.len().min(self.piece_bytes).min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}
