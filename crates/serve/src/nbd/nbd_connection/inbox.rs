//! What comes in: requests one after the other, writes with their bytes behind them.
//!
//! ```text
//!   bytes:    | taken | request | request | payload of a write ... | free |
//!                     ^ start                                 end ^
//! ```
//!
//! A write with bytes that have not all come takes the rest straight from the socket. The next receive has two parts,
//! first the rest of the payload in its own buffer, then the inbox for what follows. Where a client sends large writes,
//! the second part is kept short. So the *next* write's bytes stay in the socket until their buffer is known.

use super::TAG_RECEIVE;
use io_uring::{opcode, types};
use plimsoll_engine::{Buffer, Payload, Port};
use plimsoll_protocols::nbd::error::NbdError;
use plimsoll_protocols::nbd::wire::{REQUEST_BYTES, Request};
use std::os::fd::RawFd;

/// Bytes that one receive can bring: 31 writes of 4 KiB with their headers.
const INBOX_BYTES: usize = 128 * 1024;
/// Bytes received behind the payload of a large write: its successor's header and little else.
const INBOX_BYTES_BETWEEN_LARGE: usize = 4 * 1024;
/// Size from which a write is large: copying it would cost more than another receive.
const LARGE_WRITE_BYTES: u32 = 16 * 1024;

/// What the inbox has for the connection.
pub(super) enum Next {
    /// A request. If it is a write, its payload is still to come: see [`RequestInbox::receive_payload`] and
    /// [`RequestInbox::skip`].
    Request(Request),
    /// A write with all of its bytes.
    Write(Request, Payload),
    /// The same for a write that is not of whole blocks: its bytes, in their place among whole blocks, and room for one
    /// block.
    Part(Request, Buffer, Buffer),
    /// Nothing more without receiving.
    MoreBytes,
}

/// A write with bytes still to come.
struct Incoming {
    request: Request,
    buffer: Buffer,
    /// Where its bytes go in the buffer.
    at: usize,
    received: usize,
    /// Room for one block, if it is not of whole ones.
    block: Option<Buffer>,
}

impl Incoming {
    /// Where the bytes go that have not come.
    fn rest(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut_slice()[self.at..][..self.request.length as usize][self.received..]
    }
}

/// Received bytes, and the state of the receive that is under way.
pub(super) struct RequestInbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// A request for which there was no room.
    waiting: Option<Request>,
    incoming: Option<Incoming>,
    /// Bytes of a refused write that are thrown away.
    skip: u32,
    /// Length of the last write.
    last_write_bytes: u32,
    is_receiving: bool,
    /// Everything that has come was taken.
    is_exhausted: bool,
    vectors: [libc::iovec; 2],
    message: libc::msghdr,
}

// SAFETY: the addresses in `vectors` and `message` are of this inbox's own memory and only the kernel follows them.
unsafe impl Send for RequestInbox {}

