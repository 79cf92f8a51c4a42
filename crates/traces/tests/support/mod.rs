//! What several tests need.
#![allow(dead_code)] // No test needs all of it.

use plimsoll_core::{Operation, Span, Time};
use plimsoll_traces::{Format, ReadOptions, Reader, TraceError, TraceRecord};
use std::path::PathBuf;

/// The records before the first error, and the error.
pub fn read(content: impl AsRef<[u8]>, options: ReadOptions) -> (Vec<TraceRecord>, Option<TraceError>) {
    let content = std::io::Cursor::new(content.as_ref().to_vec());
    match Reader::new("trace", content, options) {
        Ok(reader) => drain(reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}

/// The records before the first error, and the error, of a trace that was opened.
pub fn drain(reader: Reader) -> (Vec<TraceRecord>, Option<TraceError>) {
    let (mut records, mut failure) = (Vec::new(), None);
    for record in reader {
        assert!(failure.is_none(), "nothing follows an error");
        match record {
            Ok(record) => records.push(record),
            Err(error) => failure = Some(error),
        }
    }
    (records, failure)
}

/// All records of content with a format that is to be detected.
pub fn records(content: impl AsRef<[u8]>) -> Vec<TraceRecord> {
    let (records, error) = read(content, ReadOptions::default());
    assert!(error.is_none(), "{}", error.unwrap());
    records
}

/// The error of content in `format`, or of a detection.
pub fn failure(content: impl AsRef<[u8]>, format: Option<Format>) -> String {
    let (_, error) = read(content, ReadOptions { format, ..ReadOptions::default() });
    error.expect("an error").to_string()
}

/// The format that content is taken for.
pub fn detected(content: impl AsRef<[u8]>) -> Format {
    let content = std::io::Cursor::new(content.as_ref().to_vec());
    Reader::new("trace", content, ReadOptions::default()).unwrap_or_else(|error| panic!("{error}")).format()
}

/// A record of device 0 with a time in nanoseconds.
pub fn record(at_ns: u64, operation: Operation, offset: u64, length: u64) -> TraceRecord {
    TraceRecord::new(Time::from_nanos(at_ns), operation, offset, length)
}

/// A response time in nanoseconds.
pub fn response(ns: u64) -> Option<Span> {
    Some(Span::from_nanos(ns))
}

/// A record of `vscsi`: layout 1 or 2, operation code, bytes, sector, microseconds.
pub fn vscsi(version: u8, code: u8, len: u32, lbn: u64, ts_us: u64) -> Vec<u8> {
    let (cmd, ver) = (u16::from(code).to_le_bytes(), (u16::from(version) << 8).to_le_bytes());
    let (serial, segments) = (7u32.to_le_bytes(), 1u32.to_le_bytes());
    let (len, lbn, ts) = (len.to_le_bytes(), lbn.to_le_bytes(), ts_us.to_le_bytes());
    let response = if version == 2 { &[0xff; 8][..] } else { &[] };
    match version {
        2 => [&cmd[..], &ver, &serial, &len, &segments, &lbn, &ts, response].concat(),
        _ => [&serial[..], &len, &segments, &cmd, &ver, &lbn, &ts].concat(),
    }
}

/// A record of `blktrace` in either byte order: nanoseconds, sector, bytes, action, and what follows the record.
pub fn blktrace(is_big_endian: bool, time: u64, sector: u64, bytes: u32, action: u32, behind: &[u8]) -> Vec<u8> {
    const DEVICE_8_16: u32 = 8 << 20 | 16;
    let put = |number: u64, size: usize| match is_big_endian {
        true => number.to_be_bytes()[8 - size..].to_vec(),
        false => number.to_le_bytes()[..size].to_vec(),
    };
    let parts = [
        put(0x6561_7407, 4),
        put(1, 4),
        put(time, 8),
        put(sector, 8),
        put(bytes.into(), 4),
        put(action.into(), 4),
        put(697, 4),
        put(DEVICE_8_16.into(), 4),
        put(3, 4),
        put(0, 2),
        put(behind.len() as u64, 2),
        behind.to_vec(),
    ];
    parts.concat()
}

/// The folder of the real traces, which lies beside the workspace on some machines.
pub fn real_trace(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("not run: {name} is not on this machine");
    None
}
