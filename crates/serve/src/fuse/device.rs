//! Reads requests from `/dev/fuse` and writes replies to it, with the engine's buffers.
//!
//! Reads and replies are plain system calls and not operations on the ring. Neither ever waits, since the descriptor
//! does not block, and a call of its own costs no more than the ring's way there and back.
//!
//! Only the waiting is left to the ring, and that with a detour. An operation that waits on a descriptor keeps it open
//! as long as any thread of the process lives. That holds even after its own thread was killed. But while `/dev/fuse`
//! is open, a thread that waits for this mount's blocks lives on (see the text of
//! [`isolated`](crate::attach::isolated)): neither could ever go. So the ring waits on an epoll descriptor, and that
//! watches `/dev/fuse` without keeping it open.

use plimsoll_engine::{Buffer, HEADROOM_BYTES, Payload};
use plimsoll_protocols::fuse::limits::{PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX, WRITE_PREFIX_BYTES};
use plimsoll_protocols::fuse::reply::Reply;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const _: () = assert!(WRITE_PREFIX_BYTES <= HEADROOM_BYTES);

/// A descriptor that is readable when `device` is.
pub(super) fn watch(device: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&watch, device, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(watch)
}

/// Reads one request such that a write's payload lies at the start of the buffer's data, page-aligned.
pub(super) fn read_request(device: BorrowedFd<'_>, landing: &mut Buffer) -> Result<usize, Errno> {
    assert!(landing.capacity() >= PAYLOAD_BYTES_MAX as usize, "a landing buffer takes the largest request");
    // SAFETY: the buffer owns at least `WRITE_PREFIX_BYTES` of headroom before its data and, as just checked, the
    // largest payload after it; no other code has a handle to it.
    let count = unsafe {
        let start = landing.as_mut_ptr().sub(WRITE_PREFIX_BYTES);
        libc::read(device.as_raw_fd(), start.cast(), REQUEST_BYTES_MAX)
    };
    usize::try_from(count).map_err(|_| last_errno())
}

/// The `length` bytes that [`read_request`] brought.
pub(super) fn request_bytes(landing: &Buffer, length: usize) -> &[u8] {
    &landing.with_headroom()[HEADROOM_BYTES - WRITE_PREFIX_BYTES..][..length]
}

/// Writes a reply and, for a read, the `length` bytes of its payload.
pub(super) fn write_reply(device: BorrowedFd<'_>, reply: &Reply, data: Option<(&Payload, u32)>) -> Result<(), Errno> {
    let header = reply.as_bytes();
    let vector = |bytes: *const u8, length: usize| libc::iovec { iov_base: bytes.cast_mut().cast(), iov_len: length };
    let data = data.and_then(|(payload, length)| Some(vector(payload.as_ptr()?, length as usize)));
    let vectors = [vector(header.as_ptr(), header.len()), data.unwrap_or(vector(std::ptr::null(), 0))];
    // SAFETY: the header is a slice; the payload is that of a finished read of this length, so its bytes are there, and
    // only the kernel reads them. A vector without bytes is not looked at.
    let count = unsafe { libc::writev(device.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32) };
    if count < 0 { Err(last_errno()) } else { Ok(()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
