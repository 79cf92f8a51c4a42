//! Waiting for a socket, with an end to the waiting.
//!
//! Sockets stay in blocking mode, for the code that gets them next; every call here passes `DONTWAIT` and waits in
//! poll(2).

use plimsoll_core::{Span, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The system's monotonic clock, for the control plane only: a deadline of a handshake or of a test's client.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::ZERO + Span::from_secs(now.tv_sec as u64) + Span::from_nanos(now.tv_nsec as u64)
}

/// When and why to give up waiting.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'fd> {
    /// Not after this.
    pub deadline: Time,
    /// Not when this has become readable.
    pub stop: Option<BorrowedFd<'fd>>,
}

impl Patience<'_> {
    /// Waits until the socket is ready for one of `wanted` and says for which. An error or the end counts as ready.
    ///
    /// Fails with `TimedOut` after the deadline and with `Interrupted` when told to stop.
    pub(crate) fn wait(&self, socket: BorrowedFd<'_>, wanted: PollFlags) -> io::Result<PollFlags> {
        loop {
            let left = self.deadline.since(now()).as_nanos();
            let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            let stop = self.stop.unwrap_or(socket);
            let stop_wanted = if self.stop.is_some() { PollFlags::IN } else { PollFlags::empty() };
            let mut polled = [PollFd::from_borrowed_fd(socket, wanted), PollFd::from_borrowed_fd(stop, stop_wanted)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) if self.stop.is_some() && !polled[1].revents().is_empty() => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Ok(_) => return Ok(polled[0].revents()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives at least one byte; 0 means that the other side has closed.
    pub(crate) fn receive(&self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((received, _)) => return Ok(received),
                Err(rustix::io::Errno::AGAIN) => self.wait(socket.as_fd(), PollFlags::IN)?,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
        }
    }

    /// Sends everything.
    pub(crate) fn send(&self, socket: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match try_send(socket.as_fd(), bytes)? {
                0 => drop(self.wait(socket.as_fd(), PollFlags::OUT)?),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }
}

/// Sends what the socket takes without waiting; 0 if that is nothing.
pub(crate) fn try_send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}
