//! The client's half of transmission: bytes from the server in, data and completions out, without I/O.
//!
//! A client numbers what it has under way with *tags*, small numbers that it can use as an index into its own buffers.
//! The cookie on the wire is the tag with a generation above it. So a second answer to one request, or an answer to a
//! request that has long completed, is noticed.
//!
//! The server is not trusted: data outside the request, too much of it, too little of it, or a reply to nothing is a
//! [`NbdError`]. Chunks may come in any order; that two of them overlap is noticed by their sum only.
//!
//! Nothing here allocates after [`Replies::new`]; a byte of data is passed on from where it lies, without a copy.

use super::error::{Errno, NbdError};
use super::wire::{CHUNK_BYTES, ChunkKind, Command, ReplyHeader, SIMPLE_REPLY_BYTES, be16, be32, be64};

/// Holes are passed on as data in pieces of so many zeroes.
const ZEROES: [u8; 4096] = [0; 4096];

/// A request that has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The client's number for it; free again.
    pub tag: u32,
    /// How it went.
    pub result: Result<(), Errno>,
}

/// What came of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All input was taken, and so many bytes are missing at least.
    NeedsBytes(usize),
    /// A request has been answered; input may be left.
    Completed(Completed),
}

/// What is remembered of one tag.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    is_under_way: bool,
    /// Counts how often the tag was used.
    generation: u32,
    /// 0 for everything but a read.
    read_bytes: u32,
    offset: u64,
    received_bytes: u32,
    error: Option<Errno>,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Header,
    /// The fixed part of a chunk's payload, and what the header said.
    Payload {
        tag: u32,
        is_last: bool,
        kind: ChunkKind,
        payload_bytes: u32,
    },
    /// Data for the request `tag`, from its byte `at` on.
    Data {
        tag: u32,
        is_last: bool,
        at: u32,
        left_bytes: u32,
    },
    /// Text or whatever else is behind an error.
    Skipped {
        tag: u32,
        is_last: bool,
        left_bytes: u32,
    },
}

/// The replies of one connection.
#[derive(Debug)]
pub struct Replies {
    slots: Vec<Slot>,
    awaited: Awaited,
    /// The part of a fixed-size piece that has come; a chunk's header is the longest there is.
    head: [u8; CHUNK_BYTES],
    head_bytes: usize,
    under_way_count: u32,
}

impl Replies {
    /// Room for `depth_max` requests under way at once: tags 0 to `depth_max` - 1.
    pub fn new(depth_max: u32) -> Replies {
        Replies {
            slots: vec![Slot::default(); depth_max as usize],
            awaited: Awaited::Header,
            head: [0; CHUNK_BYTES],
            head_bytes: 0,
            under_way_count: 0,
        }
    }

    /// How many requests are under way.
    pub fn under_way_count(&self) -> u32 {
        self.under_way_count
    }

    /// Registers a request that is about to be sent and gives it a cookie; `None` if the tag is under way or too large.
    pub fn begin(&mut self, tag: u32, command: Command, offset: u64, length: u32) -> Option<u64> {
        let slot = self.slots.get_mut(tag as usize).filter(|slot| !slot.is_under_way)?;
        *slot = Slot {
            is_under_way: true,
            generation: slot.generation.wrapping_add(1),
            read_bytes: if command == Command::Read { length } else { 0 },
            offset,
            received_bytes: 0,
            error: None,
        };
        self.under_way_count += 1;
        Some(cookie(tag, slot.generation))
    }

