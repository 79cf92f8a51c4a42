//! The socket at which listeners are handed over.

use super::state::{OciError, STATE_BYTES_MAX, SeccompState};
use crate::error::GateError;
use crate::passing::{self, DESCRIPTORS_MAX};
use plimsoll_core::{Span, Time};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, SocketType, accept_with, send};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Connections that are not complete. Those beyond wait in the kernel.
const CONNECTIONS_MAX: usize = 16;
const BACKLOG: i32 = 128;
/// How long a state may take to arrive. A runtime sends it in one piece.
const PATIENCE_SECONDS: u64 = 5;
/// What we say when a listener is taken over.
pub(crate) const TAKEN_OVER: &[u8] = b"ok\n";

/// A listener that was handed over.
pub struct Arrival {
    /// What was said of it.
    pub state: SeccompState,
    /// The listener.
    pub listener: OwnedFd,
    /// Who may wait for an answer.
    pub answer: Answer,
}

/// The connection over which a listener came.
pub struct Answer(OwnedFd);

impl Answer {
    /// Says that the listener is taken over, keeper and all. Without it, who waits does not start its command.
    pub fn taken_over(self) {
        // A runtime has hung up by now.
        let _ = send(&self.0, TAKEN_OVER, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

struct Connection {
    socket: OwnedFd,
    text: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    deadline: Time,
}

/// The agent's socket for listeners.
pub struct OciSocket {
    socket: OwnedFd,
    connections: Vec<Connection>,
}

impl OciSocket {
    /// Listens at `path` in place of whoever did before, for those whom `mode` lets connect: 0o600 for runtimes that run as
    /// root, 0o666 if every user may start commands behind a gate.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(path: &Path, mode: u32) -> Result<OciSocket, GateError> {
        let socket = passing::listen(path, SocketType::STREAM, BACKLOG, mode)?;
        Ok(OciSocket { socket, connections: Vec::new() })
    }

    /// What to wait for, beside the socket itself: connections that have not said all.
    pub fn waiting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // With all places taken the socket stays readable, and nothing can be done about it.
        let socket = (self.connections.len() < CONNECTIONS_MAX).then(|| self.socket.as_fd());
        socket.into_iter().chain(self.connections.iter().map(|connection| connection.socket.as_fd()))
    }

    /// Takes what is complete, without waiting. A listener whose state is not understood is lost with it: the runtime sent
    /// nothing that says whose it is.
    ///
    /// # Errors
    /// The socket is none any more.
    pub fn accept(&mut self, now: Time) -> Result<Vec<Result<Arrival, OciError>>, GateError> {
        while self.connections.len() < CONNECTIONS_MAX {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => self.connections.push(Connection {
                    socket,
                    text: Vec::new(),
                    descriptors: Vec::new(),
                    deadline: now + Span::from_secs(PATIENCE_SECONDS),
                }),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(GateError::step("accept a listener")(errno)),
            }
        }
        let mut outcomes = Vec::new();
        for mut connection in std::mem::take(&mut self.connections) {
            match connection.read(now) {
                Ok(false) => self.connections.push(connection),
                Ok(true) => outcomes.push(connection.arrive()),
                Err(error) => outcomes.push(Err(error)),
            }
        }
        Ok(outcomes)
    }
}

impl Connection {
    /// Reads what is there; whether that was all.
    fn read(&mut self, now: Time) -> Result<bool, OciError> {
        let mut piece = [0; 4096];
        loop {
            match passing::receive(self.socket.as_fd(), &mut piece) {
                Ok((bytes, descriptors)) => {
                    self.text.extend(&piece[..bytes]);
                    self.descriptors.extend(descriptors);
                    if bytes == 0 {
                        return Ok(true);
                    }
                    if self.text.len() > STATE_BYTES_MAX || self.descriptors.len() > DESCRIPTORS_MAX {
                        return Err(OciError::Size);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_late = now >= self.deadline;
                    return if is_late { Err(OciError::Late { seconds: PATIENCE_SECONDS }) } else { Ok(false) };
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(OciError::Broken(error)),
            }
        }
    }

    fn arrive(mut self) -> Result<Arrival, OciError> {
        let (state, place) = SeccompState::parse(&self.text, self.descriptors.len())?;
        Ok(Arrival { state, listener: self.descriptors.swap_remove(place), answer: Answer(self.socket) })
    }
}
