//! What goes out: replies, as many in one send as are ready when the last send is done.
//!
//! Headers lie one behind the other, so that replies without data, those of writes above all, are one stretch of bytes.
//!
//! ```text
//!   headers:  | reply | reply | reply to a read | reply | ...
//!   vectors:  |-------- one ------------------| data |---- one ...
//! ```

use super::super::wire;
use super::{REFUSALS_BYTES_MAX, REQUESTS_MAX, TAG_SEND};
use crate::engine::{Payload, Port};
use io_uring::{opcode, types};
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Room for headers to begin with, bytes: those of all requests that a connection may have under way.
const REPLIES_BYTES: usize = REQUESTS_MAX * wire::OFFSET_DATA_BYTES;

/// Data of a reply and where it belongs.
struct Part {
    /// Bytes of headers that go before it.
    after: usize,
    payload: Payload,
    length: u32,
}

/// Replies that go out together.
#[derive(Default)]
struct Batch {
    headers: Vec<u8>,
    parts: Vec<Part>,
    bytes: usize,
}

impl Batch {
    fn with_capacity() -> Batch {
        let (headers, parts) = (Vec::with_capacity(REPLIES_BYTES), Vec::with_capacity(2 * REQUESTS_MAX));
        Batch { headers, parts, bytes: 0 }
    }

    fn clear(&mut self, port: &mut Port<'_>) {
        self.headers.clear();
        self.bytes = 0;
        self.parts.drain(..).for_each(|part| port.give_payload(part.payload));
    }
}

/// Replies that wait and replies that are being sent.
pub(super) struct Outbox {
    waiting: Batch,
    sending: Batch,
    is_sending: bool,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

// SAFETY: the addresses in `vectors` and `message` are of this outbox's own memory or of its payloads, and only the
// kernel follows them.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            waiting: Batch::with_capacity(),
            sending: Batch::with_capacity(),
            is_sending: false,
            vectors: Vec::with_capacity(4 * REQUESTS_MAX),
            // SAFETY: all zero is a valid `msghdr`: no addresses, no lengths.
            message: unsafe { std::mem::zeroed() },
        }
    }

    /// Nothing waits and nothing is being sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_sending && self.waiting.bytes == 0
    }

    /// So much waits for a client that does not read that no more should be asked.
    ///
    /// A volume in memory answers without a buffer, so replies are counted too. Up to [`REQUESTS_MAX`] requests that are
    /// under way may still add theirs: with those, a batch has at most 1023 vectors, and the kernel takes 1024.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.headers.len() >= REFUSALS_BYTES_MAX || self.waiting.parts.len() >= REQUESTS_MAX
    }

    /// Adds a reply.
    pub(super) fn push(&mut self, header: &[u8], data: Option<(Payload, u32)>) {
        let waiting = &mut self.waiting;
        waiting.headers.extend_from_slice(header);
        waiting.bytes += header.len();
        if let Some((payload, length)) = data {
            waiting.bytes += length as usize;
            waiting.parts.push(Part { after: waiting.headers.len(), payload, length });
        }
    }

    /// Sends everything that waits, unless a send is under way.
    pub(super) fn send(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.is_sending || self.waiting.bytes == 0 {
            return;
        }
        std::mem::swap(&mut self.waiting, &mut self.sending);
        self.is_sending = true;
        let Batch { headers, parts, .. } = &self.sending;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let socket = types::Fd(socket);
        let entry = if parts.is_empty() {
            opcode::Send::new(socket, headers.as_ptr(), headers.len() as u32).flags(flags).build()
        } else {
            self.vectors.clear();
            let mut start = 0;
            for part in parts {
                self.vectors.extend(vector(headers[start..part.after].as_ptr(), part.after - start));
                self.vectors.extend(part.payload.as_ptr().and_then(|data| vector(data, part.length as usize)));
                start = part.after;
            }
            self.vectors.extend(vector(headers[start..].as_ptr(), headers.len() - start));
            self.message.msg_iov = self.vectors.as_mut_ptr();
            self.message.msg_iovlen = self.vectors.len();
            opcode::SendMsg::new(socket, &raw const self.message).flags(flags as u32).build()
        };
        // SAFETY: headers, vectors, message and payloads belong to the front end, which the engine keeps until the
        // operation has completed; nothing touches them before `sent`.
        unsafe { port.push(entry, TAG_SEND) }
    }

    /// The send that was under way has ended.
    ///
    /// # Errors
    /// The socket failed, or took less than everything, which it does only when it fails.
    pub(super) fn sent(&mut self, port: &mut Port<'_>, result: Result<u32, Errno>) -> Result<(), Errno> {
        let expected = self.sending.bytes;
        self.is_sending = false;
        self.sending.clear(port);
        match result {
            Ok(bytes) if bytes as usize == expected => Ok(()),
            Ok(_) => Err(Errno::PIPE),
            Err(errno) => Err(errno),
        }
    }

    /// Forgets the replies that wait. One that is being sent keeps its bytes until it is sent.
    pub(super) fn discard(&mut self, port: &mut Port<'_>) {
        self.waiting.clear(port);
    }
}

fn vector(bytes: *const u8, length: usize) -> Option<libc::iovec> {
    (length > 0).then_some(libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: length })
}
