//! What goes out: PDUs, as many in one send as are ready when the last send is done.
//!
//! ```text
//!   bytes:    | header | header | text | header |          | header | ...
//!   vectors:  |---------------- one ------------| of a read |---- one ...
//! ```
//!
//! Headers and whatever is small lie one behind the other; the bytes of a read go out of where the disk put them. A read
//! is cut into PDUs of the size that the initiator receives, which may be small: so vectors are counted, and what is more
//! than one send takes waits for the next.

use super::super::pdu::{Digests, Header, header_digest, trailer};
use super::{OUTBOX_BYTES_MAX, TAG_SEND};
use crate::engine::{Payload, Port};
use io_uring::{opcode, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Parts of one send: with the bytes between them, at most 1023 vectors, and the kernel takes 1024.
const PARTS_MAX: usize = 511;

/// Bytes of a read and where they belong.
struct Part {
    /// Bytes of the batch that go before it.
    after: usize,
    start: *const u8,
    length: usize,
}

/// PDUs that go out together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// What parts of this batch, or of earlier ones, point into.
    payloads: Vec<Payload>,
    length: usize,
}

impl Batch {
    fn clear(&mut self, port: &mut Port<'_>) {
        self.bytes.clear();
        self.parts.clear();
        self.length = 0;
        self.payloads.drain(..).for_each(|payload| port.give_payload(payload));
    }
}

/// PDUs that wait and PDUs that are being sent.
pub(super) struct Outbox {
    digests: Digests,
    waiting: VecDeque<Batch>,
    sending: Batch,
    is_sending: bool,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

// SAFETY: the addresses in `vectors`, `message` and parts are of this outbox's own memory or of its payloads, and only the
// kernel follows them.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(super) fn new(digests: Digests) -> Outbox {
        Outbox {
            digests,
            waiting: VecDeque::new(),
            sending: Batch::default(),
            is_sending: false,
            vectors: Vec::new(),
            // SAFETY: all zero is a valid `msghdr`: no addresses, no lengths.
            message: unsafe { std::mem::zeroed() },
        }
    }

    /// Nothing waits and nothing is being sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_sending && self.waiting.is_empty()
    }

    /// So much waits for an initiator that does not read that no more should be heard.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.iter().map(|batch| batch.bytes.len()).sum::<usize>() >= OUTBOX_BYTES_MAX
    }

    fn batch(&mut self) -> &mut Batch {
        if self.waiting.back().is_none_or(|batch| batch.parts.len() >= PARTS_MAX) {
            self.waiting.push_back(Batch::default());
        }
        self.waiting.back_mut().expect("there is one now")
    }

    fn push_header(&mut self, header: &Header) {
        let digest = header_digest(header, self.digests);
        let batch = self.batch();
        batch.bytes.extend(header.0);
        batch.bytes.extend(digest.into_iter().flatten());
    }

    /// Adds a PDU whose data are copied.
    pub(super) fn push(&mut self, mut header: Header, data: &[u8]) {
        header.set_data_bytes(data.len() as u32);
        self.push_header(&header);
        let trailer = trailer(data, self.digests);
        let batch = self.waiting.back_mut().expect("the header is in it");
        batch.bytes.extend(data);
        batch.bytes.extend(trailer);
    }

    /// Adds a PDU with `length` bytes of `payload` from `at` on. The payload comes with the last PDU of its bytes: see
    /// [`keep`](Self::keep).
    ///
    /// # Safety
    /// The payload has these bytes and keeps them until it is given to [`keep`](Self::keep), before anything is sent. With
    /// a digest of data, it is a buffer.
    pub(super) unsafe fn push_part(&mut self, mut header: Header, payload: &Payload, at: usize, length: usize) {
        header.set_data_bytes(length as u32);
        self.push_header(&header);
        let Some(start) = payload.as_ptr() else { return };
        // SAFETY: the caller's promise.
        let start = unsafe { start.add(at) };
        let trailer = match self.digests.data {
            // SAFETY: the caller's promise: a buffer that nobody else has.
            true => trailer(unsafe { std::slice::from_raw_parts(start, length) }, self.digests),
            false => vec![0; length.next_multiple_of(4) - length],
        };
        let batch = self.waiting.back_mut().expect("the header is in it");
        batch.parts.push(Part { after: batch.bytes.len(), start, length });
        batch.length += length;
        batch.bytes.extend(trailer);
    }

    /// Keeps a payload until everything that was pushed so far is sent.
    pub(super) fn keep(&mut self, payload: Payload) {
        let batch = self.waiting.back_mut().expect("a payload is kept for a PDU");
        batch.payloads.push(payload);
    }

    /// Sends the next batch, unless a send is under way.
    pub(super) fn send(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.is_sending {
            return;
        }
        let Some(batch) = self.waiting.pop_front() else { return };
        self.sending = batch;
        self.is_sending = true;
        let Batch { bytes, parts, length, .. } = &mut self.sending;
        *length += bytes.len();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        self.vectors.clear();
        let mut start = 0;
        for part in parts {
            self.vectors.extend(vector(bytes[start..part.after].as_ptr(), part.after - start));
            self.vectors.extend(vector(part.start, part.length));
            start = part.after;
        }
        self.vectors.extend(vector(bytes[start..].as_ptr(), bytes.len() - start));
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        let entry = opcode::SendMsg::new(types::Fd(socket), &raw const self.message).flags(flags as u32).build();
        // SAFETY: bytes, vectors, message and payloads belong to the front end, which the engine keeps until the operation
        // has completed; nothing touches them before `sent`.
        unsafe { port.push(entry, TAG_SEND) }
    }

    /// The send that was under way has ended.
    ///
    /// # Errors
    /// The socket failed, or took less than everything, which it does only when it fails.
    pub(super) fn sent(&mut self, port: &mut Port<'_>, result: Result<u32, Errno>) -> Result<(), Errno> {
        let expected = self.sending.length;
        self.is_sending = false;
        self.sending.clear(port);
        match result {
            Ok(bytes) if bytes as usize == expected => Ok(()),
            Ok(_) => Err(Errno::PIPE),
            Err(errno) => Err(errno),
        }
    }

    /// Forgets the PDUs that wait. One that is being sent keeps its bytes until it is sent.
    pub(super) fn discard(&mut self, port: &mut Port<'_>) {
        self.waiting.drain(..).for_each(|mut batch| batch.clear(port));
    }
}

fn vector(bytes: *const u8, length: usize) -> Option<libc::iovec> {
    (length > 0).then_some(libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: length })
}
