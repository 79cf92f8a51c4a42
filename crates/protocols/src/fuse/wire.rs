//! Requests as the kernel hands them out at `/dev/fuse`.
//!
//! One read returns one request: a header of 40 bytes, the operation's own fields, and for a write the payload. All
//! numbers are in the machine's own byte order; the structures are in the kernel's `include/uapi/linux/fuse.h`.
//!
//! A write's fields take 40 bytes too, so its payload begins [`WRITE_PREFIX_BYTES`](super::limits::WRITE_PREFIX_BYTES)
//! into the buffer, always. Code that reads into a buffer that begins that far before a page boundary has the payload
//! page-aligned, ready for O_DIRECT.
//!
//! Nothing here allocates or can panic, whatever the bytes are; every function is O(1).

use super::error::WireError;
use super::limits::{PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, ROOT_NODE, WRITE_PREFIX_BYTES};
use super::offer::Offer;

const SET_MODE: u32 = 1 << 0;
const SET_USER: u32 = 1 << 1;
const SET_GROUP: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;

const ALLOCATE_KEEP_SIZE: u32 = 1 << 0;
const ALLOCATE_PUNCH_HOLE: u32 = 1 << 1;
const ALLOCATE_ZERO_RANGE: u32 = 1 << 4;

/// How a range loses its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// The space may be given back; the range reads as zero afterwards (fallocate(2)). A loop device makes it out of a
    /// discard, and out of a write of zeroes that may deallocate. The zeroes are a promise, not a courtesy.
    PunchHole,
    /// The range reads as zero afterwards and keeps its space.
    ZeroRange,
    /// Anything else; a loop device never asks for it.
    Other,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The first request of a mount.
    Initialize(Offer),
    /// The file's size and mode.
    GetAttributes,
    /// A change of the file's size, mode, owner or times.
    SetAttributes {
        /// The new size in bytes, if it is to change.
        size_bytes: Option<u64>,
        /// Whether mode or owner are to change.
        changes_access: bool,
    },
    /// open(2).
    Open,
    /// Reads `length` bytes at `offset`.
    Read {
        /// First byte in the file.
        offset: u64,
        /// Bytes, at most [`PAYLOAD_BYTES_MAX`].
        length: u32,
    },
    /// Writes `length` bytes at `offset`; they stand [`WRITE_PREFIX_BYTES`] into the request.
    Write {
        /// First byte in the file.
        offset: u64,
        /// Bytes, at most [`PAYLOAD_BYTES_MAX`], and all there.
        length: u32,
    },
    /// Makes every write that was replied to durable.
    Fsync,
    /// fallocate(2).
    Allocate {
        /// What becomes of the range.
        mode: AllocateMode,
        /// First byte in the file.
        offset: u64,
        /// Bytes; unlike reads and writes without a bound.
        length: u64,
    },
    /// close(2); says nothing about durability.
    Flush,
    /// The last descriptor went away.
    Release,
    /// statfs(2).
    Statistics,
    /// Unmounted; the last request.
    Destroy,
    /// Takes no reply: forget, forget many, interrupt.
    Unanswered,
    /// An operation that one file has no use for; the reply is ENOSYS.
    Unsupported {
        /// The operation's number.
        opcode: u32,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseRequest {
    /// The kernel's name for it, which the reply repeats.
    pub unique: u64,
    /// What is asked.
    pub call: Call,
}

impl FuseRequest {
    /// Reads the request that `bytes`, all that one read of `/dev/fuse` returned, hold.
    ///
    /// # Errors
    /// Bytes that are cut off or contradict themselves, a node other than the root, a payload larger than agreed.
    pub fn parse(bytes: &[u8]) -> Result<FuseRequest, WireError> {
        let (Some(length), Some(opcode), Some(unique), Some(node)) =
            (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8), u64_at(bytes, 16))
        else {
            return Err(WireError::Header { got: bytes.len() });
        };
        let Some(body) = bytes.get(REQUEST_HEADER_BYTES..) else {
            return Err(WireError::Header { got: bytes.len() });
        };
        if length as usize != bytes.len() {
            return Err(WireError::Length { unique, said: length, got: bytes.len() });
        }
        let expected = REQUEST_HEADER_BYTES + body_bytes(opcode);
        let cut_off = WireError::Body { unique, opcode, got: bytes.len(), expected };
        let call = parse_call(opcode, body).ok_or(cut_off)?;
        check(unique, node, opcode, call, bytes.len())?;
        Ok(FuseRequest { unique, call })
    }
}

