//! `.lis`: the traces of the ARC paper, reads only and without times.
//!
//! A line is `start count ignored request`, separated by blanks: first block, number of blocks of 512 bytes, a field
//! without a meaning, and the request's number. Some files leave that at 0. Without times every record stands at the
//! clock's zero; their order is that of the file.
//!
//! Source: Megiddo and Modha, *ARC: A Self-Tuning, Low Overhead Replacement Cache*, FAST 2003, and the description that
//! its authors published with the traces.

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "lis",
    clock: "none: every record is at 0",
    rule: "four whole numbers with blanks: start count ignored request",
};
const FIELDS: &str = "start count ignored request";

pub(super) struct Lis;

impl LineFormat for Lis {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        let [start, count, ignored, request] = fields::split(line, fields::Separator::Blank, FIELDS)?;
        let offset = fields::units("start", start, SECTOR_BYTES)?;
        let length = fields::units("count", count, SECTOR_BYTES)?;
        fields::integer("ignored", ignored)?;
        fields::integer("request", request)?;
        fields::request(0, Operation::Read, offset, length).map(Some)
    }
}
