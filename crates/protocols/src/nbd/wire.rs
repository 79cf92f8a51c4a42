//! Requests and replies of the transmission phase, as bytes and as values.
//!
//! A request is 28 bytes, and a write's data behind them. A reply is *simple* (16 bytes, and a read's data behind them)
//! or *structured*. A structured reply is one or more chunks that say themselves how long they are; the last is marked.
//! Replies come in any order; the cookie that the client chose says which request they answer. All numbers are
//! big-endian.
//!
//! ```text
//!   request  magic 4 | flags 2 | command 2 | cookie 8 | offset 8 | length 4 |  data of a write
//!   simple   magic 4 | error 4 | cookie 8 |  data of a read
//!   chunk    magic 4 | flags 2 | kind 2 | cookie 8 | payload bytes 4 |  payload
//! ```
//!
//! Two kinds of failure are kept apart. A [`NbdError`] means that it is unknown where the next message starts: the
//! connection is closed. An [`Errno`] is an answer: the request was valid and refused, its payload is skipped, and the
//! connection continues.
//!
//! Nothing here allocates; everything is O(1).

use super::error::{Errno, NbdError};
use super::export::ExportInfo;
use super::limits::PAYLOAD_BYTES_MAX;

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk without its payload.
pub const CHUNK_BYTES: usize = 20;
/// Bytes before the data of an offset-data chunk: the chunk's own and the offset.
pub const OFFSET_DATA_BYTES: usize = CHUNK_BYTES + 8;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Marks the last chunk of a reply.
const CHUNK_FLAG_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_OFFSET_HOLE: u16 = 2;
/// Every kind of chunk with this bit says that something failed.
const CHUNK_ERROR_BIT: u16 = 1 << 15;
const CHUNK_ERROR: u16 = CHUNK_ERROR_BIT | 1;
const CHUNK_ERROR_OFFSET: u16 = CHUNK_ERROR_BIT | 2;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes, please.
    Read,
    /// Bytes behind the request are written.
    Write,
    /// Answer what is under way and close; has no reply.
    Disconnect,
    /// Everything answered before becomes durable.
    Flush,
    /// The bytes are no longer needed.
    Trim,
    /// The bytes will soon be read.
    Cache,
    /// The bytes become zero.
    WriteZeroes,
    /// A number that is not offered, such as block status (7).
    Unknown(u16),
}

impl Command {
    const fn number(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::Unknown(number) => number,
        }
    }

    const fn from_number(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            _ => Command::Unknown(number),
        }
    }

    /// Whether it may change the export.
    pub const fn is_write(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// Flags of a command: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// No flag.
    pub const NONE: CommandFlags = CommandFlags(0);
    /// Durable before it is answered ("force unit access").
    pub const FUA: CommandFlags = CommandFlags(1 << 0);
    /// Zeroes must be provisioned, not punched.
    pub const NO_HOLE: CommandFlags = CommandFlags(1 << 1);
    /// A read must be answered in one piece ("do not fragment").
    pub const DF: CommandFlags = CommandFlags(1 << 2);
    /// Zero only if that is faster than writing.
    pub const FAST_ZERO: CommandFlags = CommandFlags(1 << 4);

    /// Whether every flag in `others` is set.
    pub const fn contains(self, others: CommandFlags) -> bool {
        self.0 & others.0 == others.0
    }

    /// These flags and `others`.
    pub const fn with(self, others: CommandFlags) -> CommandFlags {
        CommandFlags(self.0 | others.0)
    }
}

