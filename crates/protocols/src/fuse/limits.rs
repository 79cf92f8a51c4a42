//! Lengths that the kernel and this end agree on, in bytes.

/// Bytes of `struct fuse_in_header`.
pub const REQUEST_HEADER_BYTES: usize = 40;
/// Bytes before a write's payload: the header and `struct fuse_write_in`.
pub const WRITE_PREFIX_BYTES: usize = REQUEST_HEADER_BYTES + 40;
/// Largest payload of a read or a write, in bytes. The loop device asks for up to 1280 KiB at once and the kernel cuts
/// that into pieces of this size. That is far above where throughput stops growing and small enough for a scheduler.
pub const PAYLOAD_BYTES_MAX: u32 = 256 * 1024;
/// Bytes of the largest request.
pub const REQUEST_BYTES_MAX: usize = WRITE_PREFIX_BYTES + PAYLOAD_BYTES_MAX as usize;

/// The number of the file that is the root of the mount.
pub(super) const ROOT_NODE: u64 = 1;
