//! HP: a workstation of 1992 (`hplajw`), the one known trace that tells what each block meant to the file system.
//!
//! A line is `time_s,start_us,stop_us,size_bytes,sector,dev_hex,flags_hex,info_hex,op`. First come seconds since the
//! start of the trace with decimals, then the drive's begin and end in microseconds from that moment. Bytes, sectors of
//! 512 bytes, three hexadecimal numbers, and R or W follow. The response time is `stop_us`, waiting included.
//!
//! The class of a record is bits 16 to 20 of `info`, as its number. 1 is file data, 2 inode, 3 directory, 4 indirect
//! block, 5 superblock, 6 cylinder group, 7 swap, 9 paging of executables. That reading is this project's; HP never
//! published one. The numbers are those of `classes/hp-ux.toml`, not of `ext4.toml`.
//!
//! Source: the text form is this project's, made from the binary that DiskSim reads (`iotrace_hpl_get_ioreq_event` in
//! its `disksim_iotrace.c`). See Ruemmler and Wilkes, *UNIX disk access patterns*, USENIX Winter 1993.

use super::{Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, Header, NANOSECONDS_PER_MICROSECOND, NANOSECONDS_PER_SECOND, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::{Class, Span};

pub(super) const INFO: Info = Info {
    name: "hp",
    clock: "start of the trace",
    rule: "nine fields with commas, the last R or W: time_s,start_us,stop_us,size_bytes,sector,dev_hex,flags_hex,info_hex,op",
};
const FIELDS: &str = "time_s,start_us,stop_us,size_bytes,sector,dev_hex,flags_hex,info_hex,op";
const CLASS_SHIFT: u32 = 16;
const CLASS_MASK: u32 = 0x1f;

pub(super) struct Hp(Header);

impl Hp {
    pub fn new() -> Hp {
        Hp(Header::new(FIELDS))
    }
}

impl LineFormat for Hp {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        if self.0.is(line) {
            return Ok(None);
        }
        let [time, start, stop, size, sector, device, flags, info, op] =
            fields::split(line, fields::Separator::Comma, FIELDS)?;
        let at_ns = fields::decimal_ns("time_s", time, NANOSECONDS_PER_SECOND)?;
        let start_ns = fields::units("start_us", start, NANOSECONDS_PER_MICROSECOND)?;
        let stop_ns = fields::units("stop_us", stop, NANOSECONDS_PER_MICROSECOND)?;
        if stop_ns < start_ns {
            return Err(FieldError::new("stop_us", stop, "at least start_us"));
        }
        let length = fields::integer("size_bytes", size)?;
        let offset = fields::units("sector", sector, SECTOR_BYTES)?;
        let device = fields::hexadecimal("dev_hex", device)?;
        fields::hexadecimal("flags_hex", flags)?;
        let class = (fields::hexadecimal("info_hex", info)? >> CLASS_SHIFT) & CLASS_MASK;
        let class = Class::new(class as u8).expect("five bits");
        let record = fields::request(at_ns, fields::read_or_write("op", op)?, offset, length)?;
        Ok(Some(TraceRecord { device, class, response: Some(Span::from_nanos(stop_ns)), ..record }))
    }
}
