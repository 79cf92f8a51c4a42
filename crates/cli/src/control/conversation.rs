//! One client of the control socket, and how long it is waited for.

use super::protocol::Response;
use plimsoll_linux::WakeEvent;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time after which a client that sends nothing, or does not take its answer, is disconnected.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `socket` is ready for `wanted`; false once the server stops.
///
/// # Errors
/// `TimedOut` when `patience` is over.
pub(super) fn wait(
    socket: &impl AsFd,
    wanted: PollFlags,
    stop: &WakeEvent,
    patience: Option<Duration>,
) -> io::Result<bool> {
    let timeout = patience.and_then(|patience| rustix::event::Timespec::try_from(patience).ok());
    let mut polled = [PollFd::new(socket, wanted), PollFd::new(stop, PollFlags::IN)];
    loop {
        match poll(&mut polled, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(polled[1].revents().is_empty()),
        }
    }
}

/// A client's socket, which does not block. Reading ends, as if the client had closed it, once the server stops.
pub(super) struct Conversation<'server> {
    pub(super) stream: UnixStream,
    pub(super) stop: &'server WakeEvent,
    /// How long the client may say nothing; `None` for as long as it likes.
    pub(super) patience: Option<Duration>,
}

impl Read for Conversation<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match wait(&self.stream, PollFlags::IN, self.stop, self.patience)? {
            true => self.stream.read(buffer),
            false => Ok(0),
        }
    }
}

impl Conversation<'_> {
    /// Sends `response`. An answer to a request from before the server's end still goes out, unless the client does not
    /// take it.
    pub(super) fn send(&mut self, response: &Response) -> io::Result<()> {
        let mut line = serde_json::to_vec(response)?;
        line.push(b'\n');
        let mut rest = &line[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait(&self.stream, PollFlags::OUT, self.stop, Some(PATIENCE))? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
