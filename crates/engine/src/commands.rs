//! What other threads want an engine to do between two turns.
//!
//! **Rule.** A list under a lock that the engine only tries. A control thread that has the lock puts a command in and
//! wakes the engine afterwards. So what the engine does not get now it is told of once more. Why it may not wait for
//! them: [`basket`](super::basket). Control threads may wait for each other. **Complication.** An engine that has ended
//! takes nothing any more. What is in the list then is dropped, and a later command is refused. So no thread waits for
//! an answer that does not come.

use super::turn::Engine;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

/// What the engine's thread is to do between two turns.
pub(super) type Command = Box<dyn FnOnce(&mut Engine) + Send>;

struct Shared {
    /// `None`: the engine has ended.
    waiting: Mutex<Option<Vec<Command>>>,
    /// No thread is left that could send one.
    is_over: AtomicBool,
    wake: OwnedFd,
}

impl Shared {
    fn wake(&self) {
        // An eventfd that is full or has lost its reader needs no more waking.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The other threads' end. When it is dropped, the engine hears that no thread is left.
pub(super) struct Sender(Arc<Shared>);

/// The engine's end.
pub(super) struct Receiver(Arc<Shared>);

/// Both ends.
pub(super) fn commands() -> io::Result<(Sender, Receiver)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let shared = Shared { waiting: Mutex::new(Some(Vec::new())), is_over: AtomicBool::new(false), wake };
    let shared = Arc::new(shared);
    Ok((Sender(shared.clone()), Receiver(shared)))
}

impl Sender {
    /// Sends a command, which is dropped if the engine ends before it comes to it; says whether it has not ended yet.
    pub(super) fn send(&self, command: Command) -> bool {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(commands) = &mut *waiting else { return false };
        commands.push(command);
        drop(waiting);
        self.0.wake();
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.is_over.store(true, Release);
        self.0.wake();
    }
}

impl Receiver {
    /// Readable when something has come, until [`take`](Self::take).
    pub(super) fn wake_fd(&self) -> RawFd {
        self.0.wake.as_raw_fd()
    }

    /// What has come, in its order, and whether nothing comes any more. Waits for no thread.
    pub(super) fn take(&self) -> (Vec<Command>, bool) {
        // Before looking. The count says nothing that the list does not.
        let _ = rustix::io::read(&self.0.wake, &mut [0u8; 8]);
        // A sender that is over has sent everything before, and has no lock any more.
        let is_over = self.0.is_over.load(Acquire);
        let taken = self.0.waiting.try_lock().ok().and_then(|mut waiting| waiting.as_mut().map(std::mem::take));
        (taken.unwrap_or_default(), is_over)
    }
}

impl Drop for Receiver {
    /// The engine has ended.
    fn drop(&mut self) {
        let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Behind the lock: what they hold may belong to any part of the program.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(receiver: &Receiver) -> bool {
        let mut fds = [PollFd::new(&receiver.0.wake, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    fn nothing() -> Command {
        Box::new(|_| {})
    }

    /// A thread is putting one in, and stays there. Broken on purpose and seen red: the engine waits for the lock (a
    /// test that hangs).
    /// Promise: volume-no-spinning.
    #[test]
    fn whoever_takes_waits_for_nobody_and_is_told_once_more() {
        let (sender, receiver) = commands().unwrap();
        let putting = sender.0.waiting.lock().unwrap();
        assert_eq!((receiver.take().0.len(), is_readable(&receiver)), (0, false));
        drop(putting);
        assert!(sender.send(nothing()) && sender.send(nothing()) && is_readable(&receiver));
        let (taken, is_over) = receiver.take();
        assert_eq!((taken.len(), is_over, is_readable(&receiver)), (2, false, false));
        assert!(sender.send(nothing()));
        drop(sender);
        let (taken, is_over) = receiver.take();
        assert_eq!((taken.len(), is_over), (1, true), "what was sent before comes first");
    }

    /// Broken on purpose and seen red: an engine that has ended leaves the list as it is.
    /// Promise: volume-panic.
    #[test]
    fn an_engine_that_has_ended_refuses_and_drops_what_it_has_not_done() {
        let (sender, receiver) = commands().unwrap();
        let content = Arc::new(());
        let held = content.clone();
        assert!(sender.send(Box::new(move |_| drop(held))));
        drop(receiver);
        assert_eq!((Arc::strong_count(&content), sender.send(nothing())), (1, false));
    }
}
