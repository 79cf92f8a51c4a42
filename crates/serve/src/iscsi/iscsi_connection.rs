//! A session of one connection after its login, on the ring of its device's thread.
//!
//! ```text
//!   socket --receive--> inbox --PDUs--> commands --> LogicalUnit --> jobs: steps --> engine
//!   socket <--send----- outbox <--answers-----------------------------------------------+
//! ```
//!
//! **Bounds.** The session's window lets in [`COMMANDS_MAX`] commands, and each has its buffers (`tasks`). Other
//! answers count against [`OUTBOX_BYTES_MAX`]. When so much waits for an initiator that does not read, no more is
//! received, the socket fills, and the initiator waits. No other session notices.
//!
//! **Ends.** A logout or a stop: what is under way is answered, then the connection closes. The connection and its
//! session close at once in these cases. They are the end of the stream, invalid or damaged bytes, a failed socket, and
//! a new session in this one's place. What has not reached a disk does not any more. What has comes before whatever the
//! initiator asks for next.

mod commands;
mod inbox;
mod management;
mod outbox;
mod requests;
mod tasks;

use super::target::Target;
use crate::connection::{Phase, Silence, prepare};
use inbox::PduInbox;
use management::Waiting;
use outbox::PduOutbox;
use plimsoll_engine::{BufferClass, Finished, FrontEnd, Port};
use plimsoll_linux::PeerLog;
use plimsoll_protocols::iscsi::error::IscsiError;
use plimsoll_protocols::iscsi::login::LoggedIn;
use plimsoll_protocols::iscsi::parameters::DATA_BYTES_MAX;
use plimsoll_protocols::iscsi::pdu::{Frame, Header, NO_TAG, opcode};
use plimsoll_protocols::scsi::NexusId;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use tasks::Tasks;
pub use tasks::{COMMANDS_MAX, IMMEDIATE_MAX};

/// Headers and small answers that may wait, bytes, before no more requests are heard.
pub const OUTBOX_BYTES_MAX: usize = 256 * 1024;

/// Names of its operations on the ring.
const TAG_RECEIVE: u32 = 0;
const TAG_SEND: u32 = 1;

/// What initiators make the log say, all together.
static LOG: PeerLog = PeerLog::new();

/// One iSCSI connection after its login.
pub struct IscsiConnection {
    socket: OwnedFd,
    portal: Option<String>,
    target: Arc<Target>,
    nexus: NexusId,
    session: LoggedIn,
    phase: Phase,
    inbox: PduInbox,
    outbox: PduOutbox,
    silence: Silence,
    tasks: Tasks,
    /// Task management that waits until what was aborted has ended.
    waiting: Waiting,
    /// The answer to a logout, which waits for those to tasks.
    logout: Option<Header>,
    /// The last command that the initiator may send; never goes back.
    command_max: u32,
    /// Counts what data were asked for with.
    transfer_tag: u32,
}

impl IscsiConnection {
    /// A connection after its login. `portal` is its own address, as initiators write it; a Unix socket has none.
    pub fn new(
        socket: OwnedFd,
        portal: Option<String>,
        target: Arc<Target>,
        nexus: NexusId,
        session: LoggedIn,
    ) -> IscsiConnection {
        let digests = session.parameters.digests;
        IscsiConnection {
            socket,
            portal,
            target,
            nexus,
            phase: Phase::Open,
            inbox: PduInbox::new(),
            outbox: PduOutbox::new(digests),
            silence: Silence::default(),
            tasks: Tasks::new(),
            waiting: Waiting::default(),
            logout: None,
            command_max: session.command_number.wrapping_add(COMMANDS_MAX as u32 - 1),
            transfer_tag: 0,
            session,
        }
    }

    /// Takes what has come, PDU by PDU, as long as there is room.
    fn take_frames(&mut self, port: &mut Port<'_>) {
        while self.phase == Phase::Open && !self.outbox.is_full() && !self.inbox.is_receiving() {
            let (bytes, range) = self.inbox.take();
            let frame = Frame::decode(&bytes[range], DATA_BYTES_MAX, self.session.parameters.digests);
            let (count, is_usable) = match frame {
                Ok(Some(frame)) => (frame.length, self.take_frame(port, &frame)),
                Ok(None) => (0, Ok(())),
                Err(error) => (0, Err(error)),
            };
            self.inbox.put_back(bytes, count);
            match is_usable {
                Err(error) => {
                    let volume = &port.volume().name;
                    LOG.info(format_args!("volume {volume}: an iSCSI initiator was disconnected: {error}"));
                    return self.break_off(port);
                }
                Ok(()) if count == 0 => return,
                Ok(()) => {}
            }
        }
    }

    fn take_frame(&mut self, port: &mut Port<'_>, frame: &Frame<'_>) -> Result<(), IscsiError> {
        let header = &frame.header;
        match header.opcode() {
            opcode::DATA_OUT => {
                self.data_out(port, header, frame.data);
                return Ok(());
            }
            opcode::LOGIN => return Err(IscsiError::Unexpected { got: opcode::LOGIN, expected: "no other login" }),
            opcode::SNACK => {
                const SNACK: u8 = 0x03;
                self.reject(header, SNACK);
                return Ok(());
            }
            _ => {}
        }
        // One connection brings the commands in order. What is not next is a repetition or lies beyond the window, and
        // is ignored (RFC 7143, 4.2.2.1).
        if !header.is_immediate() {
            let is_next = header.command_number() == self.session.command_number;
            let is_in_window = self.command_max.wrapping_sub(header.command_number()) < COMMANDS_MAX as u32;
            if !is_next || !is_in_window {
                return Ok(());
            }
            self.session.command_number = self.session.command_number.wrapping_add(1);
        }
        match header.opcode() {
            opcode::COMMAND => self.command(port, header, frame.data),
            opcode::NOP_OUT => self.ping(header, frame.data),
            opcode::TASK_MANAGEMENT => self.manage(port, header),
            opcode::TEXT => self.text(header, frame.data),
            opcode::LOGOUT => self.logout(port, header),
            _ => {
                const NOT_SUPPORTED: u8 = 0x05;
                self.reject(header, NOT_SUPPORTED);
            }
        }
        Ok(())
    }

