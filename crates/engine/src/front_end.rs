//! The contract between the engine and what brings it requests: NBD connections, FUSE mounts.
//!
//! A front end is a state machine on the engine's thread. The engine calls it when something happened, with a [`Port`]
//! through which it may act; it never blocks and keeps no thread. In one *turn* the engine
//!
//! 1. hands out what the ring completed ([`FrontEnd::ring_completed`]),
//! 2. asks the scheduler what may go to the backends,
//! 3. hands out the requests that are done ([`FrontEnd::request_completed`]), and repeats 2 and 3 while they find work.
//!    The number of repetitions is bounded, so that a front end that asks again each time does not keep the others
//!    waiting,
//! 4. calls [`FrontEnd::turn_ended`] once on every front end that heard anything: now send the replies that came
//!    together, and receive again if there is room,
//! 5. gives all new ring operations to the kernel and waits, in one system call.
//!
//! **Requests.** Take a buffer, fill it, [`submit`](Port::submit); the engine owns the buffer until it hands it back in
//! the [`Finished`] of that token. Nothing completes inside `submit`.
//!
//! **Back-pressure.** When [`Port::take_buffer`] or [`Port::take_read_payload`] has nothing, keep the request and stop
//! receiving; try again in `turn_ended`, which comes whenever a request has completed.
//!
//! **End.** The engine drops a front end and closes its session once three things hold. [`FrontEnd::is_finished`] is
//! true, no operation is on the ring, and no request is under way. So pointers given to the ring need to live only as
//! long as the front end.

use super::buffer::BufferClass;
use super::port::Port;
pub use super::submission::{CacheBlock, Finished, PAYLOAD_BYTES_MAX, Payload, Submission, VolumeBytes};
use plimsoll_core::Span;
use rustix::io::Errno;

/// Time between two calls of [`FrontEnd::has_vanished`]: longer than any answer of a peer takes.
pub const LOOK_EVERY: Span = Span::from_secs(10);

/// Something that brings requests to a volume. See the [module's text](self) for the order of calls.
pub trait FrontEnd: Send {
    /// The buffers that it needs, sizes ascending. The largest must hold the largest read or write that it submits.
    fn buffer_classes(&self) -> &[BufferClass];

    /// Whether its buffers are its own, and not from the memory of all connections. A front end that needs this cannot
    /// wait.
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

    /// The grace period after [`stop`](Self::stop) is over, or the administrator cuts it off: it cancels its operations
    /// on the ring and answers nothing more.
    fn cut(&mut self, port: &mut Port<'_>);

    /// It wants nothing any more: it has nothing to say and nothing to hear.
    fn is_finished(&self) -> bool;
}
