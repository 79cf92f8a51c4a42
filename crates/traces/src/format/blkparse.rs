//! blkparse: blktrace's events as text, in the default form of `blkparse(1)`.
//!
//! ```text
//!   8,0    3       11     0.009507758   697  Q   W 223490 + 8 [kjournald]
//!   device cpu  sequence  seconds       pid  action, kind, first sector + sectors [process]
//! ```
//!
//! The kind (RWBS) has D for a discard, W, R, or N for neither, then flags; an F before it is a flush first. A request
//! without data shows no sectors: with an F it is a flush. The flush before a request with data (`FWFS`) is left out
//! and counted. As in [`blktrace`](super::blktrace) one action is read ([`BlockAction`]). The others are left out and
//! counted: they have forms of their own, which are not parsed. At the end blkparse sums up, starting with a line such
//! as `CPU0 (8,0):` or `Total (8,0):`; from there on nothing is read.
//!
//! The device is numbered as in the binary form: major number times 2^20 and minor number.
//!
//! Source: *Output description and formatting* in `blkparse(1)`, and `blkparse_fmt.c` of blktrace.

use super::{BlockAction, Info, LineFormat};
use crate::fault::FieldError;
use crate::fields::{self, NANOSECONDS_PER_SECOND, SECTOR_BYTES};
use crate::record::TraceRecord;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "blkparse",
    clock: "start of the trace",
    rule: "seven or more fields with blanks, the first two numbers with a comma: major,minor cpu sequence time pid action RWBS",
};
const FIELDS: &str = "major,minor cpu sequence time pid action RWBS";
const FIELD_COUNT: usize = 7;
/// `MINORBITS` of Linux.
const MINOR_BITS: u32 = 20;
/// `dev_t` of Linux has 32 bits.
const MAJOR_BITS: u32 = 32 - MINOR_BITS;

pub(super) struct Blkparse {
    action: BlockAction,
    is_event_seen: bool,
    is_in_summary: bool,
    is_flush_before: bool,
}

impl Blkparse {
    pub fn new(action: BlockAction) -> Blkparse {
        Blkparse { action, is_event_seen: false, is_in_summary: false, is_flush_before: false }
    }
}

fn device(text: &str) -> Result<u32, FieldError> {
    let parsed = text.split_once(',').and_then(|(major, minor)| {
        let (major, minor) = (fields::small("", major).ok()?, fields::small("", minor).ok()?);
        (major >> MAJOR_BITS == 0 && minor >> MINOR_BITS == 0).then_some(major << MINOR_BITS | minor)
    });
    parsed.ok_or_else(|| FieldError::new("device", text, "major,minor up to 4095,1048575"))
}

/// The operation that RWBS names, nothing if it is neither data nor a flush, and whether a flush goes first.
fn operation(rwbs: &str) -> Result<(Option<Operation>, bool), FieldError> {
    let is_flush_first = rwbs.starts_with('F');
    let operation = match rwbs.trim_start_matches('F').chars().next() {
        Some('D') => Some(Operation::Trim),
        Some('W') => Some(Operation::Write),
        Some('R') => Some(Operation::Read),
        Some('N') => None,
        None if is_flush_first => None,
        _ => return Err(FieldError::new("RWBS", rwbs, "D, W, R or N, behind an F or not, then flags")),
    };
    Ok((operation, is_flush_first))
}

impl LineFormat for Blkparse {
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError> {
        self.is_flush_before = false;
        self.is_in_summary |= self.is_event_seen && (line.starts_with("CPU") || line.starts_with("Total"));
        if self.is_in_summary {
            return Ok(None);
        }
        let mut parts = line.split_ascii_whitespace();
        let mut head = [""; FIELD_COUNT];
        for (number, field) in head.iter_mut().enumerate() {
            let allowed = || format!("at least {FIELD_COUNT}: {FIELDS}");
            *field = parts.next().ok_or_else(|| FieldError::new("fields", &number.to_string(), allowed()))?;
        }
        let [device_text, cpu, sequence, time, pid, action, rwbs] = head;
        let device = device(device_text)?;
        fields::small("cpu", cpu)?;
        fields::integer("sequence", sequence)?;
        let at_ns = fields::decimal_ns("time", time, NANOSECONDS_PER_SECOND)?;
        let process = Some(fields::small("pid", pid)?);
        self.is_event_seen = true;
        let wanted = if self.action == BlockAction::Queue { "Q" } else { "D" };
        if action != wanted {
            return Ok(None);
        }
        let (operation, is_flush_first) = operation(rwbs)?;
        let (sector, plus, count) = (parts.next(), parts.next(), parts.next());
        let request = match (sector, plus, count) {
            (Some(sector), Some("+"), Some(count)) => {
                let offset = fields::units("sector", sector, SECTOR_BYTES)?;
                let length = fields::units("sectors", count, SECTOR_BYTES)?;
                match operation {
                    Some(operation) if length > 0 => {
                        self.is_flush_before = is_flush_first;
                        fields::request(at_ns, operation, offset, length)?
                    }
                    _ if is_flush_first => fields::request(at_ns, Operation::Flush, 0, 0)?,
                    _ => return Ok(None),
                }
            }
            _ if is_flush_first => fields::request(at_ns, Operation::Flush, 0, 0)?,
            // A command that is passed through shows its bytes, `36 (12 00 ..) [name]`, or nothing but the process.
            (Some(text), ..) if text.starts_with('[') => return Ok(None),
            (Some(_), Some(text), _) if text.starts_with('(') || text.starts_with('[') => return Ok(None),
            (text, ..) => return Err(FieldError::new("sector", text.unwrap_or(""), "SECTOR + SECTORS")),
        };
        Ok(Some(TraceRecord { device, process, ..request }))
    }

    fn is_flush_before(&self) -> bool {
        self.is_flush_before
    }
}
