//! One FUSE file on the ring of its device's thread.
//!
//! ```text
//!   ring: "readable" --> read, read, read ... "nothing more" --> engine
//!   /dev/fuse <-- one reply each, as they come -------------------- engine
//! ```
//!
//! Each turn hears at most [`REQUESTS_PER_TURN_MAX`] requests or [`BYTES_PER_TURN_MAX`]. So a tenant with a volume that
//! answers at once (memory), or one that writes much, leaves the turn to others. Then the ring says again whether there
//! are more.
//!
//! A request is read into a *landing buffer* large enough for any. If it is a write, the buffer goes to the engine with
//! the payload in place, and the next request gets another one. A read gets a smaller buffer or none, if the volume
//! lies in memory; the landing buffer serves again.
//!
//! **Bounds.** With [`REQUESTS_MAX`] requests under way or no buffer left, nothing more is read. The kernel then keeps
//! the requests, the loop device's queue fills, and the tenant waits.
//!
//! **Ends.** After an unmount the device says so, and the front end is through. A stop before that answers what is
//! under way; when the descriptor then closes, the kernel fails everything that still waits on the mount.

use super::device::{read_request, request_bytes, watch, write_reply};
use crate::attach::thread_setup::prepare_engine_thread;
use crate::connection::Phase;
use io_uring::{opcode, types};
use plimsoll_core::{Class, Operation};
use plimsoll_engine::{Buffer, BufferClass, Finished, FrontEnd, Payload, Port, Submission};
use plimsoll_protocols::fuse::limits::PAYLOAD_BYTES_MAX;
use plimsoll_protocols::fuse::reply::{FileAttributes, Reply};
use plimsoll_protocols::fuse::wire::{AllocateMode, Call, FuseRequest};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Once;

/// Requests under way at the most, as many as
/// [`BACKGROUND_REQUESTS_MAX`](plimsoll_protocols::fuse::reply::BACKGROUND_REQUESTS_MAX) lets the kernel send.
pub const REQUESTS_MAX: usize = 256;
/// Requests that are read in one turn at the most.
pub const REQUESTS_PER_TURN_MAX: usize = 64;
/// Most bytes that are read in one turn, about: a quarter of a millisecond of copying. A backup's 64 requests of 256
/// KiB kept the thread from everything else for 15 ms.
pub const BYTES_PER_TURN_MAX: usize = 1 << 20;
/// Largest trim or write-zeroes for the engine at once, in bytes. Longer ranges go piece after piece. A multiple of
/// every block size.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Granularity of holes that the kernel is told, bytes, unless the volume's blocks are larger.
const HOLE_BYTES_MIN: u32 = 4096;
/// Buffers of a mount: small ones for reads, and as many landing buffers as a loop device has requests (its hardware
/// depth, 128).
const BUFFER_CLASSES: &[BufferClass] = &[
    BufferClass { bytes: 4 << 10, count: REQUESTS_MAX as u16 },
    BufferClass { bytes: 64 << 10, count: 64 },
    BufferClass { bytes: PAYLOAD_BYTES_MAX, count: 128 },
];

/// Name of its one operation on the ring.
const TAG_READABLE: u32 = 0;

/// What is remembered of a request for its reply.
#[derive(Clone, Copy, Default)]
struct FuseTask {
    unique: u64,
    /// First byte of the rest of a trim or write-zeroes that is longer than [`RANGE_BYTES_MAX`].
    rest_offset: u64,
    /// Bytes of that rest.
    rest_length: u64,
}

/// The server of one FUSE file.
pub struct FuseConnection {
    device: OwnedFd,
    /// Readable when the device is; there once the front end has started.
    watch: Option<OwnedFd>,
    phase: Phase,
    landing: Option<Buffer>,
    asked: Box<[FuseTask; REQUESTS_MAX]>,
    /// Places of `asked` that are free.
    free: Vec<u8>,
    is_polling: bool,
}

impl FuseConnection {
    /// The server of the mount of `device`: a non-blocking descriptor of `/dev/fuse`, as
    /// [`Attachment::mount_disk`](crate::attach::Attachment::mount_disk) gives it.
    pub fn new(device: OwnedFd) -> FuseConnection {
        FuseConnection {
            device,
            watch: None,
            phase: Phase::Open,
            landing: None,
            asked: Box::new([FuseTask::default(); REQUESTS_MAX]),
            free: (0..=u8::MAX).rev().collect(),
            is_polling: false,
        }
    }

