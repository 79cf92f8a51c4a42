//! MSR Cambridge: 36 volumes of a research laboratory's servers over a week.
//!
//! A line is `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. The fields are Windows file time (units of
//! 100 ns since 1601), a name, a number, `Read` or `Write`, bytes, bytes, units of 100 ns. The time becomes Unix time,
//! so that it can be held against other formats; a time before 1970 is refused.
//!
//! The complication: disks are numbered within a host. The first host's disks keep their numbers. Disks of other hosts
//! in the same file get the host's place in the order of appearance times 65536, plus the disk's number.
//! [`Reader::device_name`](crate::Reader::device_name) gives the host's name back.
//!
//! The writer writes reads and writes (zeroes are written as a write) to one host of its own. It refuses flushes and
//! trims, because the format has no word for them. It cuts times to 100 ns and writes an unknown response time as 0.
//!
//! Source: the README of the traces at SNIA IOTTA (Narayanan, Donnelly and Rowstron, *Write Off-Loading*, FAST 2008).

use super::{Encode, Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, Header};
use crate::names::Names;
use crate::record::TraceRecord;
use crate::write_error::WriteError;
use plimsoll_core::{Operation, Span};
use std::io::Write;

pub(super) const INFO: Info = Info {
    name: "msr",
    clock: "1970, UTC",
    rule: "seven fields with commas, the fourth Read or Write: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
};
const FIELDS: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
/// A unit of Windows file time, nanoseconds.
const TICK_NS: u64 = 100;
/// From 1601 to 1970 in units of 100 ns: 369 years of which 89 are leap years, 134,774 days.
const UNIX_EPOCH_TICKS: u64 = 134_774 * 24 * 3600 * 10_000_000;
/// Disks that a host can have.
const DISKS_PER_HOST: u32 = 1 << 16;
/// The host that the writer names.
const WRITTEN_HOST: &str = "plimsoll";

pub(super) struct Msr {
    header: Header,
    hosts: Names,
}

impl Msr {
    pub fn new() -> Msr {
        Msr { header: Header::new(FIELDS), hosts: Names::new("Hostname") }
    }
}

impl LineFormat for Msr {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.header.is(line) {
            return Ok(None);
        }
        let [timestamp, host, disk, kind, offset, size, response] =
            fields::split(line, fields::Separator::Comma, FIELDS)?;
        let unix_ticks = fields::integer("Timestamp", timestamp)?.checked_sub(UNIX_EPOCH_TICKS);
        let at_ns = unix_ticks.and_then(|ticks| ticks.checked_mul(TICK_NS)).ok_or_else(|| {
            let latest = UNIX_EPOCH_TICKS + u64::MAX / TICK_NS;
            FieldError::new("Timestamp", timestamp, format!("{UNIX_EPOCH_TICKS} (1970) to {latest}"))
        })?;
        let operation = match kind {
            "Read" => Operation::Read,
            "Write" => Operation::Write,
            _ => return Err(FieldError::new("Type", kind, "Read or Write")),
        };
        let (offset, length) = (fields::integer("Offset", offset)?, fields::integer("Size", size)?);
        let response = Span::from_nanos(fields::units("ResponseTime", response, TICK_NS)?);
        let disk_number = fields::small("DiskNumber", disk)?;
        if disk_number >= DISKS_PER_HOST {
            return Err(FieldError::new("DiskNumber", disk, format!("0 to {}", DISKS_PER_HOST - 1)));
        }
        let device = self.hosts.number(host)? * DISKS_PER_HOST + disk_number;
        Ok(Some(TraceRecord { device, response: Some(response), ..fields::request(at_ns, operation, offset, length)? }))
    }

    fn device_name(&self, device: u32) -> Option<String> {
        let host = self.hosts.name(device / DISKS_PER_HOST)?;
        Some(format!("{host} disk {}", device % DISKS_PER_HOST))
    }
}

pub(super) struct MsrEncoder;

impl Encode for MsrEncoder {
    fn record(&mut self, record: &TraceRecord, out: &mut dyn Write) -> Result<(), WriteError> {
        let kind = match record.operation {
            Operation::Read => "Read",
            Operation::Write | Operation::WriteZeroes => "Write",
            Operation::Flush | Operation::Trim => {
                return Err(WriteError::unwritable("operation", &record.operation, "a read or a write"));
            }
        };
        let ticks = record.at.as_nanos() / TICK_NS + UNIX_EPOCH_TICKS;
        let response_ticks = record.response.unwrap_or(Span::ZERO).as_nanos() / TICK_NS;
        if record.device >= DISKS_PER_HOST {
            return Err(WriteError::unwritable("device", &record.device, format!("0 to {}", DISKS_PER_HOST - 1)));
        }
        let (device, offset, length) = (record.device, record.offset, record.length);
        writeln!(out, "{ticks},{WRITTEN_HOST},{device},{kind},{offset},{length},{response_ticks}")?;
        Ok(())
    }
}
