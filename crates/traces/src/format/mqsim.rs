//! MQSim's text format.
//!
//! A line is `time device address size type`, separated by blanks: nanoseconds since the start of the trace, a number,
//! sectors of 512 bytes, sectors. The type is 0 for a write or 1 for a read.
//!
//! The complication: MQSim's workload definition may set another unit of time (`Time_Unit`), which the trace itself
//! does not say. Nanoseconds are what its own traces have.
//!
//! Source: `traces/README.md` of MQSim (Tavakkol et al., FAST 2018).

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "mqsim",
    clock: "start of the trace",
    rule: "five whole numbers with blanks, the fifth 0 or 1: time device address size type",
};
const FIELDS: &str = "time device address size type";

pub(super) struct MqSim;

impl LineFormat for MqSim {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        let [time, device, address, size, kind] = fields::split(line, fields::Separator::Blank, FIELDS)?;
        let at_ns = fields::integer("time", time)?;
        let device = fields::small("device", device)?;
        let offset = fields::units("address", address, SECTOR_BYTES)?;
        let length = fields::units("size", size, SECTOR_BYTES)?;
        let operation = match kind {
            "0" => Operation::Write,
            "1" => Operation::Read,
            _ => return Err(FieldError::new("type", kind, "0 (write) or 1 (read)")),
        };
        Ok(Some(TraceRecord { device, ..fields::request(at_ns, operation, offset, length)? }))
    }
}
