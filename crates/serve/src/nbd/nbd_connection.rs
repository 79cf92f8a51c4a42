//! The transmission phase of one connection, on the ring of its device's thread.
//!
//! ```text
//!   socket --one large receive--> inbox --every request in it--> engine
//!   socket <--one vectored send-- outbox <--replies as they come-- engine
//! ```
//!
//! Nothing is sent or received by a system call of its own. A receive brings whatever the client has sent, often dozens
//! of requests; replies that complete while a send is under way join the next one. Bytes of large writes go straight
//! from the socket into the buffer that the disk writes from; those of small ones are copied once. Bytes of reads go
//! out of the buffer that the disk read into, or out of a volume in memory.
//!
//! **Bounds.** A connection has [`REQUESTS_MAX`] requests and its own buffers. When either is used up, or
//! [`REFUSALS_BYTES_MAX`] of refusals wait for a client that does not read, it receives no more. The socket fills, and
//! the client waits. No other connection notices.
//!
//! **Ends.** A disconnect or a stop: what is under way is answered, then the connection closes. A client that hangs up
//! without a disconnect, bytes that are not the protocol, or a socket that fails: it closes at once. What has not
//! reached a disk does not any more, because the client may have connected again and written something newer. So it is
//! noticed, too, when a client hangs up behind requests for which there is no room: those are not carried out.

mod inbox;
mod outbox;
mod partial;

use crate::connection::{Phase, Silence, prepare};
use inbox::{Next, RequestInbox};
use io_uring::{opcode, types};
use outbox::ReplyOutbox;
use partial::{Blocks, Partial};
use plimsoll_core::{Class, Operation};
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_engine::{BufferClass, Finished, FrontEnd, PAYLOAD_BYTES_MAX, Payload, Port, Submission};
use plimsoll_linux::PeerLog;
use plimsoll_protocols::nbd::error::Errno;
use plimsoll_protocols::nbd::export::{ExportInfo, Features};
use plimsoll_protocols::nbd::handshake::Negotiated;
use plimsoll_protocols::nbd::wire::{self, Command, CommandFlags, Request};
use rustix::io::Errno as SystemErrno;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Requests of one connection under way at the most. QEMU and the kernel's client use up to 128, fio what it is told.
pub const REQUESTS_MAX: usize = 256;
/// Replies without data that may wait, bytes, before no more requests are heard.
pub const REFUSALS_BYTES_MAX: usize = 64 * 1024;
/// Buffers of a connection, 81 MiB in all. As many up to 64 KiB as it may have requests, and one of the largest size
/// that the protocol allows. A client with fewer outstanding than its share of the device holds does not get its share.
/// So each size has enough to keep a drive busy.
const BUFFER_CLASSES: &[BufferClass] = &[
    BufferClass { bytes: 4 << 10, count: REQUESTS_MAX as u16 },
    BufferClass { bytes: 64 << 10, count: REQUESTS_MAX as u16 },
    BufferClass { bytes: 256 << 10, count: 64 },
    BufferClass { bytes: 1 << 20, count: 16 },
    BufferClass { bytes: PAYLOAD_BYTES_MAX, count: 1 },
];

/// What clients make the log say, all together.
static LOG: PeerLog = PeerLog::new();

/// Names of its operations on the ring.
const TAG_RECEIVE: u32 = 0;
const TAG_SEND: u32 = 1;
const TAG_HUNG_UP: u32 = 2;

/// What is remembered of a request for its reply.
#[derive(Clone, Copy)]
struct NbdTask {
    cookie: u64,
    offset: u64,
    length: u32,
    /// Bytes before the first one that was asked for, of a read of whole blocks.
    skew: u32,
}

impl NbdTask {
    fn of(request: &Request) -> NbdTask {
        NbdTask { cookie: request.cookie, offset: request.offset, length: request.length, skew: 0 }
    }
}

/// One NBD connection after its handshake.
pub struct NbdConnection {
    socket: OwnedFd,
    negotiated: Negotiated,
    phase: Phase,
    inbox: RequestInbox,
    outbox: ReplyOutbox,
    silence: Silence,
    asked: Box<[NbdTask; REQUESTS_MAX]>,
    /// Places of `asked` that are free.
    free: Vec<u8>,
    /// Changes of parts of blocks, by place.
    partials: BTreeMap<u8, Partial>,
    /// The ring tells when the client hangs up.
    is_watched: bool,
    /// The client sends nothing more than what is in the socket.
    has_hung_up: bool,
}

/// What NBD clients are told about a volume.
pub fn export_info(volume: &VolumeInfo, is_rotational: bool) -> ExportInfo {
    ExportInfo {
        name: volume.name.clone(),
        description: String::new(),
        size_bytes: volume.size_bytes,
        is_read_only: volume.is_read_only,
        minimum_block_bytes: volume.block_bytes,
        preferred_block_bytes: volume.block_bytes.max(4096),
        maximum_block_bytes: PAYLOAD_BYTES_MAX,
        features: Features {
            flush: true,
            force_unit_access: true,
            trim: true,
            write_zeroes: true,
            fast_zero: false,
            cache: false,
            // All connections of a volume share one backend; a flush of it covers everything that completed before.
            multi_connection: true,
            rotational: is_rotational,
        },
        is_hidden: false,
    }
}

