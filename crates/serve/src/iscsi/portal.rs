//! Where initiators connect: login, discovery, and the hand-over of a session to its volume.
//!
//! As with NBD, a connection has a short-lived thread until it is known what it wants. A discovery session is conducted
//! on it to its end. A normal one is handed over after its login, with no byte received of what follows.

use super::iscsi_connection::IscsiConnection;
use super::target::{Target, Targets};
use crate::connection::{Listener, Patience, Peer, Serving};
use plimsoll_linux::PeerLog;
use plimsoll_protocols::iscsi::chap::{CHALLENGE_BYTES, Challenge};
use plimsoll_protocols::iscsi::error::IscsiError;
use plimsoll_protocols::iscsi::login::{LoggedIn, Login, LoginStep};
use plimsoll_protocols::iscsi::pdu::{Digests, Frame, HEADER_BYTES, Header, NO_TAG, encode, opcode};
use plimsoll_protocols::iscsi::text;
use plimsoll_protocols::scsi::NexusId;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tracing::debug;

/// A session after its login.
pub struct Session {
    /// Its connection.
    pub socket: OwnedFd,
    /// The connection's own address, as initiators write it; none on a Unix socket.
    pub portal: Option<String>,
    /// What it is a session of.
    pub target: Arc<Target>,
    /// Its number there.
    pub nexus: NexusId,
    /// What was agreed on.
    pub negotiated: LoggedIn,
}

impl Session {
    /// The front end that conducts it.
    pub fn connection(self) -> IscsiConnection {
        IscsiConnection::new(self.socket, self.portal, self.target, self.nexus, self.negotiated)
    }
}

/// Serves `targets` on `listener`, on threads of its own, until the answer is dropped. `handler` gets each session
/// after its login; it should hand it on and return.
///
/// # Errors
/// The system has no thread or descriptor for it.
pub fn serve<F>(listener: Listener, targets: Targets, handler: F) -> io::Result<Serving>
where
    F: Fn(Session, Peer) + Send + Sync + 'static,
{
    let (address, log) = (listener.address().clone(), PeerLog::new());
    listener.serve_with("iscsi", move |socket, peer, patience| {
        let mut wire = Wire { socket: &socket, patience, digests: Digests::default(), has_heard: Cell::new(false) };
        let portal = match portal(&socket) {
            Ok(portal) => portal,
            // A peer that has gone already has no address any more.
            Err(error) => return debug!("{address}: {peer}: {error}"),
        };
        match log_in(&mut wire, &targets, portal.as_deref()) {
            Ok(None) => debug!("{address}: {peer} has ended without a session"),
            Ok(Some(negotiated)) => {
                let name = negotiated.target.as_deref().unwrap_or_default();
                let Some(target) = targets.find(name) else { return };
                match target.session_began(&negotiated.port, &socket) {
                    Ok(nexus) => handler(Session { socket, portal, target, nexus, negotiated: *negotiated }, peer),
                    Err(error) => log.warn(format_args!("{address}: {peer}: {error}")),
                }
            }
            // A health check, for example, sees that a connection comes about, and closes it.
            Err(error) if !wire.has_heard.get() => debug!("{address}: {peer} sent nothing: {error}"),
            Err(error) => log.warn(format_args!("{address}: login of {peer} failed: {error}")),
        }
    })
}

/// The address of our end, as initiators write it. A Unix socket has none: an initiator reaches it through a proxy, the
/// address of which is not known here.
fn portal(socket: &OwnedFd) -> io::Result<Option<String>> {
    let name = rustix::net::getsockname(socket)?;
    Ok(std::net::SocketAddr::try_from(name).ok().map(|address| address.to_string()))
}

/// A socket with PDUs, as long as no other thread reads from it.
struct Wire<'connection> {
    socket: &'connection OwnedFd,
    patience: Patience<'connection>,
    digests: Digests,
    /// Something has come.
    has_heard: Cell<bool>,
}

