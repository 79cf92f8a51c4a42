//! The contract between the engine and what brings it requests: NBD connections, FUSE mounts.
//!
//! A front end is a state machine on the engine's thread. The engine calls it when something happened, with a [`Port`]
//! through which it may act; it never blocks and keeps no thread. In one *turn* the engine
//!
//! 1. hands out what the ring completed ([`FrontEnd::ring_completed`]),
//! 2. asks the scheduler what may go to the backends,
//! 3. hands out the requests that are done ([`FrontEnd::request_completed`]), and repeats 2 and 3 while they bear fruit, but not
//!    so often that one front end which asks again each time keeps the others waiting,
//! 4. calls [`FrontEnd::turn_ended`] once on every front end that heard anything: now send the replies that came together,
//!    and receive again if there is room,
//! 5. gives all new ring operations to the kernel and waits, in one system call.
//!
//! **Requests.** Take a buffer, fill it, [`submit`](Port::submit); the engine owns the buffer until it hands it back in
//! the [`Finished`] of that token. Nothing completes inside `submit`.
//!
//! **Back-pressure.** When [`Port::take_buffer`] or [`Port::take_read_payload`] has nothing, keep the request and stop
//! receiving; try again in `turn_ended`, which comes whenever a request has completed.
//!
//! **End.** Once [`FrontEnd::is_finished`] is true, no operation is on the ring and no request under way, the engine drops
//! the front end and closes its session. So pointers given to the ring need to live only as long as the front end.

use super::buffer::{Buffer, BufferClass};
use super::port::Port;
use plimsoll_core::{Class, Operation, Span};
use rustix::io::Errno;

/// Most bytes in one read or write: what NBD allows without asking (NBD protocol, "Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// How far apart two calls of [`FrontEnd::has_vanished`] are: longer than any answer of a peer takes.
pub const LOOK_EVERY: Span = Span::from_secs(10);

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
    /// In a block of the volume's cache, which moves it itself, or where the engine reads ahead: no front end has these.
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

/// Something that brings requests to a volume. See the [module's text](self) for the order of calls.
pub trait FrontEnd: Send {
    /// The buffers that it needs, sizes ascending. The largest must hold the largest read or write that it submits.
    fn buffer_classes(&self) -> &[BufferClass];

    /// Whether its buffers are its own, and not of what all connections have together: a front end that depends on it
    /// cannot wait.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// It was attached: start to receive.
    fn started(&mut self, port: &mut Port<'_>);

    /// An operation that it had pushed as `tag` is done. `has_more` tells that a multishot one will complete again.
    fn ring_completed(&mut self, port: &mut Port<'_>, tag: u32, result: Result<u32, Errno>, has_more: bool);

    /// A request of its own is done.
    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished);

    /// The turn is over: send what came together; receive if there is room again.
    fn turn_ended(&mut self, port: &mut Port<'_>);

    /// Some seconds have passed: whether the other end is no longer there. It is cut off then.
    fn has_vanished(&mut self) -> bool {
        false
    }

    /// The engine or the volume goes away. Receive no more, answer what is under way, then become finished.
    fn stop(&mut self, port: &mut Port<'_>);

    /// The grace period after [`stop`](Self::stop) is over, or the administrator cuts it off: cancel what is on the ring,
    /// answer nothing more.
    fn cut(&mut self, port: &mut Port<'_>);

    /// It wants nothing any more: it has nothing to say and nothing to hear.
    fn is_finished(&self) -> bool;
}