    /// Reads requests until there are none, no room, or enough for this turn.
    fn hear(&mut self, port: &mut Port<'_>) {
        let mut bytes = 0;
        for _ in 0..REQUESTS_PER_TURN_MAX {
            if self.phase != Phase::Open || self.free.is_empty() || bytes >= BYTES_PER_TURN_MAX {
                return;
            }
            let Some(mut landing) = self.landing.take().or_else(|| port.take_buffer(PAYLOAD_BYTES_MAX)) else { return };
            match read_request(self.device.as_fd(), &mut landing) {
                Ok(length) => {
                    bytes += length;
                    self.landing = self.take_request(port, landing, length);
                }
                Err(errno) => {
                    self.landing = Some(landing);
                    match errno {
                        // A request that was given up while it was read.
                        Errno::INTR | Errno::NOENT => {}
                        Errno::AGAIN => return,
                        Errno::NODEV => return self.close(port),
                        errno => {
                            tracing::error!(volume = port.volume().name, error = %errno, "cannot read requests from \
                                                                                          /dev/fuse");
                            return self.break_off(port);
                        }
                    }
                }
            }
        }
    }

    /// Takes the request in the landing buffer. Gives the buffer back unless the request needs it.
    fn take_request(&mut self, port: &mut Port<'_>, landing: Buffer, length: usize) -> Option<Buffer> {
        let request = match FuseRequest::parse(request_bytes(&landing, length)) {
            Ok(request) => request,
            Err(error) => {
                tracing::error!(volume = port.volume().name, %error, "cannot parse a request of the kernel");
                Reply::refusal(&error).iter().for_each(|reply| self.reply(port, reply, None));
                return Some(landing);
            }
        };
        let unique = request.unique;
        match request.call {
            Call::Write { offset, length } => {
                let payload = Payload::Buffer { buffer: landing, at: 0 };
                self.submit(port, unique, Operation::Write, (offset, length), payload);
                None
            }
            Call::Read { offset, length } => {
                // As from any file: a read that begins or ends behind the end brings what there is.
                let left = port.volume().size_bytes.saturating_sub(offset);
                let length = length.min(u32::try_from(left).unwrap_or(u32::MAX));
                if length == 0 {
                    self.reply(port, &Reply::data(unique, 0), None);
                    return Some(landing);
                }
                let (payload, landing) = match port.take_read_payload(offset, length) {
                    Some(payload) => (payload, Some(landing)),
                    None => (Payload::Buffer { buffer: landing, at: 0 }, None),
                };
                self.submit(port, unique, Operation::Read, (offset, length), payload);
                landing
            }
            call => {
                self.take_other(port, unique, call);
                Some(landing)
            }
        }
    }

    /// Takes a request that moves no bytes.
    fn take_other(&mut self, port: &mut Port<'_>, unique: u64, call: Call) {
        let file = attributes(port);
        let reply = match call {
            Call::Fsync => return self.submit(port, unique, Operation::Flush, (0, 0), Payload::None),
            // A volume that has no holes says so: the kernel then writes the zeroes that it needs, and discards no
            // more.
            Call::Allocate { mode: AllocateMode::PunchHole, offset, length } => {
                return self.submit_range(port, unique, Operation::Trim, offset, length);
            }
            Call::Allocate { mode: AllocateMode::ZeroRange, offset, length } => {
                return self.submit_range(port, unique, Operation::WriteZeroes, offset, length);
            }
            Call::Unanswered | Call::Read { .. } | Call::Write { .. } => return,
            Call::Initialize(offer) => Reply::initialized(unique, offer).unwrap_or_else(|error| {
                tracing::error!(volume = port.volume().name, %error, "the volume cannot be mounted");
                Reply::error(unique, Errno::PROTO)
            }),
            Call::GetAttributes => Reply::attributes(unique, file),
            // Times have no meaning here; the size is the volume's, and mode and owner are the mount's.
            Call::SetAttributes { size_bytes, changes_access } => {
                match changes_access || size_bytes.is_some_and(|size_bytes| size_bytes != file.size_bytes) {
                    true => Reply::error(unique, Errno::PERM),
                    false => Reply::attributes(unique, file),
                }
            }
            Call::Open => Reply::opened(unique),
            Call::Statistics => Reply::statistics(unique, file),
            Call::Flush | Call::Release | Call::Destroy => Reply::done(unique),
            Call::Allocate { mode: AllocateMode::Other, .. } => Reply::error(unique, Errno::OPNOTSUPP),
            Call::Unsupported { .. } => Reply::error(unique, Errno::NOSYS),
        };
        self.reply(port, &reply, None);
    }

    /// Submits a trim or write-zeroes, which may be longer than one submission.
    fn submit_range(&mut self, port: &mut Port<'_>, unique: u64, operation: Operation, offset: u64, length: u64) {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= port.volume().size_bytes);
        if !is_inside {
            return self.reply(port, &Reply::error(unique, Errno::FBIG), None);
        }
        let first = length.min(RANGE_BYTES_MAX);
        let place = self.submit_at_place(port, unique, operation, (offset, first as u32), Payload::None);
        let asked = &mut self.asked[usize::from(place)];
        (asked.rest_offset, asked.rest_length) = (offset + first, length - first);
    }

