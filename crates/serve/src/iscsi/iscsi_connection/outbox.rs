//! Outgoing PDUs: one send has those that are ready when the last send is done.
//!
//! Headers and whatever is small are copied; the bytes of a read go out of where the disk put them. A read is cut into
//! PDUs of the size that the initiator receives, which may be small. So vectors are counted, and what is more than one
//! send takes waits for the next.

use super::{OUTBOX_BYTES_MAX, TAG_SEND};
use crate::connection::{GatheredSend, Part};
use plimsoll_engine::{Payload, Port};
use plimsoll_protocols::iscsi::pdu::{Digests, Header, header_digest, trailer};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Bytes of the buffers that one send keeps, more or less. The initiator asks for more as soon as it has the first
/// answer of a batch. All answers are kept until it has the last.
pub(super) const KEPT_BYTES_MAX: usize = 8 << 20;
/// Parts of one send. With the bytes between them they are at most 1023 vectors, and one call takes 1024.
const PARTS_MAX: usize = 511;

/// PDUs that go out together.
#[derive(Default)]
struct PduBatch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// What parts of this batch, or of earlier ones, point into.
    payloads: Vec<Payload>,
    /// Bytes of their buffers.
    kept_bytes: usize,
}

impl PduBatch {
    fn clear(&mut self, port: &mut Port<'_>) {
        self.bytes.clear();
        self.parts.clear();
        self.payloads.drain(..).for_each(|payload| port.give_payload(payload));
        self.kept_bytes = 0;
    }
}

/// PDUs that wait and PDUs that are being sent.
pub(super) struct PduOutbox {
    digests: Digests,
    waiting: VecDeque<PduBatch>,
    sending: PduBatch,
    send: GatheredSend,
}

// SAFETY: the addresses in parts are of the outbox's own payloads, and only the kernel follows them.
unsafe impl Send for PduOutbox {}

impl PduOutbox {
    pub(super) fn new(digests: Digests) -> PduOutbox {
        PduOutbox {
            digests,
            waiting: VecDeque::new(),
            sending: PduBatch::default(),
            send: GatheredSend::with_capacity(0),
        }
    }

    /// Nothing waits and nothing is being sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.send.is_under_way() && self.waiting.is_empty()
    }

    /// Whether so many bytes wait for an initiator that does not read that it is read no more.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.iter().map(|batch| batch.bytes.len()).sum::<usize>() >= OUTBOX_BYTES_MAX
    }

    fn batch(&mut self) -> &mut PduBatch {
        let is_full = |batch: &PduBatch| batch.parts.len() >= PARTS_MAX || batch.kept_bytes >= KEPT_BYTES_MAX;
        if self.waiting.back().is_none_or(is_full) {
            self.waiting.push_back(PduBatch::default());
        }
        self.waiting.back_mut().expect("there is one now")
    }

    fn push_header(&mut self, header: &Header) {
        let digest = header_digest(header, self.digests);
        let batch = self.batch();
        batch.bytes.extend(header.0);
        batch.bytes.extend(digest.into_iter().flatten());
    }

    /// Adds a PDU with data that are copied.
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
    /// The payload has these bytes and keeps them until it is given to [`keep`](Self::keep), before anything is sent.
    /// With a digest of data, it is a buffer.
    pub(super) unsafe fn push_part(&mut self, mut header: Header, payload: &Payload, at: usize, length: usize) {
        header.set_data_bytes(length as u32);
        self.push_header(&header);
        let Some(start) = payload.as_ptr() else { return };
        // SAFETY: the caller's promise.
        let start = unsafe { start.add(at) };
        let trailer = match self.digests.data {
            // SAFETY: the caller's promise: a buffer that no other code has.
            true => trailer(unsafe { std::slice::from_raw_parts(start, length) }, self.digests),
            false => vec![0; length.next_multiple_of(4) - length],
        };
        let batch = self.waiting.back_mut().expect("the header is in it");
        batch.parts.push(Part { after: batch.bytes.len(), start, length });
        batch.bytes.extend(trailer);
    }

    /// Keeps a payload until everything that was pushed so far is sent.
    pub(super) fn keep(&mut self, payload: Payload) {
        let batch = self.waiting.back_mut().expect("a payload is kept for a PDU");
        if let Payload::Buffer { buffer, .. } = &payload {
            batch.kept_bytes += buffer.capacity();
        }
        batch.payloads.push(payload);
    }

    /// Sends the next batch, unless a send is under way.
    pub(super) fn send(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.send.is_under_way() {
            return;
        }
        let Some(batch) = self.waiting.pop_front() else { return };
        self.sending = batch;
        let PduBatch { bytes, parts, .. } = &self.sending;
        // SAFETY: all of it belongs to the front end, which the engine keeps until its operations have completed;
        // nothing touches it before `sent` hears of the last.
        unsafe { self.send.begin(port, (socket, TAG_SEND), bytes, parts.iter().copied()) }
    }

    /// The ring has sent something.
    ///
    /// # Errors
    /// The socket failed.
    pub(super) fn sent(&mut self, port: &mut Port<'_>, result: Result<u32, Errno>) -> Result<(), Errno> {
        let has_ended = self.send.went_on(port, result);
        if has_ended != Ok(false) {
            self.sending.clear(port);
        }
        has_ended.map(drop)
    }

    /// Forgets the PDUs that wait. One that is being sent keeps its bytes until it is sent.
    pub(super) fn discard(&mut self, port: &mut Port<'_>) {
        self.waiting.drain(..).for_each(|mut batch| batch.clear(port));
    }
}