impl NbdConnection {
    /// A connection after its handshake, with a socket that holds nothing of it any more.
    pub fn new(socket: OwnedFd, negotiated: Negotiated) -> NbdConnection {
        let nothing = NbdTask { cookie: 0, offset: 0, length: 0, skew: 0 };
        NbdConnection {
            socket,
            negotiated,
            phase: Phase::Open,
            inbox: RequestInbox::new(),
            outbox: ReplyOutbox::new(),
            silence: Silence::default(),
            asked: Box::new([nothing; REQUESTS_MAX]),
            free: (0..=u8::MAX).rev().collect(),
            partials: BTreeMap::new(),
            is_watched: false,
            has_hung_up: false,
        }
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes what the inbox holds, request by request, as long as there is room.
    fn take_requests(&mut self, port: &mut Port<'_>) {
        while self.phase == Phase::Open && !self.outbox.is_full() {
            let request = match self.inbox.next() {
                Ok(Next::Request(request)) => request,
                Ok(Next::Write(request, payload)) => {
                    self.submit(port, &request, Operation::Write, payload);
                    continue;
                }
                Ok(Next::Part(request, data, block)) => {
                    self.change_partially(port, request, Some(data), block);
                    continue;
                }
                Ok(Next::MoreBytes) => return,
                Err(error) => {
                    let volume = &port.volume().name;
                    LOG.info(format_args!("volume {volume}: an NBD client was disconnected: {error}"));
                    return self.break_off(port);
                }
            };
            if !self.begin(port, request) {
                return self.inbox.put_back(request);
            }
        }
    }

    /// Begins a request. The answer is false if there is no room for it now.
    fn begin(&mut self, port: &mut Port<'_>, request: Request) -> bool {
        if let Err(errno) = request.check(&self.negotiated.export) {
            self.inbox.skip(request.payload_bytes());
            self.refuse(&request, errno);
            return true;
        }
        // A write under way has no place yet, but will need one.
        if self.free.is_empty() {
            return false;
        }
        // The offset and length of the others mean nothing, and may be any.
        if !matches!(request.command, Command::Disconnect | Command::Flush) {
            let blocks = Blocks::of(&request, port.volume().block_bytes);
            if !blocks.are_whole() {
                return self.begin_partial(port, request, blocks);
            }
        }
        let operation = match request.command {
            Command::Disconnect => {
                self.phase = Phase::Closing;
                self.watch_no_more(port);
                return true;
            }
            Command::Write => {
                let Some(buffer) = port.take_buffer(request.length) else { return false };
                self.inbox.receive_payload(request, buffer);
                return true;
            }
            Command::Read => {
                let Some(payload) = port.take_read_payload(request.offset, request.length) else { return false };
                self.submit(port, &request, Operation::Read, payload);
                return true;
            }
            Command::Flush => Operation::Flush,
            Command::Trim => Operation::Trim,
            Command::WriteZeroes => Operation::WriteZeroes,
            Command::Cache | Command::Unknown(_) => {
                self.refuse(&request, Errno::InvalidArgument);
                return true;
            }
        };
        self.submit(port, &request, operation, Payload::None);
        true
    }

    fn submit(&mut self, port: &mut Port<'_>, request: &Request, operation: Operation, payload: Payload) {
        let place = self.take_place(NbdTask::of(request));
        port.submit(Submission {
            token: u64::from(place),
            operation,
            offset: request.offset,
            length: request.length,
            is_forced: request.flags.contains(CommandFlags::FUA),
            class: Class::UNCLASSIFIED,
            payload,
        });
    }

    fn take_place(&mut self, asked: NbdTask) -> u8 {
        let place = self.free.pop().expect("a request is begun only if a place is free");
        self.asked[usize::from(place)] = asked;
        place
    }

    fn refuse(&mut self, request: &Request, errno: Errno) {
        if request.command == Command::Read && self.negotiated.structured_replies {
            self.outbox.push(&wire::error_chunk(request.cookie, true, errno), None);
        } else {
            self.outbox.push(&wire::simple_reply(request.cookie, Err(errno)), None);
        }
    }

    /// Closes at once.
    fn break_off(&mut self, port: &mut Port<'_>) {
        if self.phase == Phase::Broken {
            return;
        }
        self.phase = Phase::Broken;
        // Ends what is on the ring too. An error means that the socket has ended already.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.outbox.discard(port);
        port.abandon_requests();
        self.hear_no_more(port);
        self.watch_no_more(port);
    }

    /// Has the ring tell when the client hangs up, also while nothing is received.
    fn watch(&mut self, port: &mut Port<'_>) {
        self.is_watched = true;
        let entry = opcode::PollAdd::new(types::Fd(self.descriptor()), libc::POLLRDHUP as u32).build();
        // SAFETY: a poll has no addresses, and the engine keeps the front end and with it the socket until it is done.
        unsafe { port.push(entry, TAG_HUNG_UP) }
    }

    fn watch_no_more(&mut self, port: &mut Port<'_>) {
        if self.is_watched {
            port.cancel(TAG_HUNG_UP);
        }
    }

    /// Gives up the receive that is under way and what was received in part.
    fn hear_no_more(&mut self, port: &mut Port<'_>) {
        match self.inbox.is_receiving() {
            true => port.cancel(TAG_RECEIVE),
            false => self.inbox.discard(port),
        }
    }

    fn received(&mut self, port: &mut Port<'_>, result: Result<u32, SystemErrno>) {
        self.silence.heard();
        self.inbox.received(*result.as_ref().unwrap_or(&0) as usize);
        if self.phase != Phase::Open {
            return self.inbox.discard(port);
        }
        match result {
            Ok(0) => self.break_off(port),
            Ok(_) | Err(SystemErrno::INTR | SystemErrno::AGAIN) => self.take_requests(port),
            Err(error) => {
                tracing::debug!(volume = port.volume().name, %error, "an NBD connection failed");
                self.break_off(port);
            }
        }
    }

    fn sent(&mut self, port: &mut Port<'_>, result: Result<u32, SystemErrno>) {
        // Of a connection that is closed nothing more is sent.
        let result = if self.phase == Phase::Broken { Err(SystemErrno::PIPE) } else { result };
        if let Err(error) = self.outbox.sent(port, result)
            && self.phase != Phase::Broken
        {
            tracing::debug!(volume = port.volume().name, %error, "an NBD connection failed");
            self.break_off(port);
        }
    }
}

impl FrontEnd for NbdConnection {
    fn buffer_classes(&self) -> &[BufferClass] {
        BUFFER_CLASSES
    }