    /// Takes bytes from the front of `input` until a request has been answered or no byte is left.
    ///
    /// Read data goes to `data(tag, at, bytes)`, where `at` counts from the request's first byte. After an error the
    /// connection is of no more use. O(bytes).
    pub fn advance(&mut self, input: &mut &[u8], data: &mut impl FnMut(u32, u32, &[u8])) -> Result<Progress, NbdError> {
        loop {
            let finished = match self.awaited {
                Awaited::Header => {
                    // 16 bytes are enough to know whether it is a chunk, which has a longer header.
                    let is_chunk = self.head_bytes >= SIMPLE_REPLY_BYTES;
                    let wanted = if is_chunk { CHUNK_BYTES } else { SIMPLE_REPLY_BYTES };
                    if let Err(missing) = self.collect(input, wanted) {
                        return Ok(Progress::NeedsBytes(missing));
                    }
                    let Some((header, _)) = ReplyHeader::decode(&self.head[..self.head_bytes])? else { continue };
                    self.head_bytes = 0;
                    self.header_came(header)?;
                    None
                }
                Awaited::Payload { tag, is_last, kind, payload_bytes } => {
                    let fixed_bytes = fixed_bytes(kind);
                    if let Err(missing) = self.collect(input, fixed_bytes) {
                        return Ok(Progress::NeedsBytes(missing));
                    }
                    self.head_bytes = 0;
                    self.payload_came(tag, is_last, kind, payload_bytes, data)?
                }
                Awaited::Data { tag, is_last, at, left_bytes } => {
                    let taken = take(input, left_bytes);
                    let taken_bytes = taken.len() as u32;
                    if taken_bytes > 0 {
                        data(tag, at, taken);
                    }
                    if taken_bytes < left_bytes {
                        let (at, left_bytes) = (at + taken_bytes, left_bytes - taken_bytes);
                        self.awaited = Awaited::Data { tag, is_last, at, left_bytes };
                        return Ok(Progress::NeedsBytes(left_bytes as usize));
                    }
                    self.part_ended(tag, is_last)
                }
                Awaited::Skipped { tag, is_last, left_bytes } => {
                    let left_bytes = left_bytes - take(input, left_bytes).len() as u32;
                    if left_bytes > 0 {
                        self.awaited = Awaited::Skipped { tag, is_last, left_bytes };
                        return Ok(Progress::NeedsBytes(left_bytes as usize));
                    }
                    self.part_ended(tag, is_last)
                }
            };
            if let Some(tag) = finished {
                return self.complete(tag).map(Progress::Completed);
            }
        }
    }

    /// Moves bytes from the input into the head until it has `wanted` of them. Otherwise answers how many are missing.
    fn collect(&mut self, input: &mut &[u8], wanted: usize) -> Result<(), usize> {
        let taken = take(input, (wanted - self.head_bytes) as u32);
        self.head[self.head_bytes..self.head_bytes + taken.len()].copy_from_slice(taken);
        self.head_bytes += taken.len();
        if self.head_bytes < wanted { Err(wanted - self.head_bytes) } else { Ok(()) }
    }

    /// Finds the request that a header belongs to, and what follows the header.
    fn header_came(&mut self, header: ReplyHeader) -> Result<(), NbdError> {
        match header {
            ReplyHeader::Simple { cookie, result } => {
                let tag = self.tag_under_way(cookie)?;
                let slot = &mut self.slots[tag as usize];
                if slot.received_bytes > 0 || slot.error.is_some() {
                    return Err(NbdError::BadReply { cookie, why: "a simple reply after chunks" });
                }
                slot.error = result.err();
                slot.received_bytes = if result.is_ok() { slot.read_bytes } else { 0 };
                self.awaited = Awaited::Data { tag, is_last: true, at: 0, left_bytes: slot.received_bytes };
            }
            ReplyHeader::Chunk { cookie, is_last, kind, payload_bytes } => {
                let tag = self.tag_under_way(cookie)?;
                self.awaited = Awaited::Payload { tag, is_last, kind, payload_bytes };
            }
        }
        Ok(())
    }