/// One request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Details of the command.
    pub flags: CommandFlags,
    /// What is asked.
    pub command: Command,
    /// The client's name for it; comes back in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request. An error means that the connection must be closed.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, NbdError> {
        let got = be32(bytes, 0);
        if got != REQUEST_MAGIC {
            return Err(NbdError::BadMagic { what: "a request", got: got.into(), expected: REQUEST_MAGIC.into() });
        }
        let request = Request {
            flags: CommandFlags(be16(bytes, 4)),
            command: Command::from_number(be16(bytes, 6)),
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            length: be32(bytes, 24),
        };
        match request.payload_bytes() > PAYLOAD_BYTES_MAX {
            true => Err(NbdError::PayloadTooLong { got: request.length }),
            false => Ok(request),
        }
    }

    /// The request as it goes over the wire.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        put(&mut bytes, 0, REQUEST_MAGIC.to_be_bytes());
        put(&mut bytes, 4, self.flags.0.to_be_bytes());
        put(&mut bytes, 6, self.command.number().to_be_bytes());
        put(&mut bytes, 8, self.cookie.to_be_bytes());
        put(&mut bytes, 16, self.offset.to_be_bytes());
        put(&mut bytes, 24, self.length.to_be_bytes());
        bytes
    }

    /// Bytes of data that follow the request, whether or not it is refused: they must be received or skipped.
    pub const fn payload_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.length,
            _ => 0,
        }
    }

    /// Whether `export` can carry the request out; if not, the error to answer with.
    ///
    /// A disconnect is always in order; it has no answer. Otherwise the first of these that applies:
    /// - unknown command, command or flag that was not offered: `InvalidArgument`;
    /// - change of a read-only export: `NotPermitted`;
    /// - flush with an offset or a length, anything else of length zero: `InvalidArgument`;
    /// - not aligned to the minimum block size: `InvalidArgument`;
    /// - beyond the end: `NoSpace` for a write or write-zeroes, `InvalidArgument` for a read, trim or cache;
    /// - a read or a write longer than the maximum block size: `Overflow` for a read that must not be fragmented,
    ///   `InvalidArgument` otherwise. That size bounds payloads. A request without one (trim, cache, write-zeroes) may
    ///   have any length, as nbdcopy, oVirt and the kernel's client rely on.
    ///
    /// A read's do-not-fragment flag is accepted without structured replies too: simple replies never are fragmented.
    pub fn check(&self, export: &ExportInfo) -> Result<(), Errno> {
        if self.command == Command::Disconnect {
            return Ok(());
        }
        if !self.is_offered(export) {
            return Err(Errno::InvalidArgument);
        }
        if self.command.is_write() && export.is_read_only {
            return Err(Errno::NotPermitted);
        }
        if self.command == Command::Flush {
            let is_bare = self.offset == 0 && self.length == 0;
            return if is_bare { Ok(()) } else { Err(Errno::InvalidArgument) };
        }
        let block_mask = u64::from(export.minimum_block_bytes) - 1;
        if self.length == 0 || (self.offset | u64::from(self.length)) & block_mask != 0 {
            return Err(Errno::InvalidArgument);
        }
        let is_inside = self.offset.checked_add(self.length.into()).is_some_and(|end| end <= export.size_bytes);
        if !is_inside {
            return Err(match self.command {
                Command::Write | Command::WriteZeroes => Errno::NoSpace,
                _ => Errno::InvalidArgument,
            });
        }
        let has_payload = matches!(self.command, Command::Read | Command::Write);
        if has_payload && self.length > export.maximum_block_bytes {
            let must_be_whole = self.flags.contains(CommandFlags::DF);
            return Err(if must_be_whole { Errno::Overflow } else { Errno::InvalidArgument });
        }
        Ok(())
    }

    /// Whether the export offers the command, and the command all of its flags.
    fn is_offered(&self, export: &ExportInfo) -> bool {
        let features = &export.features;
        let (is_offered, own_flags) = match self.command {
            Command::Read => (true, CommandFlags::DF),
            Command::Write | Command::Disconnect => (true, CommandFlags::NONE),
            Command::Flush => (features.flush, CommandFlags::NONE),
            Command::Trim => (features.trim, CommandFlags::NONE),
            Command::Cache => (features.cache, CommandFlags::NONE),
            Command::WriteZeroes if features.fast_zero => {
                (features.write_zeroes, CommandFlags::NO_HOLE.with(CommandFlags::FAST_ZERO))
            }
            Command::WriteZeroes => (features.write_zeroes, CommandFlags::NO_HOLE),
            Command::Unknown(_) => (false, CommandFlags::NONE),
        };
        // Where it is offered at all, FUA may come with any command, even one that writes nothing.
        let allowed = if features.force_unit_access { own_flags.with(CommandFlags::FUA) } else { own_flags };
        is_offered && allowed.contains(self.flags)
    }
}

/// A simple reply; a successful read's data follows it.
pub fn simple_reply(cookie: u64, result: Result<(), Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    put(&mut bytes, 0, SIMPLE_REPLY_MAGIC.to_be_bytes());
    put(&mut bytes, 4, result.map_or_else(|errno| errno as u32, |()| 0).to_be_bytes());
    put(&mut bytes, 8, cookie.to_be_bytes());
    bytes
}

/// The beginning of a chunk with data; `data_bytes` bytes follow it. It must be at least one byte, and no more than
/// was asked for, so that `data_bytes` + 8 fits 32 bits.
pub fn offset_data_chunk(cookie: u64, is_last: bool, offset: u64, data_bytes: u32) -> [u8; OFFSET_DATA_BYTES] {
    let mut bytes = [0; OFFSET_DATA_BYTES];
    put(&mut bytes, 0, chunk(cookie, is_last, CHUNK_OFFSET_DATA, data_bytes.saturating_add(8)));
    put(&mut bytes, 20, offset.to_be_bytes());
    bytes
}

/// A whole chunk that says that `hole_bytes` bytes (not 0) read as zero.
pub fn offset_hole_chunk(cookie: u64, is_last: bool, offset: u64, hole_bytes: u32) -> [u8; CHUNK_BYTES + 12] {
    let mut bytes = [0; CHUNK_BYTES + 12];
    put(&mut bytes, 0, chunk(cookie, is_last, CHUNK_OFFSET_HOLE, 12));
    put(&mut bytes, 20, offset.to_be_bytes());
    put(&mut bytes, 28, hole_bytes.to_be_bytes());
    bytes
}

