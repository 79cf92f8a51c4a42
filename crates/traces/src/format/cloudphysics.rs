//! CloudPhysics as text: a virtual machine's disk, as libCacheSim's sample has it.
//!
//! A line is `version,time,op,size,lbn`: 1 or 2, seconds, the SCSI operation code in hexadecimal, bytes, sectors of 512
//! bytes. The first line names the columns. The zero of the time is not defined; it is the host's. Commands that are no
//! I/O are left out and counted, as in the binary form, [`vscsi`](super::vscsi), which also has the finer times.
//!
//! Source: the sample data of libCacheSim, compared with the binary form of the same trace. Sizes, sectors and commands
//! agree, and its microseconds are these seconds.

use super::{Info, LineFormat, vscsi};
use crate::fault::FieldError;
use crate::fields::{self, Header, NANOSECONDS_PER_SECOND, SECTOR_BYTES};
use crate::record::TraceRecord;

pub(super) const INFO: Info = Info {
    name: "cloudphysics",
    clock: "the traced host's",
    rule: "five fields with commas, the first 1 or 2, the third a SCSI command in hexadecimal: version,time,op,size,lbn",
};
const FIELDS: &str = "version,time,op,size,lbn";
/// Operation codes have two digits.
const OPCODE_DIGITS: usize = 2;

pub(super) struct CloudPhysics(Header);

impl CloudPhysics {
    pub fn new() -> CloudPhysics {
        CloudPhysics(Header::new(FIELDS))
    }
}

impl LineFormat for CloudPhysics {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.0.is(line) {
            return Ok(None);
        }
        let [version, time, op, size, lbn] = fields::split(line, fields::Separator::Comma, FIELDS)?;
        if !matches!(version, "1" | "2") {
            return Err(FieldError::new("version", version, "1 or 2"));
        }
        let at_ns = fields::units("time", time, NANOSECONDS_PER_SECOND)?;
        let code = u8::from_str_radix(op, 16).ok().filter(|_| op.len() == OPCODE_DIGITS && !op.starts_with('+'));
        let code = code.ok_or_else(|| FieldError::new("op", op, "a SCSI operation code, 00 to ff"))?;
        let length = fields::integer("size", size)?;
        let offset = fields::units("lbn", lbn, SECTOR_BYTES)?;
        let Some(operation) = vscsi::operation(code) else { return Ok(None) };
        fields::request(at_ns, operation, offset, length).map(Some)
    }
}
