//! One send of bytes that lie in several places, as many as are ready when the last send is done.
//!
//! ```text
//!   bytes:    | header | header | header of a read |        | header | ...
//!   vectors:  |---------------- one ---------------|  data  |---- one ...
//! ```
//!
//! Headers and whatever is small lie one behind the other, so that answers without data, those of writes above all, are one
//! stretch; the bytes of a read go out of where the disk put them.

use crate::engine::Port;
use io_uring::{opcode, types};
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Bytes elsewhere, and where they belong.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Bytes of the send that go before it.
    pub after: usize,
    /// Where they are.
    pub start: *const u8,
    /// How many they are.
    pub length: usize,
}

/// Sends one after the other.
pub(crate) struct GatheredSend {
    is_under_way: bool,
    expected: usize,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

// SAFETY: the addresses in `vectors` and `message` are of this value's own memory or of what its owner keeps until the send has ended,
// and only the kernel follows them.
unsafe impl Send for GatheredSend {}

impl GatheredSend {
    /// With room for so many vectors; for more it allocates.
    pub(crate) fn with_capacity(vectors: usize) -> GatheredSend {
        GatheredSend {
            is_under_way: false,
            expected: 0,
            vectors: Vec::with_capacity(vectors),
            // SAFETY: all zero is a valid `msghdr`: no addresses, no lengths.
            message: unsafe { std::mem::zeroed() },
        }
    }

    /// Whether a send has not ended yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Sends `bytes` and, between them, `parts`, which are in the order of their places: at most 511, since the kernel takes 1024 vectors.
    ///
    /// # Safety
    /// No send is under way. This value, the bytes and what the parts point to stay where they are, and nobody changes them, until
    /// the operation called `tag` has completed.
    pub(crate) unsafe fn begin(
        &mut self,
        port: &mut Port<'_>,
        (socket, tag): (RawFd, u32),
        bytes: &[u8],
        parts: impl Iterator<Item = Part>,
    ) {
        self.is_under_way = true;
        self.expected = bytes.len();
        self.vectors.clear();
        let mut from = 0;
        for Part { after, start, length } in parts {
            self.vectors.extend(vector(bytes[from..after].as_ptr(), after - from));
            self.vectors.extend(vector(start, length));
            self.expected += length;
            from = after;
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let socket = types::Fd(socket);
        let entry = if self.vectors.is_empty() {
            opcode::Send::new(socket, bytes.as_ptr(), bytes.len() as u32).flags(flags).build()
        } else {
            self.vectors.extend(vector(bytes[from..].as_ptr(), bytes.len() - from));
            self.message.msg_iov = self.vectors.as_mut_ptr();
            self.message.msg_iovlen = self.vectors.len();
            opcode::SendMsg::new(socket, &raw const self.message).flags(flags as u32).build()
        };
        // SAFETY: the caller's promise.
        unsafe { port.push(entry, tag) }
    }

    /// The send that was under way has ended.
    ///
    /// # Errors
    /// The socket failed, or took less than everything, which it does only when it fails.
    pub(crate) fn ended(&mut self, result: Result<u32, Errno>) -> Result<(), Errno> {
        self.is_under_way = false;
        match result {
            Ok(bytes) if bytes as usize == self.expected => Ok(()),
            Ok(_) => Err(Errno::PIPE),
            Err(errno) => Err(errno),
        }
    }
}

fn vector(bytes: *const u8, length: usize) -> Option<libc::iovec> {
    (length > 0).then_some(libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: length })
}