    fn submit(&mut self, port: &mut Port<'_>, unique: u64, operation: Operation, range: (u64, u32), payload: Payload) {
        self.submit_at_place(port, unique, operation, range, payload);
    }

    fn submit_at_place(
        &mut self,
        port: &mut Port<'_>,
        unique: u64,
        operation: Operation,
        (offset, length): (u64, u32),
        payload: Payload,
    ) -> u8 {
        let place = self.free.pop().expect("a request is read only if a place is free");
        self.asked[usize::from(place)] = FuseTask { unique, ..FuseTask::default() };
        let token = u64::from(place);
        let class = Class::UNCLASSIFIED;
        port.submit(Submission { token, operation, offset, length, is_forced: false, class, payload });
        place
    }

    /// Replies now. A request that the kernel has given up meanwhile wants no reply.
    fn reply(&mut self, port: &mut Port<'_>, reply: &Reply, data: Option<(&Payload, u32)>) {
        match write_reply(self.device.as_fd(), reply, data) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => {
                tracing::error!(volume = port.volume().name, error = %errno, "cannot write a reply to /dev/fuse");
                self.break_off(port);
            }
        }
    }

    /// Hears no more.
    fn close(&mut self, port: &mut Port<'_>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
        }
        if self.is_polling {
            port.cancel(TAG_READABLE);
        }
    }

    /// Hears and says no more.
    fn break_off(&mut self, port: &mut Port<'_>) {
        self.close(port);
        self.phase = Phase::Broken;
        port.abandon_requests();
    }
}

/// What the kernel is told of the volume.
fn attributes(port: &Port<'_>) -> FileAttributes {
    let volume = port.volume();
    FileAttributes { size_bytes: volume.size_bytes, block_bytes: volume.block_bytes.max(HOLE_BYTES_MIN) }
}

impl FrontEnd for FuseConnection {
    fn buffer_classes(&self) -> &[BufferClass] {
        BUFFER_CLASSES
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn started(&mut self, port: &mut Port<'_>) {
        // From now on a file system depends on this thread.
        let refused = prepare_engine_thread();
        if !refused.is_empty() {
            // It asks for nothing and holds for each volume: one line is enough.
            static SAID: Once = Once::new();
            let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
            SAID.call_once(|| tracing::info!("mounted volumes: {}", refused.join("; ")));
        }
        match watch(self.device.as_fd()) {
            Ok(watch) => self.watch = Some(watch),
            Err(errno) => {
                tracing::error!(volume = port.volume().name, error = %errno, "cannot watch /dev/fuse");
                self.break_off(port);
            }
        }
    }

    fn ring_completed(&mut self, port: &mut Port<'_>, _tag: u32, _result: Result<u32, Errno>, _has_more: bool) {
        // Whatever the ring says, an unmount included, the next read says it better.
        self.is_polling = false;
        self.hear(port);
    }

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        let Finished { token, operation, length, result, payload } = finished;
        let place = token as u8;
        let FuseTask { unique, rest_offset, rest_length } = self.asked[usize::from(place)];
        self.free.push(place);
        if self.phase == Phase::Broken {
            return port.give_payload(payload);
        }
        match result {
            Ok(()) if rest_length > 0 => self.submit_range(port, unique, operation, rest_offset, rest_length),
            Ok(()) if operation == Operation::Read => {
                self.reply(port, &Reply::data(unique, length), Some((&payload, length)));
            }
            Ok(()) if operation == Operation::Write => self.reply(port, &Reply::written(unique, length), None),
            Ok(()) => self.reply(port, &Reply::done(unique), None),
            Err(errno) => self.reply(port, &Reply::error(unique, errno), None),
        }
        port.give_payload(payload);
    }

    fn turn_ended(&mut self, port: &mut Port<'_>) {
        if self.phase != Phase::Open {
            return self.landing.take().map_or((), |landing| port.give_buffer(landing));
        }
        if self.is_polling || self.free.is_empty() {
            return;
        }
        self.landing = self.landing.take().or_else(|| port.take_buffer(PAYLOAD_BYTES_MAX));
        if self.landing.is_none() {
            return;
        }
        let Some(watch) = &self.watch else { return };
        self.is_polling = true;
        let entry = opcode::PollAdd::new(types::Fd(watch.as_raw_fd()), libc::POLLIN as u32).build();
        // SAFETY: a poll has no addresses, and the engine keeps the front end and with it the descriptor until it is
        // done.
        unsafe { port.push(entry, TAG_READABLE) }
    }

    fn stop(&mut self, port: &mut Port<'_>) {
        self.close(port);
    }

    fn cut(&mut self, port: &mut Port<'_>) {
        self.break_off(port);
    }

    fn is_finished(&self) -> bool {
        self.phase != Phase::Open && !self.is_polling && self.free.len() == REQUESTS_MAX
    }
}
