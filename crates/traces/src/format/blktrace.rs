//! blktrace: the events that Linux writes for `blktrace(8)`, one `struct blk_io_trace` after the other.
//!
//! ```text
//! magic [4]  sequence [4]  time [8]  sector [8]  bytes [4]  action [4]
//! pid [4]  device [4]  cpu [4]  error [2]  pdu_len [2]
//! ```
//!
//! 48 bytes, in the byte order of the traced machine, which the magic number tells; then `pdu_len` bytes that are
//! passed over. `time` is in nanoseconds of the machine's monotonic clock, `sector` in units of 512 bytes. The low half
//! of `action` is the event, the high half the kind of request. A request goes by several times: queued, merged,
//! issued, completed. One of these moments is read, [`BlockAction`]; the others are left out and counted.
//!
//! blktrace writes a file for each CPU; each alone is in order. `blkparse -d` merges them.
//!
//! The writer writes little-endian queue events on CPU 0: what fio, blkparse and btt take. Offsets must be whole
//! sectors. Writing zeroes becomes a write, as in the kernel's own traces; an unknown process becomes 0; response times
//! are lost.
//!
//! Source: `include/uapi/linux/blktrace_api.h` of Linux.

use super::{BinaryFormat, Encode, Event, Info};
use crate::fault::{Fault, FieldError};
use crate::fields::{self, SECTOR_BYTES};
use crate::record::TraceRecord;
use crate::source::Source;
use crate::write_error::WriteError;
use plimsoll_core::Operation;
use std::io::Write;

pub(super) const INFO: Info = Info {
    name: "blktrace",
    clock: "the traced machine's, usually its start",
    rule: "binary; the first four bytes are 0x65617407 in either byte order",
};
const RECORD_BYTES: usize = 48;
/// `BLK_IO_TRACE_MAGIC`; the low byte is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
// Kinds of request (`enum blktrace_cat`), in the high half of `action`.
const CATEGORY_SHIFT: u32 = 16;
const CATEGORY_READ: u32 = 1;
const CATEGORY_WRITE: u32 = 1 << 1;
const CATEGORY_FLUSH: u32 = 1 << 2;
const CATEGORY_QUEUE: u32 = 1 << 4;
const CATEGORY_PASSTHROUGH: u32 = 1 << 9;
const CATEGORY_NOTIFY: u32 = 1 << 10;
const CATEGORY_DISCARD: u32 = 1 << 13;
/// What happened (`enum blktrace_act`), in the low byte of `action`; bit 8 says that a cgroup's number follows.
const ACTION_MASK: u32 = 0xff;
const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;

/// Which event of a request's life is read from `blktrace` and `blkparse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockAction {
    /// `Q`: it entered the block layer. What the software asked for, before merging.
    #[default]
    Queue,
    /// `D`: it was sent to the driver. What the device saw, after the scheduler.
    Issue,
}

impl BlockAction {
    const fn number(self) -> u32 {
        match self {
            BlockAction::Queue => ACTION_QUEUE,
            BlockAction::Issue => ACTION_ISSUE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The order in which `bytes` are the magic number, whatever the version.
    fn of(bytes: [u8; 4]) -> Option<ByteOrder> {
        let is_magic = |number: u32| number & !0xff == MAGIC;
        if is_magic(u32::from_le_bytes(bytes)) {
            Some(ByteOrder::Little)
        } else if is_magic(u32::from_be_bytes(bytes)) {
            Some(ByteOrder::Big)
        } else {
            None
        }
    }

    fn number<const SIZE: usize>(self, record: &[u8], at: usize) -> u64 {
        let bytes = &record[at..at + SIZE];
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            ByteOrder::Little => bytes.iter().rev().fold(0, join),
            ByteOrder::Big => bytes.iter().fold(0, join),
        }
    }
}

/// Whether content that begins with `sample` is this format.
pub(super) fn fits(sample: &[u8]) -> bool {
    sample.first_chunk().is_some_and(|magic| ByteOrder::of(*magic).is_some())
}

pub(super) struct Blktrace {
    action: BlockAction,
    /// Of the first record; all others must have the same.
    byte_order: Option<ByteOrder>,
}

impl Blktrace {
    pub fn new(action: BlockAction) -> Blktrace {
        Blktrace { action, byte_order: None }
    }

