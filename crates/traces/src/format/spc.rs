//! SPC: the Storage Performance Council's trace files, in which the University of Massachusetts' Financial and
//! WebSearch traces come.
//!
//! A line is `ASU,LBA,size,opcode,timestamp`: application-specific unit, block, bytes, R or W in either case, and
//! seconds since the start of the trace. More fields may follow and are the writer's own. Note that the size is in
//! *bytes*, while the address is in *blocks*.
//!
//! The definition leaves the size of a block to the description of each trace. That of the UMass traces is 512 bytes,
//! which this reader uses.
//!
//! Source: *SPC Trace File Format Specification*, revision 1.0.1, Storage Performance Council, 2002.

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, NANOSECONDS_PER_SECOND, SECTOR_BYTES};
use crate::record::TraceRecord;

pub(super) const INFO: Info = Info {
    name: "spc",
    clock: "start of the trace",
    rule: "five or more fields with commas, the fourth R or W: ASU,LBA,size,opcode,timestamp",
};
const FIELDS: &str = "ASU,LBA,size,opcode,timestamp";
const FIELD_COUNT: usize = 5;

pub(super) struct Spc;

impl LineFormat for Spc {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        // The optional fields are cut off, so that what is left must have five.
        let end = line.match_indices(',').nth(FIELD_COUNT - 1).map_or(line.len(), |(at, _)| at);
        let [asu, lba, size, opcode, timestamp] =
            fields::split::<FIELD_COUNT>(&line[..end], fields::Separator::Comma, FIELDS)?;
        let offset = fields::units("LBA", lba, SECTOR_BYTES)?;
        let length = fields::integer("size", size)?;
        let operation = fields::read_or_write("opcode", opcode)?;
        let at_ns = fields::decimal_ns("timestamp", timestamp, NANOSECONDS_PER_SECOND)?;
        let record = fields::request(at_ns, operation, offset, length)?;
        Ok(Some(TraceRecord { device: fields::small("ASU", asu)?, ..record }))
    }
}
