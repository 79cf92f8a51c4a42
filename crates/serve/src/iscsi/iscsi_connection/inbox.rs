//! What comes in: bytes until they make a whole PDU.

use super::TAG_RECEIVE;
use io_uring::{opcode, types};
use plimsoll_engine::Port;
use plimsoll_protocols::iscsi::parameters::DATA_BYTES_MAX;
use plimsoll_protocols::iscsi::pdu::Frame;
use std::os::fd::RawFd;

/// Bytes that are kept: one PDU of the largest size, and as much again, so that a receive takes many small ones.
const INBOX_BYTES: usize = 2 * Frame::bytes_max(DATA_BYTES_MAX);

/// Received bytes, and whether a receive is under way.
pub(super) struct PduInbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    is_receiving: bool,
}

impl PduInbox {
    pub(super) fn new() -> PduInbox {
        PduInbox { bytes: vec![0; INBOX_BYTES].into_boxed_slice(), start: 0, end: 0, is_receiving: false }
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// Lends out what has come. Give it back with [`put_back`](Self::put_back).
    pub(super) fn take(&mut self) -> (Box<[u8]>, std::ops::Range<usize>) {
        debug_assert!(!self.is_receiving);
        (std::mem::take(&mut self.bytes), self.start..self.end)
    }

    /// Takes back what was lent out, of which `count` bytes are not needed any more.
    pub(super) fn put_back(&mut self, bytes: Box<[u8]>, count: usize) {
        self.bytes = bytes;
        self.start += count;
    }

    /// Starts to receive, unless that is under way.
    pub(super) fn receive(&mut self, port: &mut Port<'_>, socket: RawFd) {
        if self.is_receiving {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = &mut self.bytes[self.end..];
        let entry = opcode::Recv::new(types::Fd(socket), room.as_mut_ptr(), room.len() as u32).build();
        self.is_receiving = true;
        // SAFETY: the bytes belong to the front end, which the engine keeps until the operation has completed; nothing
        // touches them before `received`.
        unsafe { port.push(entry, TAG_RECEIVE) }
    }

    /// The receive that was under way brought `count` bytes.
    pub(super) fn received(&mut self, count: usize) {
        self.is_receiving = false;
        self.end += count;
    }
}
