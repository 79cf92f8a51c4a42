//! Replies as the kernel reads them from `/dev/fuse`: a header of 16 bytes and what was asked for.
//!
//! A reply is built on the stack and written at once. Only a read's payload is not part of it: [`Reply::data`] is the
//! header, and the payload goes out behind it in the same `writev`.

use super::error::WireError;
use super::limits::{PAYLOAD_BYTES_MAX, ROOT_NODE};
use super::offer::{FLAGS_NEEDED, FLAGS_WANTED, Offer, PROTOCOL_MAJOR, PROTOCOL_MINOR_NEWEST, PROTOCOL_MINOR_OLDEST};
use rustix::io::Errno;

/// Bytes of `struct fuse_out_header`.
pub const REPLY_HEADER_BYTES: usize = 16;
/// Bytes of the largest reply without the payload of a read: the header and `struct fuse_attr_out`.
pub const REPLY_BYTES_MAX: usize = REPLY_HEADER_BYTES + 104;
/// Requests that the kernel keeps with us at once: two full queues of a loop device (hardware depth 128).
pub const BACKGROUND_REQUESTS_MAX: u16 = 256;

/// Most pages of one request: the kernel's maximum without a sysctl (`FUSE_MAX_MAX_PAGES` before 6.12, since then
/// `fs.fuse.max_pages_limit`). Four times what the largest payload fills, because memory that does not begin on a page,
/// or comes in small pieces, touches more. A request would then be cut short in the middle of a block.
const PAGES_MAX: u16 = 256;
/// How long the kernel may keep attributes: 136 years, since only this driver changes the size.
const ATTRIBUTES_VALID_SECONDS: u64 = u32::MAX as u64;
/// The file's handle; there is one file, so the value means nothing.
const FILE_HANDLE: u64 = 1;
/// `S_IFREG | 0600`: a regular file for its owner.
const FILE_MODE: u32 = 0o100_600;
/// Unit of `st_blocks` (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

const OPEN_DIRECT_IO: u32 = 1 << 0;
const OPEN_KEEP_CACHE: u32 = 1 << 1;
/// Known since Linux 6.2; older kernels ignore it and let writes through one at a time.
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// What the kernel may know of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    /// Bytes.
    pub size_bytes: u64,
    /// Smallest piece that a hole can have, in bytes. A loop device offers discard in multiples of it.
    pub block_bytes: u32,
}

/// A reply, or the part of it that comes before a read's payload. Lives on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    bytes: [u8; REPLY_BYTES_MAX],
    length: usize,
}

impl Reply {
    /// Done, and there is nothing more to say.
    pub fn done(unique: u64) -> Reply {
        Reply { bytes: [0; REPLY_BYTES_MAX], length: REPLY_HEADER_BYTES }.u64(8, unique).sealed(0)
    }

    /// Failed.
    pub fn error(unique: u64, errno: Errno) -> Reply {
        Reply::done(unique).u32(4, errno.raw_os_error().wrapping_neg() as u32)
    }

    /// What a request gets that cannot be served; `None` if it had no number to answer to.
    pub fn refusal(error: &WireError) -> Option<Reply> {
        let (unique, errno) = match *error {
            WireError::Header { .. } => return None,
            WireError::Length { unique, .. } | WireError::Body { unique, .. } => (unique, Errno::INVAL),
            WireError::Payload { unique, .. } => (unique, Errno::INVAL),
            WireError::Node { unique, .. } => (unique, Errno::STALE),
            WireError::Version { unique, .. } => (unique, Errno::PROTO),
        };
        Some(Reply::error(unique, errno))
    }

    /// The header before `length` bytes that were read.
    pub fn data(unique: u64, length: u32) -> Reply {
        Reply::done(unique).sealed(length)
    }

    /// `length` bytes were written.
    pub fn written(unique: u64, length: u32) -> Reply {
        Reply::done(unique).body(8).u32(REPLY_HEADER_BYTES, length).sealed(0)
    }