    fn byte_order(&mut self, magic: [u8; 4]) -> Result<ByteOrder, FieldError> {
        let byte_order = ByteOrder::of(magic).filter(|order| self.byte_order.is_none_or(|first| first == *order));
        let byte_order = byte_order.ok_or_else(|| {
            let got = format!("{:08x}", u32::from_be_bytes(magic));
            FieldError::new("magic", &got, "65617407, in the byte order of the first record")
        })?;
        let version = byte_order.number::<4>(&magic, 0) as u32 & 0xff;
        if version != VERSION {
            return Err(FieldError::new("version", &version.to_string(), VERSION.to_string()));
        }
        self.byte_order = Some(byte_order);
        Ok(byte_order)
    }
}

/// What a request of `category` and `bytes` asks of the device, if it is I/O.
fn operation(category: u32, bytes: u64) -> Option<Operation> {
    let has = |bit| category & bit != 0;
    match () {
        _ if has(CATEGORY_PASSTHROUGH | CATEGORY_NOTIFY) => None,
        _ if has(CATEGORY_DISCARD) => Some(Operation::Trim),
        _ if bytes == 0 => has(CATEGORY_FLUSH).then_some(Operation::Flush),
        _ if has(CATEGORY_WRITE) => Some(Operation::Write),
        _ if has(CATEGORY_READ) => Some(Operation::Read),
        _ => None,
    }
}

impl BinaryFormat for Blktrace {
    fn record(&mut self, source: &mut Source) -> Result<Event, Fault> {
        let Some(record) = source.record::<RECORD_BYTES>()? else { return Ok(Event::End) };
        let order = self.byte_order(*record.first_chunk().expect("a magic number"))?;
        let (sector, bytes) = (order.number::<8>(&record, 16), order.number::<4>(&record, 24));
        let action = order.number::<4>(&record, 28) as u32;
        source.skip(RECORD_BYTES as u64, order.number::<2>(&record, 46))?;
        let operation = operation(action >> CATEGORY_SHIFT, bytes);
        let Some(operation) = operation.filter(|_| action & ACTION_MASK == self.action.number()) else {
            return Ok(Event::Other);
        };
        let offset = match operation {
            Operation::Flush => 0, // Its sector means nothing: the kernel writes what it happens to find, often -1.
            _ => fields::scaled("sector", sector, SECTOR_BYTES)?,
        };
        let request = fields::request(order.number::<8>(&record, 8), operation, offset, bytes)?;
        let process = Some(order.number::<4>(&record, 32) as u32);
        let request = TraceRecord { device: order.number::<4>(&record, 36) as u32, process, ..request };
        // A write may have a flush before it (REQ_PREFLUSH).
        let is_flush_before = operation != Operation::Flush && action >> CATEGORY_SHIFT & CATEGORY_FLUSH != 0;
        Ok(if is_flush_before { Event::FlushAndRequest(request) } else { Event::Request(request) })
    }
}

#[derive(Default)]
pub(super) struct BlktraceEncoder {
    sequence: u32,
}

impl Encode for BlktraceEncoder {
    fn record(&mut self, record: &TraceRecord, out: &mut dyn Write) -> Result<(), WriteError> {
        let category = match record.operation {
            Operation::Read => CATEGORY_READ,
            Operation::Write | Operation::WriteZeroes => CATEGORY_WRITE,
            Operation::Flush => CATEGORY_WRITE | CATEGORY_FLUSH,
            Operation::Trim => CATEGORY_WRITE | CATEGORY_DISCARD,
        };
        if !record.offset.is_multiple_of(SECTOR_BYTES) {
            return Err(WriteError::unwritable("offset", &record.offset, "a multiple of 512"));
        }
        let is_flush = record.operation == Operation::Flush;
        let bytes = u32::try_from(record.length).ok().filter(|bytes| (*bytes == 0) == is_flush);
        let bytes = bytes.ok_or_else(|| {
            WriteError::unwritable("length", &record.length, "0 for a flush, 1 to 4294967295 for anything else")
        })?;
        self.sequence = self.sequence.wrapping_add(1);
        let action = (category | CATEGORY_QUEUE) << CATEGORY_SHIFT | ACTION_QUEUE;
        out.write_all(&(MAGIC | VERSION).to_le_bytes())?;
        out.write_all(&self.sequence.to_le_bytes())?;
        out.write_all(&record.at.as_nanos().to_le_bytes())?;
        out.write_all(&(record.offset / SECTOR_BYTES).to_le_bytes())?;
        for number in [bytes, action, record.process.unwrap_or(0), record.device, 0] {
            out.write_all(&number.to_le_bytes())?;
        }
        Ok(out.write_all(&[0; 4])?) // No error, and nothing follows.
    }
}
