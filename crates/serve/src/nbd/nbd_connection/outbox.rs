//! Outgoing replies: one send has those that are ready when the last send is done.

use super::{REFUSALS_BYTES_MAX, REQUESTS_MAX, TAG_SEND};
use crate::connection::{GatheredSend, Part};
use plimsoll_engine::{Payload, Port};
use plimsoll_protocols::nbd::wire;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Initial room for headers, in bytes: those of all requests that a connection may have under way.
const REPLIES_BYTES: usize = REQUESTS_MAX * wire::OFFSET_DATA_BYTES;

/// Data of a reply and where it belongs.
struct Data {
    /// Bytes of headers that go before it.
    after: usize,
    payload: Payload,
    length: u32,
}

/// Replies that go out together.
#[derive(Default)]
struct ReplyBatch {
    headers: Vec<u8>,
    parts: Vec<Data>,
}

impl ReplyBatch {
    fn with_capacity() -> ReplyBatch {
        let (headers, parts) = (Vec::with_capacity(REPLIES_BYTES), Vec::with_capacity(2 * REQUESTS_MAX));
        ReplyBatch { headers, parts }
    }

    fn clear(&mut self, port: &mut Port<'_>) {
        self.headers.clear();
        self.parts.drain(..).for_each(|part| port.give_payload(part.payload));
    }
}

/// Replies that wait and replies that are being sent.
pub(super) struct ReplyOutbox {
    waiting: ReplyBatch,
    sending: ReplyBatch,
    send: GatheredSend,
}

impl ReplyOutbox {
    pub(super) fn new() -> ReplyOutbox {
        ReplyOutbox {
            waiting: ReplyBatch::with_capacity(),
            sending: ReplyBatch::with_capacity(),
            send: GatheredSend::with_capacity(4 * REQUESTS_MAX),
        }
    }

    /// Nothing waits and nothing is being sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.send.is_under_way() && self.waiting.headers.is_empty()
    }

    /// Whether so many bytes wait for a client that does not read that it is read no more.
    ///
    /// A volume in memory answers without a buffer, so replies are counted too. Up to [`REQUESTS_MAX`] requests under
    /// way may still add theirs. With those, a batch has at most 1023 vectors, and one call takes 1024.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.headers.len() >= REFUSALS_BYTES_MAX || self.waiting.parts.len() >= REQUESTS_MAX
    }

    /// Adds a reply.
    pub(super) fn push(&mut self, header: &[u8], data: Option<(Payload, u32)>) {
        let waiting = &mut self.waiting;
        waiting.headers.extend_from_slice(header);
        if let Some((payload, length)) = data {
            waiting.parts.push(Data { after: waiting.headers.len(), payload, length });
        }
    }

    /// Sends everything that waits, unless a send is under way.
    pub(super) fn send(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.send.is_under_way() || self.waiting.headers.is_empty() {
            return;
        }
        std::mem::swap(&mut self.waiting, &mut self.sending);
        let ReplyBatch { headers, parts } = &self.sending;
        let parts = parts.iter().filter_map(|data| {
            let start = data.payload.as_ptr()?;
            Some(Part { after: data.after, start, length: data.length as usize })
        });
        // SAFETY: all of it belongs to the front end, which the engine keeps until its operations have completed;
        // nothing touches it before `sent` hears of the last.
        unsafe { self.send.begin(port, (socket, TAG_SEND), headers, parts) }
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

    /// Forgets the replies that wait. One that is being sent keeps its bytes until it is sent.
    pub(super) fn discard(&mut self, port: &mut Port<'_>) {
        self.waiting.clear(port);
    }
}
