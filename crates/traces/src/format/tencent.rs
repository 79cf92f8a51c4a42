//! Tencent CBS: a cloud block store's requests, of thousands of volumes over ten days.
//!
//! A line is `Timestamp,Offset,Size,IOType,VolumeID`: Unix time in whole seconds, sectors of 512 bytes, sectors, 0 for
//! a read or 1 for a write, a number. With whole seconds many records share a time; they keep the order of the file.
//! Files were merged from many machines, so records stand far from their place ([`Order::Sorted`](crate::Order)).
//!
//! The traces are published as `.tgz`: unpack the archive first, the reader takes gzip but not tar.
//!
//! Source: the README of the traces at SNIA IOTTA. (Zhang et al., *OSCA: An Online-Model Based Cache Allocation Scheme
//! in Cloud Block Storage Systems*, USENIX ATC 2020.)

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, Header, NANOSECONDS_PER_SECOND, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "tencent",
    clock: "1970, UTC",
    rule: "five whole numbers with commas, the fourth 0 or 1: Timestamp,Offset,Size,IOType,VolumeID",
};
const FIELDS: &str = "Timestamp,Offset,Size,IOType,VolumeID";

pub(super) struct Tencent(Header);

impl Tencent {
    pub fn new() -> Tencent {
        Tencent(Header::new(FIELDS))
    }
}

impl LineFormat for Tencent {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.0.is(line) {
            return Ok(None);
        }
        let [timestamp, offset, size, io_type, volume] = fields::split(line, fields::Separator::Comma, FIELDS)?;
        let at_ns = fields::units("Timestamp", timestamp, NANOSECONDS_PER_SECOND)?;
        let offset = fields::units("Offset", offset, SECTOR_BYTES)?;
        let length = fields::units("Size", size, SECTOR_BYTES)?;
        let operation = match io_type {
            "0" => Operation::Read,
            "1" => Operation::Write,
            _ => return Err(FieldError::new("IOType", io_type, "0 (read) or 1 (write)")),
        };
        let device = fields::small("VolumeID", volume)?;
        Ok(Some(TraceRecord { device, ..fields::request(at_ns, operation, offset, length)? }))
    }
}
