//! fio's iolog, versions 2 and 3: what fio records with `--write_iolog` and replays with `--read_iolog`.
//!
//! The first line names the version. Then each line is an action on a file, fields set apart by blanks:
//!
//! ```text
//! version 2   filename action                   version 3   timestamp filename action
//!             filename action offset length                 timestamp filename action offset length
//! ```
//!
//! Offset and length are in bytes. Actions with them are `read`, `write`, `trim`, `sync`, `datasync`, `syncfs`, and in
//! version 2 `wait`. `sync_file_range` is left out and counted, since it makes nothing durable (`sync_file_range(2)`).
//! Without them there are `add`, `open` and `close`, which are left out. A file must be added before it is used; files
//! are devices, numbered in the order in which they are added. The timestamp counts microseconds from the start of the
//! run.
//!
//! Version 2 has time only in `wait`: its offset is microseconds since the wait before, as fio's manual defines it.
//! (fio's own replay compares it with milliseconds since fio began.) Between two waits all records have the same time.
//!
//! The writer writes version 3, with the first record at 1 us. fio takes a timestamp of 0 for "none yet" and would not
//! wait before the next line. It adds and opens a device when its first record comes. Writing zeroes becomes a write,
//! for want of a word; times are cut to microseconds.
//!
//! Source: *Trace file format* in fio's manual (3.33), and for the timestamp's unit `log_io_u` and `iolog_delay` in its
//! `iolog.c`.

use super::{Encode, Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, NANOSECONDS_PER_MICROSECOND, Separator};
use crate::names::{NAME_BYTES_MAX, Names};
use crate::record::TraceRecord;
use crate::write_error::WriteError;
use plimsoll_core::{Operation, Time};
use std::collections::BTreeMap;
use std::io::Write;

pub(super) const INFO_2: Info =
    Info { name: "fio2", clock: "start of the run", rule: "the first line is \"fio version 2 iolog\"" };
pub(super) const INFO_3: Info =
    Info { name: "fio3", clock: "start of the run", rule: "the first line is \"fio version 3 iolog\"" };
const HEADER_2: &str = "fio version 2 iolog";
const HEADER_3: &str = "fio version 3 iolog";
/// The timestamp of the writer's first record, microseconds (see above).
const FIRST_US: u64 = 1;
/// Lengths that fio reads: `%u` in `read_iolog`.
const LENGTH_BYTES_MAX: u64 = u32::MAX as u64;

/// Which of the two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Two,
    Three,
}

pub(super) struct Fio {
    version: Version,
    is_header_seen: bool,
    files: Names,
    /// Version 2: the waits so far, nanoseconds.
    waited_ns: u64,
}

impl Fio {
    pub fn new(version: Version) -> Fio {
        Fio { version, is_header_seen: false, files: Names::new("filename"), waited_ns: 0 }
    }

    fn file_action(&mut self, filename: &str, action: &str) -> Result<(), FieldError> {
        match action {
            "add" => self.files.number(filename).map(drop),
            "open" | "close" => self.file(filename).map(drop),
            _ => Err(FieldError::new("action", action, "add, open or close, or an I/O action with offset and length")),
        }
    }

    fn file(&self, filename: &str) -> Result<u32, FieldError> {
        self.files.find(filename).ok_or_else(|| FieldError::new("filename", filename, "a file that was added before"))
    }

    /// An action with offset and length, at a time that version 3 says.
    fn io_action(&mut self, at_ns: Option<u64>, fields: [&str; 4]) -> Result<Option<TraceRecord>, FieldError> {
        let [filename, action, offset, length] = fields;
        let device = self.file(filename)?;
        let (from, bytes) = (fields::integer("offset", offset)?, fields::integer("length", length)?);
        let (operation, offset, length) = match (action, self.version) {
            ("read", _) => (Operation::Read, from, bytes),
            ("write", _) => (Operation::Write, from, bytes),
            ("trim", _) => (Operation::Trim, from, bytes),
            ("sync" | "datasync" | "syncfs", _) => (Operation::Flush, 0, 0),
            ("sync_file_range", _) => return Ok(None),
            ("wait", Version::Two) => {
                let wait_ns = fields::scaled("offset", from, NANOSECONDS_PER_MICROSECOND)?;
                let waited_ns = self.waited_ns.checked_add(wait_ns);
                self.waited_ns =
                    waited_ns.ok_or_else(|| FieldError::new("offset", offset, "waits that end within 2^64 ns"))?;
                return Ok(None);
            }
            (_, Version::Two) => {
                return Err(FieldError::new(
                    "action",
                    action,
                    "read, write, trim, sync, datasync, syncfs, sync_file_range or wait",
                ));
            }
            (_, Version::Three) => {
                return Err(FieldError::new(
                    "action",
                    action,
                    "read, write, trim, sync, datasync, syncfs or sync_file_range",
                ));
            }
        };
        let record = fields::request(at_ns.unwrap_or(self.waited_ns), operation, offset, length)?;
        Ok(Some(TraceRecord { device, ..record }))
    }
}

