//! A request on its way into the engine and back, and where its bytes are.

use super::buffer::Buffer;
use plimsoll_core::{Class, Operation};
use rustix::io::Errno;

/// Most bytes in one read or write: the NBD protocol allows as much without negotiation ("Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Where the bytes of a request are.
#[derive(Debug)]
pub enum Payload {
    /// There are none: flush, trim, write-zeroes.
    None,
    /// In a buffer, from `at` bytes after the start of its data.
    Buffer {
        /// The buffer.
        buffer: Buffer,
        /// Distance of the first byte; a multiple of the volume's block size.
        at: u32,
    },
    /// In the memory of the volume itself: a read is answered straight from there. The volume cannot be removed while a
    /// front end is attached, so the address holds as long as the front end lives. A write that is under way at the
    /// same time may show, whole or in part, as on any disk.
    Volume(VolumeBytes),
    /// In a block of the volume's cache, or in memory for reading ahead: no front end has these.
    Cache(CacheBlock),
}

/// The address of a block of a cache, or of what is read ahead.
#[derive(Clone, Copy, Debug)]
pub struct CacheBlock(pub(crate) *mut u8);

// SAFETY: an address only; the engine's own thread, on which these are, reads and writes there, and the kernel for it.
unsafe impl Send for CacheBlock {}

/// The address of bytes in a volume that lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct VolumeBytes(pub(crate) *const u8);

// SAFETY: an address only; its one reader, the kernel, reads through it under the rule of `Payload::Volume`.
unsafe impl Send for VolumeBytes {}

impl Payload {
    /// The same without its first `bytes` bytes, of a read that was answered.
    pub fn behind(self, bytes: u32) -> Payload {
        match self {
            Payload::Buffer { buffer, at } => Payload::Buffer { buffer, at: at + bytes },
            // SAFETY: they lie in the bytes that were read.
            Payload::Volume(start) => Payload::Volume(VolumeBytes(unsafe { start.0.add(bytes as usize) })),
            other => other,
        }
    }

    /// Where the bytes begin; `None` where there are none. Give it to the ring, never make a reference of it while the
    /// request is under way.
    #[inline]
    pub fn as_ptr(&self) -> Option<*const u8> {
        match self {
            Payload::None => None,
            // SAFETY: `Port::submit` refuses an `at` beyond the buffer's capacity.
            Payload::Buffer { buffer, at } => Some(unsafe { buffer.as_ptr().add(*at as usize) }),
            Payload::Volume(bytes) => Some(bytes.0),
            Payload::Cache(block) => Some(block.0.cast_const()),
        }
    }
}

/// A request on its way into the engine.
#[derive(Debug)]
pub struct Submission {
    /// The front end's own name for it, given back in [`Finished`].
    pub token: u64,
    /// What is asked.
    pub operation: Operation,
    /// First byte in the volume; 0 for a flush.
    pub offset: u64,
    /// Number of bytes; 0 for a flush, at most [`PAYLOAD_BYTES_MAX`] for reads and writes.
    pub length: u32,
    /// The change must be durable when the request completes (NBD's FUA).
    pub is_forced: bool,
    /// What the client says that the bytes are. Unless it says nothing, it goes before what is known of the blocks.
    pub class: Class,
    /// The bytes of a write, room for those of a read.
    pub payload: Payload,
}

/// A request on its way back.
#[derive(Debug)]
pub struct Finished {
    /// The front end's name for it.
    pub token: u64,
    /// What was asked.
    pub operation: Operation,
    /// How many bytes were asked for.
    pub length: u32,
    /// Whether it was carried out; if not, its bytes mean nothing.
    pub result: Result<(), Errno>,
    /// The payload of the submission; give its buffer back when it is no longer needed.
    pub payload: Payload,
}
