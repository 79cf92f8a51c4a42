//! One send of bytes in several places: those that are ready when the last send is done.
//!
//! ```text
//!   bytes:    | header | header | header of a read |        | header | ...
//!   vectors:  |---------------- one ---------------|  data  |---- one ...
//! ```
//!
//! Headers and whatever is small lie one behind the other, so that answers without data, those of writes above all, are
//! one stretch. The bytes of a read go out of where the disk put them.
//!
//! **Complication.** Reads of a volume in memory are answered from there and take no buffers. So answers that are ready
//! together may be more than the kernel takes in one call. And a call may take less than it was given. So a send is as
//! many operations as it needs, one after the other.

use io_uring::{opcode, types};
use plimsoll_engine::Port;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Most bytes of one operation: what Linux moves in one call (`MAX_RW_COUNT`, 2 GiB less a page). It leaves out the
/// rest.
const OPERATION_BYTES_MAX: usize = 0x7fff_f000;
/// Vectors of one operation at the most (`UIO_MAXIOV`): with more it fails.
const OPERATION_VECTORS_MAX: usize = 1024;

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
    socket: RawFd,
    tag: u32,
    vectors: Vectors,
    message: libc::msghdr,
}

// SAFETY: the addresses in `vectors` and `message` are of this value's own memory or of what its owner keeps until the
// send has ended, and only the kernel follows them.
unsafe impl Send for GatheredSend {}

impl GatheredSend {
    /// With room for so many vectors; for more it allocates.
    pub(crate) fn with_capacity(vectors: usize) -> GatheredSend {
        GatheredSend {
            is_under_way: false,
            socket: -1,
            tag: 0,
            vectors: Vectors { list: Vec::with_capacity(vectors), sent: 0 },
            // SAFETY: all zero is a valid `msghdr`: no addresses, no lengths.
            message: unsafe { std::mem::zeroed() },
        }
    }

    /// Whether a send has not ended yet.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Sends `bytes` and, between them, `parts`, which are in the order of their places.
    ///
    /// # Safety
    /// No send is under way. This value, the bytes and the targets of the parts stay in place and unchanged until
    /// [`went_on`](Self::went_on) has said that the send has ended. Operations on the ring are called `tag`.
    pub(crate) unsafe fn begin(
        &mut self,
        port: &mut Port<'_>,
        (socket, tag): (RawFd, u32),
        bytes: &[u8],
        parts: impl Iterator<Item = Part>,
    ) {
        (self.is_under_way, self.socket, self.tag) = (true, socket, tag);
        self.vectors.gather(bytes, parts);
        self.send_next(port);
    }

    /// Has the kernel send what is next.
    fn send_next(&mut self, port: &mut Port<'_>) {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let socket = types::Fd(self.socket);
        let entry = match self.vectors.next_operation() {
            [only] => {
                let length = only.iov_len.min(OPERATION_BYTES_MAX) as u32;
                opcode::Send::new(socket, only.iov_base.cast::<u8>(), length).flags(flags).build()
            }
            next => {
                self.message.msg_iov = next.as_mut_ptr();
                self.message.msg_iovlen = next.len();
                opcode::SendMsg::new(socket, &raw const self.message).flags(flags as u32).build()
            }
        };
        // SAFETY: what `begin` was promised: everything stays until the send has ended, and it has not.
        unsafe { port.push(entry, self.tag) }
    }