impl LineFormat for Fio {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if !std::mem::replace(&mut self.is_header_seen, true) {
            let header = if self.version == Version::Two { HEADER_2 } else { HEADER_3 };
            let matches = line == header;
            return matches.then_some(None).ok_or_else(|| FieldError::new("first line", line, header));
        }
        let (at_ns, line, names) = match self.version {
            Version::Two => (None, line, "2 or 4: filename action [offset length]"),
            Version::Three => {
                let (timestamp, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
                let at_ns = fields::units("timestamp", timestamp, NANOSECONDS_PER_MICROSECOND)?;
                (Some(at_ns), rest, "2 or 4 behind the timestamp: filename action [offset length]")
            }
        };
        match line.split_ascii_whitespace().count() {
            2 => {
                let [filename, action] = fields::split(line, Separator::Blank, names)?;
                self.file_action(filename, action).map(|()| None)
            }
            4 => self.io_action(at_ns, fields::split(line, Separator::Blank, names)?),
            count => Err(FieldError::new("fields", &count.to_string(), names)),
        }
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.files.name(device).map(str::to_owned)
    }
}

pub(super) struct FioEncoder {
    /// The time of the first record.
    origin: Option<Time>,
    /// Names that the caller gave.
    given: BTreeMap<u32, String>,
    /// Devices that were added, with the names that they have in the log.
    added: BTreeMap<u32, String>,
    last_us: u64,
}

impl FioEncoder {
    pub fn new() -> FioEncoder {
        FioEncoder { origin: None, given: BTreeMap::new(), added: BTreeMap::new(), last_us: FIRST_US }
    }
}

impl Encode for FioEncoder {
    fn begin(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{HEADER_3}")
    }

    fn record(&mut self, record: &TraceRecord, out: &mut dyn Write) -> Result<(), WriteError> {
        let action = match record.operation {
            Operation::Read => "read",
            Operation::Write | Operation::WriteZeroes => "write",
            Operation::Trim => "trim",
            Operation::Flush => "sync",
        };
        if record.length > LENGTH_BYTES_MAX {
            return Err(WriteError::unwritable("length", &record.length, format!("at most {LENGTH_BYTES_MAX}")));
        }
        let origin = *self.origin.get_or_insert(record.at);
        if record.at < origin {
            let allowed = format!("at least that of the first record, {}", origin.as_nanos());
            return Err(WriteError::unwritable("at", &record.at.as_nanos(), allowed));
        }
        let at_us = FIRST_US + record.at.since(origin).as_nanos() / NANOSECONDS_PER_MICROSECOND;
        if !self.added.contains_key(&record.device) {
            let given = self.given.get(&record.device).cloned();
            let name = given.unwrap_or_else(|| format!("device-{}", record.device));
            writeln!(out, "{at_us} {name} add\n{at_us} {name} open")?;
            self.added.insert(record.device, name);
        }
        self.last_us = self.last_us.max(at_us);
        let (name, offset, length) = (&self.added[&record.device], record.offset, record.length);
        Ok(writeln!(out, "{at_us} {name} {action} {offset} {length}")?)
    }

    fn end(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        self.added.values().try_for_each(|name| writeln!(out, "{} {name} close", self.last_us))
    }

    fn name_device(&mut self, device: u32, name: &str) -> Result<(), WriteError> {
        if name.is_empty() || name.len() >= NAME_BYTES_MAX || name.contains(char::is_whitespace) {
            let allowed = format!("1 to {} bytes without blanks", NAME_BYTES_MAX - 1);
            return Err(WriteError::unwritable("device's name", &name, allowed));
        }
        self.given.insert(device, name.to_owned());
        Ok(())
    }
}
