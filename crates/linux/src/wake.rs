//! An event by which one thread wakes another that polls.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd (eventfd(2)): readable from [`wake`](Self::wake) until [`clear`](Self::clear). Its count says nothing.
/// Any thread; neither call waits.
#[derive(Debug)]
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Makes one that is not readable, and that a child process does not inherit.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: the process or the system has no descriptor or memory left.
    pub fn new() -> io::Result<WakeEvent> {
        Ok(WakeEvent(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable. O(1); one system call.
    pub fn wake(&self) {
        // An event with a full count is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable. The receiver clears it before it looks for what has come, so that no wake-up is lost.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(event: &WakeEvent) -> bool {
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    /// Planted break: `clear` reads nothing.
    #[test]
    fn it_is_readable_between_wake_and_clear() {
        let event = WakeEvent::new().unwrap();
        event.clear();
        assert!(!is_readable(&event));
        event.wake();
        event.wake();
        assert!(is_readable(&event));
        event.clear();
        assert!(!is_readable(&event));
    }
}
