//! Alibaba block traces: a thousand virtual disks of a public cloud over a month.
//!
//! A line is `device_id,opcode,offset,length,timestamp`: a number, R or W, bytes, bytes, Unix time in microseconds.
//!
//! Source: the schema in the README of the repository `alibaba/block-traces`. (Li et al., *An In-Depth Analysis of
//! Cloud Block Storage Workloads in Large-Scale Production*, IISWC 2020.)

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, Header, NANOSECONDS_PER_MICROSECOND};
use crate::record::TraceRecord;

pub(super) const INFO: Info = Info {
    name: "alibaba",
    clock: "1970, UTC",
    rule: "five fields with commas, the second R or W: device_id,opcode,offset,length,timestamp",
};
const FIELDS: &str = "device_id,opcode,offset,length,timestamp";

pub(super) struct Alibaba(Header);

impl Alibaba {
    pub fn new() -> Alibaba {
        Alibaba(Header::new(FIELDS))
    }
}

impl LineFormat for Alibaba {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.0.is(line) {
            return Ok(None);
        }
        let [device_id, opcode, offset, length, timestamp] = fields::split(line, fields::Separator::Comma, FIELDS)?;
        let device = fields::small("device_id", device_id)?;
        let operation = fields::read_or_write("opcode", opcode)?;
        let (offset, length) = (fields::integer("offset", offset)?, fields::integer("length", length)?);
        let at_ns = fields::units("timestamp", timestamp, NANOSECONDS_PER_MICROSECOND)?;
        Ok(Some(TraceRecord { device, ..fields::request(at_ns, operation, offset, length)? }))
    }
}