    /// The file is open: its pages are never cached, reads and writes go past each other.
    pub fn opened(unique: u64) -> Reply {
        let flags = OPEN_DIRECT_IO | OPEN_KEEP_CACHE | OPEN_PARALLEL_DIRECT_WRITES;
        Reply::done(unique).body(16).u64(REPLY_HEADER_BYTES, FILE_HANDLE).u32(REPLY_HEADER_BYTES + 8, flags).sealed(0)
    }

    /// The file's attributes: `struct fuse_attr_out`, which is 16 bytes and then `struct fuse_attr`.
    pub fn attributes(unique: u64, file: FileAttributes) -> Reply {
        const ATTRIBUTES: usize = REPLY_HEADER_BYTES + 16;
        Reply::done(unique)
            .body(104)
            .u64(REPLY_HEADER_BYTES, ATTRIBUTES_VALID_SECONDS)
            .u64(ATTRIBUTES, ROOT_NODE)
            .u64(ATTRIBUTES + 8, file.size_bytes)
            .u64(ATTRIBUTES + 16, file.size_bytes / STAT_BLOCK_BYTES)
            .u32(ATTRIBUTES + 60, FILE_MODE)
            .u32(ATTRIBUTES + 64, 1)
            .u32(ATTRIBUTES + 80, file.block_bytes)
            .sealed(0)
    }

    /// `struct fuse_statfs_out`: a file system with one file that fills it. The loop device takes `bsize` for the
    /// granularity of its discards and offers none where it is 0.
    pub fn statistics(unique: u64, file: FileAttributes) -> Reply {
        Reply::done(unique)
            .body(80)
            .u64(REPLY_HEADER_BYTES, file.size_bytes / u64::from(file.block_bytes.max(1)))
            .u64(REPLY_HEADER_BYTES + 24, 1)
            .u32(REPLY_HEADER_BYTES + 40, file.block_bytes)
            .u32(REPLY_HEADER_BYTES + 44, 255)
            .u32(REPLY_HEADER_BYTES + 48, file.block_bytes)
            .sealed(0)
    }

    /// Answers the kernel's offer: the older of both minor versions, and of its flags those that we want. A kernel of a
    /// later major version gets this version, and asks again with it.
    ///
    /// # Errors
    /// A kernel that cannot do what we need; [`refusal`](Self::refusal) tells it so.
    pub fn initialized(unique: u64, offer: Offer) -> Result<Reply, WireError> {
        let Offer { major, minor, flags } = offer;
        let is_later = major > PROTOCOL_MAJOR;
        let is_enough =
            major == PROTOCOL_MAJOR && minor >= PROTOCOL_MINOR_OLDEST && flags & FLAGS_NEEDED == FLAGS_NEEDED;
        if !is_later && !is_enough {
            return Err(WireError::Version { unique, major, minor, flags });
        }
        const BODY: usize = REPLY_HEADER_BYTES;
        Ok(Reply::done(unique)
            .body(64)
            .u32(BODY, PROTOCOL_MAJOR)
            .u32(BODY + 4, minor.min(PROTOCOL_MINOR_NEWEST))
            .u32(BODY + 12, flags & FLAGS_WANTED)
            .u16(BODY + 16, BACKGROUND_REQUESTS_MAX)
            .u16(BODY + 18, BACKGROUND_REQUESTS_MAX)
            .u32(BODY + 20, PAYLOAD_BYTES_MAX)
            .u32(BODY + 24, 1)
            .u16(BODY + 28, PAGES_MAX)
            .sealed(0))
    }

    /// What to write to `/dev/fuse`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    const fn body(mut self, length: usize) -> Reply {
        self.length = REPLY_HEADER_BYTES + length;
        self
    }

    fn u16(mut self, at: usize, value: u16) -> Reply {
        self.bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, at: usize, value: u32) -> Reply {
        self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Reply {
        self.bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Sets the length in the header; `payload` bytes follow from elsewhere.
    fn sealed(self, payload: u32) -> Reply {
        let length = self.length as u32 + payload;
        self.u32(0, length)
    }
}