/// Bytes of the fields that we read of each operation.
const fn body_bytes(opcode: u32) -> usize {
    match opcode {
        opcode::SETATTR => 24,
        opcode::READ => 40,
        opcode::WRITE => WRITE_PREFIX_BYTES - REQUEST_HEADER_BYTES,
        opcode::INIT => 16,
        opcode::FALLOCATE => 32,
        _ => 0,
    }
}

fn parse_call(opcode: u32, body: &[u8]) -> Option<Call> {
    if body.len() < body_bytes(opcode) {
        return None;
    }
    Some(match opcode {
        opcode::INIT => {
            Call::Initialize(Offer { major: u32_at(body, 0)?, minor: u32_at(body, 4)?, flags: u32_at(body, 12)? })
        }
        opcode::GETATTR => Call::GetAttributes,
        opcode::SETATTR => {
            let valid = u32_at(body, 0)?;
            let size_bytes = if valid & SET_SIZE != 0 { Some(u64_at(body, 16)?) } else { None };
            Call::SetAttributes { size_bytes, changes_access: valid & (SET_MODE | SET_USER | SET_GROUP) != 0 }
        }
        opcode::OPEN => Call::Open,
        opcode::READ => Call::Read { offset: u64_at(body, 8)?, length: u32_at(body, 16)? },
        opcode::WRITE => Call::Write { offset: u64_at(body, 8)?, length: u32_at(body, 16)? },
        opcode::FSYNC => Call::Fsync,
        opcode::FALLOCATE => {
            let mode = match u32_at(body, 24)? & !ALLOCATE_KEEP_SIZE {
                ALLOCATE_PUNCH_HOLE => AllocateMode::PunchHole,
                ALLOCATE_ZERO_RANGE => AllocateMode::ZeroRange,
                _ => AllocateMode::Other,
            };
            Call::Allocate { mode, offset: u64_at(body, 8)?, length: u64_at(body, 16)? }
        }
        opcode::FLUSH => Call::Flush,
        opcode::RELEASE => Call::Release,
        opcode::STATFS => Call::Statistics,
        opcode::DESTROY => Call::Destroy,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Call::Unanswered,
        _ => Call::Unsupported { opcode },
    })
}

/// What can be wrong with a request that has all its fields.
fn check(unique: u64, node: u64, opcode: u32, call: Call, got: usize) -> Result<(), WireError> {
    let length = match call {
        // These belong to the mount and not to a file.
        Call::Initialize(_) | Call::Statistics | Call::Destroy | Call::Unanswered | Call::Unsupported { .. } => {
            return Ok(());
        }
        Call::Read { length, .. } | Call::Write { length, .. } => length,
        _ => 0,
    };
    if node != ROOT_NODE {
        return Err(WireError::Node { unique, node });
    }
    if length > PAYLOAD_BYTES_MAX {
        return Err(WireError::Payload { unique, length });
    }
    let expected = WRITE_PREFIX_BYTES + length as usize;
    if matches!(call, Call::Write { .. }) && got != expected {
        return Err(WireError::Body { unique, opcode, got, expected });
    }
    Ok(())
}

/// `enum fuse_opcode`, as far as we answer.
mod opcode {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_ne_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|field| u64::from_ne_bytes(*field))
}
