//! vscsi: CloudPhysics' binary records of a virtual machine's SCSI commands.
//!
//! Records of fixed size in little-endian order, without a header; bytes in brackets:
//!
//! ```text
//! version 1 (32)   sn [4]  len [4]  nSG [4]  cmd [2]  ver [2]  lbn [8]  ts [8]
//! version 2 (40)   cmd [2]  ver [2]  sn [4]  len [4]  nSG [4]  lbn [8]  ts [8]  rt [8]
//! ```
//!
//! `len` is in bytes, `lbn` in sectors of 512 bytes, `ts` in microseconds of the traced host's clock. The high byte of
//! `ver` is the version, the low byte of `cmd` the SCSI operation code. The version is told by where `ver` and `cmd`
//! make sense. The unit of `rt` is nowhere defined, so no response time is taken from it. Commands that are no I/O
//! (INQUIRY and the like) are left out and counted.
//!
//! Source: libCacheSim's `traceReader/customizedReader/vscsi.h`; operation codes: SCSI Block Commands, SBC-3.

use super::{BinaryFormat, Event, Info};
use crate::fault::{Fault, FieldError};
use crate::fields::{self, NANOSECONDS_PER_MICROSECOND, SECTOR_BYTES};
use crate::source::Source;
use plimsoll_core::Operation;

pub(super) const INFO: Info = Info {
    name: "vscsi",
    clock: "the traced host's",
    rule: "binary; the first two records of 32 or of 40 bytes have version 1 or 2 and a SCSI command that is I/O",
};
const VERSION_1_BYTES: usize = 32;
const VERSION_2_BYTES: usize = 40;
/// Records that the detection looks at.
const RECORDS_LOOKED_AT: usize = 2;

/// What a SCSI command asks of a disk, if it is I/O. Reads and writes of 6, 10, 12 and 16 bytes; WRITE AND VERIFY
/// counts as a write, both SYNCHRONIZE CACHE commands as a flush.
pub(super) const fn operation(code: u8) -> Option<Operation> {
    match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Operation::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Operation::Write),
        0x35 | 0x91 => Some(Operation::Flush),
        _ => None,
    }
}

/// One of the two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VscsiVersion {
    One,
    Two,
}

/// The fields of a record that both versions have.
struct Command {
    code: u8,
    version: u8,
    len: u32,
    lbn: u64,
    ts: u64,
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl VscsiVersion {
    const fn bytes(self) -> usize {
        match self {
            VscsiVersion::One => VERSION_1_BYTES,
            VscsiVersion::Two => VERSION_2_BYTES,
        }
    }

    const fn number(self) -> u8 {
        match self {
            VscsiVersion::One => 1,
            VscsiVersion::Two => 2,
        }
    }

    fn command(self, record: &[u8]) -> Command {
        let (cmd, len, lbn) = match self {
            VscsiVersion::One => (12, 4, 16),
            VscsiVersion::Two => (0, 8, 16),
        };
        Command {
            code: record[cmd],
            version: record[cmd + 3],
            len: le32(record, len),
            lbn: le64(record, lbn),
            ts: le64(record, lbn + 8),
        }
    }

    /// Whether there are records in `sample`, and the first ones in this layout have its version and are `accepted`.
    fn fits(self, sample: &[u8], accepted: fn(&Command) -> bool) -> bool {
        let commands = sample.chunks_exact(self.bytes()).take(RECORDS_LOOKED_AT).map(|record| self.command(record));
        let mut commands = commands.peekable();
        commands.peek().is_some() && commands.all(|command| command.version == self.number() && accepted(&command))
    }
}

const VERSIONS: [VscsiVersion; 2] = [VscsiVersion::Two, VscsiVersion::One];

/// Whether content that begins with `sample` is this format.
pub(super) fn fits(sample: &[u8]) -> bool {
    VERSIONS.into_iter().any(|version| version.fits(sample, |command| operation(command.code).is_some()))
}

pub(super) struct Vscsi(VscsiVersion);

impl Vscsi {
    /// Reads the layout of the version in the first records, or version 1 if there is none: then its error says what is
    /// wrong.
    pub fn new(sample: &[u8]) -> Vscsi {
        Vscsi(VERSIONS.into_iter().find(|version| version.fits(sample, |_| true)).unwrap_or(VscsiVersion::One))
    }
}

impl BinaryFormat for Vscsi {
    fn record(&mut self, source: &mut Source) -> Result<Event, Fault> {
        let command = match self.0 {
            VscsiVersion::One => source.record::<VERSION_1_BYTES>()?.map(|record| self.0.command(&record)),
            VscsiVersion::Two => source.record::<VERSION_2_BYTES>()?.map(|record| self.0.command(&record)),
        };
        let Some(command) = command else { return Ok(Event::End) };
        if command.version != self.0.number() {
            let (got, allowed) = (command.version.to_string(), format!("{} as before", self.0.number()));
            return Err(FieldError::new("version", &got, allowed).into());
        }
        let Some(operation) = operation(command.code) else { return Ok(Event::Other) };
        let at_ns = fields::scaled("ts", command.ts, NANOSECONDS_PER_MICROSECOND)?;
        let offset = fields::scaled("lbn", command.lbn, SECTOR_BYTES)?;
        let length = if operation == Operation::Flush { 0 } else { u64::from(command.len) };
        Ok(Event::Request(fields::request(at_ns, operation, offset, length)?))
    }
}
