//! SYSTOR'17: block traces of a virtual desktop infrastructure.
//!
//! A line is `Timestamp,Response,IOType,LUN,Offset,Size`: Unix time and response time in seconds with nine decimals, R
//! or W, a number, bytes, bytes. The first line names the columns. Lines stand in order of completion, so the times go
//! back and forth a little; [`Order::Sorted`](crate::Order) puts them right.
//!
//! The complication: there are lines with an empty type and response. They say that something happened, not what; they
//! are left out and counted.
//!
//! Source: Lee, Kumano, Matsuki, Endo, Fukumoto and Sugawara, *Understanding Storage Traffic Characteristics on
//! Enterprise Virtual Desktop Infrastructure*, SYSTOR 2017. Also the README of the traces at SNIA IOTTA.

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, Header, NANOSECONDS_PER_SECOND};
use crate::record::TraceRecord;
use plimsoll_core::Span;

pub(super) const INFO: Info = Info {
    name: "systor17",
    clock: "1970, UTC",
    rule: "six fields with commas, the third R, W or empty: Timestamp,Response,IOType,LUN,Offset,Size",
};
const FIELDS: &str = "Timestamp,Response,IOType,LUN,Offset,Size";

pub(super) struct Systor17(Header);

impl Systor17 {
    pub fn new() -> Systor17 {
        Systor17(Header::new(FIELDS))
    }
}

impl LineFormat for Systor17 {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.0.is(line) {
            return Ok(None);
        }
        let [timestamp, response, io_type, lun, offset, size] = fields::split(line, fields::Separator::Comma, FIELDS)?;
        let at_ns = fields::decimal_ns("Timestamp", timestamp, NANOSECONDS_PER_SECOND)?;
        let (offset, length) = (fields::integer("Offset", offset)?, fields::integer("Size", size)?);
        let device = fields::small("LUN", lun)?;
        if io_type.is_empty() && response.is_empty() {
            return Ok(None);
        }
        let operation = fields::read_or_write("IOType", io_type)?;
        let response_ns = fields::decimal_ns("Response", response, NANOSECONDS_PER_SECOND)?;
        let record = fields::request(at_ns, operation, offset, length)?;
        Ok(Some(TraceRecord { device, response: Some(Span::from_nanos(response_ns)), ..record }))
    }
}