impl Wire<'_> {
    fn fill(&self, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let mut filled = bytes.len();
        bytes.resize(length, 0);
        while filled < length {
            match self.patience.receive(self.socket, &mut bytes[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    self.has_heard.set(true);
                    filled += count;
                }
            }
        }
        Ok(())
    }

    /// The next PDU, and not a byte more.
    fn receive(&self) -> io::Result<(Header, Vec<u8>)> {
        let invalid = |error: IscsiError| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut bytes = Vec::new();
        let mut length = HEADER_BYTES;
        loop {
            self.fill(&mut bytes, length)?;
            match Frame::decode(&bytes, text::TEXT_BYTES_MAX as u32, self.digests).map_err(invalid)? {
                Some(frame) => return Ok((frame.header, frame.data.to_vec())),
                None => length = Frame::length(&bytes, self.digests),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.patience.send(self.socket, bytes)
    }
}

/// Conducts a login, and a whole session of discovery. `None` if there is nothing to hand over.
fn log_in(wire: &mut Wire<'_>, targets: &Targets, portal: Option<&str>) -> io::Result<Option<Box<LoggedIn>>> {
    let mut login = Login::new(challenge()?);
    loop {
        let (header, data) = wire.receive()?;
        let answer = login.advance(&header, &data, &|name| targets.look_up(name));
        let (answer, step) = answer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        wire.send(&answer)?;
        match step {
            LoginStep::GoesOn => {}
            LoginStep::Refused(error) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, error)),
            LoginStep::LoggedIn(negotiated) if negotiated.target.is_some() => return Ok(Some(negotiated)),
            LoginStep::LoggedIn(negotiated) => {
                wire.digests = negotiated.parameters.digests;
                discover(wire, *negotiated, targets, portal)?;
                return Ok(None);
            }
        }
    }
}

fn challenge() -> io::Result<Challenge> {
    let mut random = [0; CHALLENGE_BYTES + 1];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut random)?;
    let (identifier, bytes) = random.split_first().expect("it is not empty");
    Ok(Challenge { identifier: *identifier, bytes: bytes.try_into().expect("as many as a challenge has") })
}

/// A session that only asks which targets there are.
fn discover(wire: &Wire<'_>, mut session: LoggedIn, targets: &Targets, portal: Option<&str>) -> io::Result<()> {
    // What does not fit into one PDU is fetched with further requests.
    let mut left = Vec::new();
    loop {
        let (request, data) = wire.receive()?;
        let answers = match request.opcode() {
            opcode::TEXT => opcode::TEXT_RESPONSE,
            opcode::LOGOUT => opcode::LOGOUT_RESPONSE,
            opcode::NOP_OUT if request.initiator_tag() == NO_TAG => continue,
            opcode::NOP_OUT => opcode::NOP_IN,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a request that is neither text nor logout in \
                                                                        a discovery session",
                ));
            }
        };
        if !request.is_immediate() {
            session.command_number = session.command_number.wrapping_add(1);
        }
        let mut answer = Header::new(answers, request.initiator_tag());
        let mut reply = Vec::new();
        if answers == opcode::TEXT_RESPONSE {
            if request.u32(20) == NO_TAG {
                left = find(targets, &data, portal);
            }
            let length = left.len().min(session.parameters.initiator_data_bytes_max as usize);
            reply = left.drain(..length).collect();
            answer.0[1] = if left.is_empty() { 0x80 } else { 0x40 };
            answer.set_u32(20, if left.is_empty() { NO_TAG } else { 1 });
        } else if answers == opcode::NOP_IN {
            answer.set_u32(20, NO_TAG);
        }
        answer.set_u32(24, session.status_number);
        session.status_number = session.status_number.wrapping_add(1);
        answer.set_u32(28, session.command_number);
        answer.set_u32(32, session.command_number);
        wire.send(&encode(answer, &reply, wire.digests))?;
        if answers == opcode::LOGOUT_RESPONSE {
            return Ok(());
        }
    }
}

/// The answer to the text of a discovery.
fn find(targets: &Targets, data: &[u8], portal: Option<&str>) -> Vec<u8> {
    let mut reply = Vec::new();
    for (key, value) in text::decode(data).unwrap_or_default() {
        match (key, value) {
            ("SendTargets", "All" | "") => reply.extend(targets.discover(None, portal)),
            ("SendTargets", name) => reply.extend(targets.discover(Some(name), portal)),
            _ => text::push(&mut reply, key, "NotUnderstood"),
        }
    }
    reply
}