/// A whole chunk that ends a reply and says nothing else.
pub fn none_chunk(cookie: u64) -> [u8; CHUNK_BYTES] {
    chunk(cookie, true, CHUNK_NONE, 0)
}

/// A whole chunk that says that the request failed, without a text.
pub fn error_chunk(cookie: u64, is_last: bool, errno: Errno) -> [u8; CHUNK_BYTES + 6] {
    let mut bytes = [0; CHUNK_BYTES + 6];
    put(&mut bytes, 0, chunk(cookie, is_last, CHUNK_ERROR, 6));
    put(&mut bytes, 20, (errno as u32).to_be_bytes());
    bytes
}

/// A whole chunk that says that the request failed at the byte `offset` of the export, without a text.
pub fn error_offset_chunk(cookie: u64, is_last: bool, errno: Errno, offset: u64) -> [u8; CHUNK_BYTES + 14] {
    let mut bytes = [0; CHUNK_BYTES + 14];
    put(&mut bytes, 0, chunk(cookie, is_last, CHUNK_ERROR_OFFSET, 14));
    put(&mut bytes, 20, (errno as u32).to_be_bytes());
    put(&mut bytes, 26, offset.to_be_bytes());
    bytes
}

fn chunk(cookie: u64, is_last: bool, kind: u16, payload_bytes: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    put(&mut bytes, 0, STRUCTURED_REPLY_MAGIC.to_be_bytes());
    put(&mut bytes, 4, (if is_last { CHUNK_FLAG_DONE } else { 0 }).to_be_bytes());
    put(&mut bytes, 6, kind.to_be_bytes());
    put(&mut bytes, 8, cookie.to_be_bytes());
    put(&mut bytes, 16, payload_bytes.to_be_bytes());
    bytes
}

/// What a chunk's payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing; only ends the reply.
    None,
    /// Offset (8 bytes), then data.
    OffsetData,
    /// Offset (8 bytes), then the length of a hole (4 bytes).
    OffsetHole,
    /// Error (4 bytes), length of a text (2 bytes), the text, and perhaps more.
    Error,
}

/// The beginning of a reply as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply; a successful read's data follows.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// How it went.
        result: Result<(), Errno>,
    },
    /// A chunk; its payload follows.
    Chunk {
        /// The request's cookie.
        cookie: u64,
        /// Whether the reply ends with it.
        is_last: bool,
        /// What the payload holds.
        kind: ChunkKind,
        /// Bytes of payload.
        payload_bytes: u32,
    },
}

impl ReplyHeader {
    /// Decodes the beginning of a reply: the header and its length in bytes, or `None` if more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<Option<(ReplyHeader, usize)>, NbdError> {
        if bytes.len() < SIMPLE_REPLY_BYTES {
            return Ok(None);
        }
        let cookie = be64(bytes, 8);
        match be32(bytes, 0) {
            SIMPLE_REPLY_MAGIC => {
                let result = Errno::from_wire(be32(bytes, 4)).map_or(Ok(()), Err);
                Ok(Some((ReplyHeader::Simple { cookie, result }, SIMPLE_REPLY_BYTES)))
            }
            STRUCTURED_REPLY_MAGIC if bytes.len() < CHUNK_BYTES => Ok(None),
            STRUCTURED_REPLY_MAGIC => {
                let is_last = be16(bytes, 4) & CHUNK_FLAG_DONE != 0;
                let (number, payload_bytes) = (be16(bytes, 6), be32(bytes, 16));
                let kind = chunk_kind(number, payload_bytes, is_last)
                    .ok_or(NbdError::BadChunk { kind: number, got: payload_bytes })?;
                Ok(Some((ReplyHeader::Chunk { cookie, is_last, kind, payload_bytes }, CHUNK_BYTES)))
            }
            got => Err(NbdError::BadMagic { what: "a reply", got: got.into(), expected: SIMPLE_REPLY_MAGIC.into() }),
        }
    }
}

/// The kind of a chunk, if it is known and its payload can have this length. Unknown kinds of error are errors.
fn chunk_kind(number: u16, payload_bytes: u32, is_last: bool) -> Option<ChunkKind> {
    match number {
        CHUNK_NONE if payload_bytes == 0 && is_last => Some(ChunkKind::None),
        CHUNK_OFFSET_DATA if payload_bytes >= 9 => Some(ChunkKind::OffsetData),
        CHUNK_OFFSET_HOLE if payload_bytes == 12 => Some(ChunkKind::OffsetHole),
        CHUNK_ERROR_OFFSET if payload_bytes < 14 => None,
        _ if number & CHUNK_ERROR_BIT != 0 && payload_bytes >= 6 => Some(ChunkKind::Error),
        _ => None,
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    (u32::from(be16(bytes, at)) << 16) | u32::from(be16(bytes, at + 2))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    (u64::from(be32(bytes, at)) << 32) | u64::from(be32(bytes, at + 4))
}

pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
