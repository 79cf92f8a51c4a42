//! DiskSim's default text format.
//!
//! A line is `time device block count flags`, separated by blanks. The fields are milliseconds since the start of the
//! trace with decimals, a number, sectors of 512 bytes, sectors, and flags in hexadecimal. Bit 0 of the flags stands
//! for a read. The other flags (synchronous, asynchronous, and DiskSim's own) say nothing that a record holds.
//!
//! Source: *The DiskSim Simulation Environment Version 4.0 Reference Manual*, Bucy, Schindler, Schlosser and Ganger,
//! 2008, and the reader of this format in DiskSim's `disksim_iotrace.c`.

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, NANOSECONDS_PER_MILLISECOND, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "disksim",
    clock: "start of the trace",
    rule: "five fields with blanks, the first with a decimal point: time device block count flags",
};
const FIELDS: &str = "time device block count flags";
const FLAG_READ: u32 = 1;

pub(super) struct DiskSim;

impl LineFormat for DiskSim {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        let [time, device, block, count, flags] = fields::split(line, fields::Separator::Blank, FIELDS)?;
        let at_ns = fields::decimal_ns("time", time, NANOSECONDS_PER_MILLISECOND)?;
        let device = fields::small("device", device)?;
        let offset = fields::units("block", block, SECTOR_BYTES)?;
        let length = fields::units("count", count, SECTOR_BYTES)?;
        let is_read = fields::hexadecimal("flags", flags)? & FLAG_READ != 0;
        let operation = if is_read { Operation::Read } else { Operation::Write };
        Ok(Some(TraceRecord { device, ..fields::request(at_ns, operation, offset, length)? }))
    }
}

/// The difference from [`mqsim`](super::mqsim), which has whole numbers as times: DiskSim writes milliseconds with
/// decimals.
pub(super) fn is_typical(line: &str) -> bool {
    line.split_ascii_whitespace().next().is_some_and(|time| time.contains('.'))
}