    /// Adds the session's numbers to a header: its own number if it is an answer, and the range of expected commands.
    fn number(&mut self, header: &mut Header, is_answer: bool) {
        header.set_u32(24, self.session.status_number);
        if is_answer {
            self.session.status_number = self.session.status_number.wrapping_add(1);
        }
        let last = self.session.command_number.wrapping_add(self.tasks.free()).wrapping_sub(1);
        // Serial numbers: it is later if it is less than half of all numbers ahead.
        if last.wrapping_sub(self.command_max) < 1 << 31 {
            self.command_max = last;
        }
        header.set_u32(28, self.session.command_number);
        header.set_u32(32, self.command_max);
    }

    /// Answers with a PDU that has a number of its own.
    fn answer(&mut self, mut header: Header, data: &[u8]) {
        self.number(&mut header, true);
        self.outbox.push(header, data);
    }

    fn reject(&mut self, rejected: &Header, reason: u8) {
        let mut header = Header::new(opcode::REJECT, NO_TAG);
        header.0[2] = reason;
        self.answer(header, &rejected.0);
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
        self.abort_all(port);
        self.target.unit().session_ended(self.nexus);
        if self.inbox.is_receiving() {
            port.cancel(TAG_RECEIVE);
        }
    }

    /// Stops reading. Requests under way are answered, unless a session aborts them: so the unit still knows the
    /// session.
    fn close(&mut self, port: &mut Port<'_>) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Closing;
        self.abort_unfed(port);
        self.target.unit().session_ends(self.nexus);
        if self.inbox.is_receiving() {
            port.cancel(TAG_RECEIVE);
        }
    }

    fn received(&mut self, port: &mut Port<'_>, result: Result<u32, Errno>) {
        self.silence.heard();
        self.inbox.received(*result.as_ref().unwrap_or(&0) as usize);
        match result {
            _ if self.phase != Phase::Open => {}
            Ok(0) => self.break_off(port),
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => self.take_frames(port),
            Err(error) => {
                tracing::debug!(volume = port.volume().name, %error, "an iSCSI connection failed");
                self.break_off(port);
            }
        }
    }
}

impl FrontEnd for IscsiConnection {
    fn buffer_classes(&self) -> &[BufferClass] {
        tasks::BUFFER_CLASSES
    }

    fn started(&mut self, port: &mut Port<'_>) {
        if let Err(error) = prepare(&self.socket) {
            let volume = &port.volume().name;
            LOG.info(format_args!("volume {volume}: cannot set up an iSCSI socket: {error}"));
            self.break_off(port);
        }
        // That they have ended their connections may not have heard yet.
        let before = self.target.attached(self.nexus, port.number());
        port.abandon_requests_of(&before);
    }

    fn ring_completed(&mut self, port: &mut Port<'_>, tag: u32, result: Result<u32, Errno>, _has_more: bool) {
        if tag == TAG_RECEIVE {
            return self.received(port, result);
        }
        // Of a connection that is closed nothing more is sent.
        let result = if self.phase == Phase::Broken { Err(Errno::PIPE) } else { result };
        if let Err(error) = self.outbox.sent(port, result)
            && self.phase != Phase::Broken
        {
            tracing::debug!(volume = port.volume().name, %error, "an iSCSI connection failed");
            self.break_off(port);
        }
    }

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        self.step_ended(port, finished);
    }

    fn turn_ended(&mut self, port: &mut Port<'_>) {
        self.take_frames(port);
        if self.phase == Phase::Broken {
            return;
        }
        self.answer_logout();
        // What came and was not taken, because answers wait, is taken when they have gone. Until then nothing is
        // received, or it would lie there until the initiator says more.
        let has_taken_all = !self.outbox.is_full();
        self.outbox.send(port, self.socket.as_raw_fd());
        if self.phase == Phase::Open && has_taken_all {
            self.inbox.receive(port, self.socket.as_raw_fd());
        }
    }

    fn has_vanished(&mut self) -> bool {
        let has_vanished = self.phase != Phase::Broken && self.silence.is_final(&self.socket);
        if has_vanished {
            LOG.info("an iSCSI initiator vanished without a logout");
        }
        has_vanished
    }

    fn stop(&mut self, port: &mut Port<'_>) {
        self.close(port);
    }

    fn cut(&mut self, port: &mut Port<'_>) {
        self.break_off(port);
    }

    fn is_finished(&self) -> bool {
        self.phase != Phase::Open
            && self.tasks.is_empty()
            && !self.inbox.is_receiving()
            && (self.outbox.is_empty() || self.phase == Phase::Broken)
    }
}

impl Drop for IscsiConnection {
    /// Also when it never began.
    fn drop(&mut self) {
        self.target.unit().session_ended(self.nexus);
        self.target.detached(self.nexus);
    }
}