    fn started(&mut self, port: &mut Port<'_>) {
        if let Err(error) = prepare(&self.socket) {
            let volume = &port.volume().name;
            LOG.info(format_args!("volume {volume}: cannot set up an NBD socket: {error}"));
            return self.break_off(port);
        }
        self.watch(port);
    }

    fn ring_completed(&mut self, port: &mut Port<'_>, tag: u32, result: Result<u32, SystemErrno>, _has_more: bool) {
        match tag {
            TAG_RECEIVE => self.received(port, result),
            TAG_HUNG_UP => (self.is_watched, self.has_hung_up) = (false, true),
            _ => self.sent(port, result),
        }
    }

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        let place = finished.token as u8;
        if let Some(partial) = self.partials.remove(&place) {
            return self.step_ended(port, partial, finished);
        }
        let Finished { operation, result, payload, .. } = finished;
        self.free.push(place);
        if self.phase == Phase::Broken {
            return port.give_payload(payload);
        }
        let NbdTask { cookie, offset, length, skew } = self.asked[usize::from(place)];
        let is_chunked = operation == Operation::Read && self.negotiated.structured_replies;
        let result = match (operation, result) {
            // A trim is advice: a volume that cannot follow it has not failed.
            (Operation::Trim, Err(SystemErrno::OPNOTSUPP)) => Ok(()),
            (_, result) => result.map_err(|errno| Errno::from_system(errno.raw_os_error())),
        };
        match (result, is_chunked) {
            (Ok(()), true) => {
                let header = wire::offset_data_chunk(cookie, true, offset, length);
                return self.outbox.push(&header, Some((payload.behind(skew), length)));
            }
            (Ok(()), false) if operation == Operation::Read => {
                return self.outbox.push(&wire::simple_reply(cookie, Ok(())), Some((payload.behind(skew), length)));
            }
            (Err(errno), true) => self.outbox.push(&wire::error_chunk(cookie, true, errno), None),
            (result, _) => self.outbox.push(&wire::simple_reply(cookie, result), None),
        }
        port.give_payload(payload);
    }

    fn turn_ended(&mut self, port: &mut Port<'_>) {
        self.take_requests(port);
        if self.phase == Phase::Broken {
            return;
        }
        self.outbox.send(port, self.socket.as_raw_fd());
        if self.phase == Phase::Open && !self.outbox.is_full() {
            self.inbox.receive(port, self.descriptor());
        }
        // While it is received, what comes last says how the client has ended.
        if self.phase == Phase::Open && self.has_hung_up && !self.inbox.is_receiving() {
            self.break_off(port);
        }
    }

    fn has_vanished(&mut self) -> bool {
        let has_vanished = self.phase != Phase::Broken && self.silence.is_final(&self.socket);
        if has_vanished {
            LOG.info("an NBD client vanished without a disconnect");
        }
        has_vanished
    }

    fn stop(&mut self, port: &mut Port<'_>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.hear_no_more(port);
            self.watch_no_more(port);
        }
    }

    fn cut(&mut self, port: &mut Port<'_>) {
        self.break_off(port);
    }

    fn is_finished(&self) -> bool {
        self.phase != Phase::Open
            && self.free.len() == REQUESTS_MAX
            && !self.inbox.is_receiving()
            && !self.is_watched
            && self.outbox.is_empty()
    }
}
