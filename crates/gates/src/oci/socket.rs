//! The socket at which listeners are handed over.

use super::state::{OciError, PIECES_MAX, STATE_BYTES_MAX, SeccompState};
use crate::error::GateError;
use crate::passing::{self, DESCRIPTORS_MAX};
use plimsoll_core::{Span, Time};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, SocketType, accept_with, send, shutdown};
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
    /// Which senders may wait for an answer.
    pub answer: Answer,
}

/// The connection over which a listener came.
pub struct Answer(OwnedFd);

impl Answer {
    /// Says that the listener is taken over, keeper and all. Without it, a sender that waits does not start its
    /// command.
    pub fn taken_over(self) {
        // A runtime has hung up by now.
        let _ = send(&self.0, TAKEN_OVER, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

impl Drop for Answer {
    /// Ends the connection, also if a process about to exec has a copy of the descriptor.
    fn drop(&mut self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

struct Connection {
    socket: Answer,
    text: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    pieces: usize,
    deadline: Time,
}

/// The agent's socket for listeners.
pub struct OciSocket {
    socket: OwnedFd,
    connections: Vec<Connection>,
}

impl OciSocket {
    /// Listens at `path`, replacing an earlier agent's socket, for the users that `mode` lets connect. 0o600 is for
    /// runtimes that run as root, 0o666 for every user that may start commands behind a gate.
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
        socket.into_iter().chain(self.connections.iter().map(|connection| connection.socket.0.as_fd()))
    }

    /// Takes what is complete, without waiting. A listener with a state that is not understood is lost with it: the
    /// runtime sent nothing that names its container.
    ///
    /// # Errors
    /// The socket is none any more.
    pub fn accept(&mut self, now: Time) -> Result<Vec<Result<Arrival, OciError>>, GateError> {
        while self.connections.len() < CONNECTIONS_MAX {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => self.connections.push(Connection {
                    socket: Answer(socket),
                    text: Vec::new(),
                    descriptors: Vec::new(),
                    pieces: 0,
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
                Ok(None) => self.connections.push(connection),
                Ok(Some((state, listener))) => {
                    outcomes.push(Ok(Arrival { state, listener, answer: connection.socket }));
                }
                Err(error) => outcomes.push(Err(error)),
            }
        }
        Ok(outcomes)
    }
}

impl Connection {
    /// Reads what is there. The state is complete when its JSON is: runc leaves the connection open.
    fn read(&mut self, now: Time) -> Result<Option<(SeccompState, OwnedFd)>, OciError> {
        let mut piece = [0; 4096];
        loop {
            match passing::receive(self.socket.0.as_fd(), &mut piece) {
                Ok((0, _)) => return self.complete().map(Some),
                Ok((bytes, descriptors)) => {
                    self.text.extend(&piece[..bytes]);
                    self.descriptors.extend(descriptors);
                    self.pieces += 1;
                    self.check_bounds()?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(OciError::Broken(error)),
            }
        }
        match self.complete() {
            Err(error) if error.is_incomplete() && now < self.deadline => Ok(None),
            Err(error) if error.is_incomplete() => Err(OciError::Late { seconds: PATIENCE_SECONDS }),
            outcome => outcome.map(Some),
        }
    }

    fn check_bounds(&self) -> Result<(), OciError> {
        match self.descriptors.len() {
            _ if self.text.len() > STATE_BYTES_MAX => Err(OciError::Size),
            _ if self.pieces > PIECES_MAX => Err(OciError::Pieces),
            got if got > DESCRIPTORS_MAX => Err(OciError::Crowd { got }),
            _ => Ok(()),
        }
    }

    fn complete(&mut self) -> Result<(SeccompState, OwnedFd), OciError> {
        let (state, place) = SeccompState::parse(&self.text, self.descriptors.len())?;
        Ok((state, self.descriptors.swap_remove(place)))
    }
}