    /// Reads the fixed part of a payload, which has been collected. Answers the tag if that was all of its reply.
    fn payload_came(
        &mut self,
        tag: u32,
        is_last: bool,
        kind: ChunkKind,
        payload_bytes: u32,
        data: &mut impl FnMut(u32, u32, &[u8]),
    ) -> Result<Option<u32>, NbdError> {
        let left_bytes = payload_bytes - fixed_bytes(kind) as u32;
        match kind {
            ChunkKind::None => Ok(self.part_ended(tag, is_last)),
            ChunkKind::OffsetData => {
                let at = self.place(tag, be64(&self.head, 0), left_bytes)?;
                self.awaited = Awaited::Data { tag, is_last, at, left_bytes };
                Ok(None)
            }
            ChunkKind::OffsetHole => {
                let hole_bytes = be32(&self.head, 8);
                let at = self.place(tag, be64(&self.head, 0), hole_bytes)?;
                for done in (0..hole_bytes).step_by(ZEROES.len()) {
                    let piece_bytes = (hole_bytes - done).min(ZEROES.len() as u32);
                    data(tag, at + done, &ZEROES[..piece_bytes as usize]);
                }
                Ok(self.part_ended(tag, is_last))
            }
            ChunkKind::Error => {
                let text_bytes = u32::from(be16(&self.head, 4));
                let errno = Errno::from_wire(be32(&self.head, 0));
                if errno.is_none() || text_bytes > left_bytes {
                    let why = if errno.is_none() { "error number 0" } else { "a text longer than its chunk" };
                    return Err(self.bad_reply(tag, why));
                }
                self.slots[tag as usize].error = errno;
                self.awaited = Awaited::Skipped { tag, is_last, left_bytes };
                Ok(None)
            }
        }
    }

    /// Where in its request a content chunk lies.
    fn place(&mut self, tag: u32, offset: u64, bytes: u32) -> Result<u32, NbdError> {
        let slot = &mut self.slots[tag as usize];
        let at = offset.checked_sub(slot.offset).filter(|at| at.saturating_add(bytes.into()) <= slot.read_bytes.into());
        let received_bytes = u64::from(slot.received_bytes) + u64::from(bytes);
        match at {
            Some(at) if received_bytes <= u64::from(slot.read_bytes) => {
                slot.received_bytes = received_bytes as u32;
                Ok(at as u32)
            }
            Some(_) => Err(self.bad_reply(tag, "more data than was asked for")),
            None => Err(self.bad_reply(tag, "data outside of what was asked for")),
        }
    }

    fn tag_under_way(&self, cookie: u64) -> Result<u32, NbdError> {
        let (tag, generation) = (cookie as u32, (cookie >> 32) as u32);
        let slot = self.slots.get(tag as usize);
        match slot.is_some_and(|slot| slot.is_under_way && slot.generation == generation) {
            true => Ok(tag),
            false => Err(NbdError::UnknownCookie { cookie }),
        }
    }

    fn part_ended(&mut self, tag: u32, is_last: bool) -> Option<u32> {
        self.awaited = Awaited::Header;
        is_last.then_some(tag)
    }

    fn complete(&mut self, tag: u32) -> Result<Completed, NbdError> {
        let slot = &mut self.slots[tag as usize];
        if slot.error.is_none() && slot.received_bytes < slot.read_bytes {
            return Err(self.bad_reply(tag, "a read that succeeded without all of its data"));
        }
        slot.is_under_way = false;
        self.under_way_count -= 1;
        Ok(Completed { tag, result: slot.error.map_or(Ok(()), Err) })
    }

    fn bad_reply(&self, tag: u32, why: &'static str) -> NbdError {
        NbdError::BadReply { cookie: cookie(tag, self.slots[tag as usize].generation), why }
    }
}

fn cookie(tag: u32, generation: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(tag)
}

/// Bytes of a payload that are read before anything else is done with it.
const fn fixed_bytes(kind: ChunkKind) -> usize {
    match kind {
        ChunkKind::None => 0,
        ChunkKind::OffsetData => 8,
        ChunkKind::OffsetHole => 12,
        ChunkKind::Error => 6,
    }
}

/// Takes up to `bytes` bytes from the front of `input`.
fn take<'bytes>(input: &mut &'bytes [u8], bytes: u32) -> &'bytes [u8] {
    let (taken, rest) = input.split_at((bytes as usize).min(input.len()));
    *input = rest;
    taken
}