    /// An operation of the send that is under way has ended. Says whether that was the last; if not, the next is under
    /// way.
    ///
    /// # Errors
    /// The socket failed, or took nothing, which it does only when it fails. The send has ended.
    pub(crate) fn went_on(&mut self, port: &mut Port<'_>, result: Result<u32, Errno>) -> Result<bool, Errno> {
        self.is_under_way = false;
        match result {
            Ok(0) => return Err(Errno::PIPE),
            Ok(count) => self.vectors.advance(count as usize),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        self.is_under_way = !self.vectors.is_sent();
        if self.is_under_way {
            self.send_next(port);
        }
        Ok(!self.is_under_way)
    }
}

/// What is to be sent, none of it empty.
struct Vectors {
    list: Vec<libc::iovec>,
    /// How many of them were sent.
    sent: usize,
}

impl Vectors {
    /// Puts `bytes` and, between them, `parts` in the place of what was there.
    fn gather(&mut self, bytes: &[u8], parts: impl Iterator<Item = Part>) {
        self.list.clear();
        self.sent = 0;
        let mut from = 0;
        for Part { after, start, length } in parts {
            self.list.extend(vector(bytes[from..after].as_ptr(), after - from));
            self.list.extend(vector(start, length));
            from = after;
        }
        self.list.extend(vector(bytes[from..].as_ptr(), bytes.len() - from));
    }

    /// What one operation can send of the rest: at least one of them.
    fn next_operation(&mut self) -> &mut [libc::iovec] {
        let rest = &mut self.list[self.sent..];
        let mut bytes = 0;
        let fits = |vector: &&libc::iovec| {
            bytes += vector.iov_len;
            bytes <= OPERATION_BYTES_MAX
        };
        let count = rest.iter().take(OPERATION_VECTORS_MAX).take_while(fits).count();
        &mut rest[..count.max(1)]
    }

    /// So many bytes of the rest were sent.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(vector) = self.list.get_mut(self.sent).filter(|_| bytes > 0) {
            let of_vector = bytes.min(vector.iov_len);
            vector.iov_base = vector.iov_base.wrapping_byte_add(of_vector);
            vector.iov_len -= of_vector;
            bytes -= of_vector;
            self.sent += usize::from(vector.iov_len == 0);
        }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.list.len()
    }
}

fn vector(bytes: *const u8, length: usize) -> Option<libc::iovec> {
    (length > 0).then_some(libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(bytes: &[u8], parts: &[(usize, &[u8])]) -> Vectors {
        let mut vectors = Vectors { list: Vec::new(), sent: 0 };
        let part = |&(after, data): &(usize, &[u8])| Part { after, start: data.as_ptr(), length: data.len() };
        vectors.gather(bytes, parts.iter().map(part));
        vectors
    }

    #[test]
    fn what_a_call_did_not_take_goes_with_the_next() {
        let parts: [(usize, &[u8]); 4] = [(2, b"one"), (2, b""), (2, b"two"), (5, b"three")];
        for at_once in 1..20 {
            let mut vectors = gathered(b"abcdefg", &parts);
            let mut sent = Vec::new();
            while !vectors.is_sent() {
                let next = vectors.next_operation().iter().flat_map(|vector| {
                    // SAFETY: the vectors are of `parts` and of the text above, which live.
                    unsafe { std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len) }
                });
                let taken: Vec<u8> = next.copied().take(at_once).collect();
                vectors.advance(taken.len());
                sent.extend(taken);
            }
            assert_eq!(String::from_utf8(sent).unwrap(), "abonetwocdethreefg", "{at_once}");
        }
    }

    #[test]
    fn no_call_is_given_more_than_the_kernel_takes() {
        let nowhere = |length| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: length };
        let counts = |list: Vec<libc::iovec>| {
            let mut vectors = Vectors { list, sent: 0 };
            let mut counts = Vec::new();
            while !vectors.is_sent() {
                let next = vectors.next_operation();
                let (count, bytes) = (next.len(), next.iter().map(|vector| vector.iov_len).sum());
                assert!(bytes <= OPERATION_BYTES_MAX);
                counts.push(count);
                vectors.advance(bytes);
            }
            counts
        };
        assert_eq!(counts(vec![nowhere(32 << 20); 150]), [63, 63, 24]);
        assert_eq!(counts(vec![nowhere(1); 2100]), [1024, 1024, 52]);
    }
}