impl RequestInbox {
    pub(super) fn new() -> RequestInbox {
        // SAFETY: all zero is a valid `msghdr` and `iovec`: no addresses, no lengths.
        let (message, vectors) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        RequestInbox {
            bytes: vec![0; INBOX_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            waiting: None,
            incoming: None,
            skip: 0,
            last_write_bytes: 0,
            is_receiving: false,
            is_exhausted: true,
            vectors,
            message,
        }
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// What comes next. An error means that the bytes are not the protocol.
    pub(super) fn next(&mut self) -> Result<Next, NbdError> {
        // What is being received may belong to a payload: it is sorted out when it has come.
        if self.is_receiving {
            return Ok(Next::MoreBytes);
        }
        let next = self.next_received();
        self.is_exhausted = matches!(next, Ok(Next::MoreBytes));
        next
    }

    fn next_received(&mut self) -> Result<Next, NbdError> {
        if let Some(request) = self.waiting.take() {
            return Ok(Next::Request(request));
        }
        let available = self.end - self.start;
        let skipped = available.min(self.skip as usize);
        self.start += skipped;
        self.skip -= skipped as u32;
        if let Some(mut incoming) = self.incoming.take() {
            incoming.received += self.copy_to(&mut incoming);
            if incoming.received == incoming.request.length as usize {
                let Incoming { request, buffer, block, .. } = incoming;
                return Ok(match block {
                    Some(block) => Next::Part(request, buffer, block),
                    None => Next::Write(request, Payload::Buffer { buffer, at: 0 }),
                });
            }
            self.incoming = Some(incoming);
            return Ok(Next::MoreBytes);
        }
        match self.bytes[self.start..self.end].first_chunk::<REQUEST_BYTES>() {
            None => Ok(Next::MoreBytes),
            Some(header) => {
                let request = Request::decode(header)?;
                self.start += REQUEST_BYTES;
                Ok(Next::Request(request))
            }
        }
    }

    /// Copies what has come of a payload into its buffer; says how much it was.
    fn copy_to(&mut self, incoming: &mut Incoming) -> usize {
        let missing = incoming.request.length as usize - incoming.received;
        let length = missing.min(self.end - self.start);
        let target = &mut incoming.rest()[..length];
        target.copy_from_slice(&self.bytes[self.start..][..length]);
        self.start += length;
        length
    }

    /// Keeps a request for later, because there is no room for it now.
    pub(super) fn put_back(&mut self, request: Request) {
        self.waiting = Some(request);
    }

    /// Has the bytes of the write `request`, which come next, put into `buffer`.
    pub(super) fn receive_payload(&mut self, request: Request, buffer: Buffer) {
        self.last_write_bytes = request.length;
        self.incoming = Some(Incoming { request, buffer, at: 0, received: 0, block: None });
    }

    /// The same for a write that is not of whole blocks. Its bytes go behind the first `skew` of `data`; `block` has
    /// room for one block.
    pub(super) fn receive_part(&mut self, request: Request, data: Buffer, skew: u32, block: Buffer) {
        self.last_write_bytes = request.length;
        self.incoming = Some(Incoming { request, buffer: data, at: skew as usize, received: 0, block: Some(block) });
    }

    /// Throws away the next `bytes` bytes.
    pub(super) fn skip(&mut self, bytes: u32) {
        self.skip += bytes;
    }

    /// Starts to receive, unless a receive is under way or received bytes are still to be taken.
    pub(super) fn receive(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.is_receiving || !self.is_exhausted {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = &mut self.bytes[self.end..];
        let is_large = self.last_write_bytes >= LARGE_WRITE_BYTES;
        let length = if is_large { room.len().min(INBOX_BYTES_BETWEEN_LARGE) } else { room.len() };
        let socket = types::Fd(socket);
        let entry = match &mut self.incoming {
            None => opcode::Recv::new(socket, room.as_mut_ptr(), length as u32).build(),
            Some(incoming) => {
                self.vectors = [vector(incoming.rest()), vector(&mut room[..length])];
                self.message.msg_iov = self.vectors.as_mut_ptr();
                self.message.msg_iovlen = self.vectors.len();
                opcode::RecvMsg::new(socket, &raw mut self.message).build()
            }
        };
        self.is_receiving = true;
        // SAFETY: the inbox, its message and the incoming buffer belong to the front end, which the engine keeps until
        // the operation has completed; nothing touches them before `received`.
        unsafe { port.push(entry, TAG_RECEIVE) }
    }

    /// The receive that was under way brought `count` bytes.
    pub(super) fn received(&mut self, count: usize) {
        self.is_receiving = false;
        // Also where it is not looked at now, because too many replies wait.
        self.is_exhausted &= count == 0;
        let direct = self.incoming.as_mut().map_or(0, |incoming| {
            let direct = count.min(incoming.request.length as usize - incoming.received);
            incoming.received += direct;
            direct
        });
        self.end += count - direct;
    }

    /// Forgets everything. No receive may be under way.
    pub(super) fn discard(&mut self, port: &mut Port<'_>) {
        debug_assert!(!self.is_receiving);
        (self.start, self.end, self.waiting) = (0, 0, None);
        if let Some(incoming) = self.incoming.take() {
            port.give_buffer(incoming.buffer);
            incoming.block.into_iter().for_each(|block| port.give_buffer(block));
        }
    }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}
