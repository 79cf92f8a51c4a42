//! A queue from many threads to one that waits for none of them.
//!
//! **Rule.** A list under a lock that the receiver only tries. A sender that has the lock puts an item in and wakes the
//! receiver afterwards. So the receiver is woken once more for an item that it does not get now. Why the receiver may
//! not wait: it may be a real-time thread that has preempted the sender on its own processor. Senders may wait for each
//! other.
//!
//! **Complication.** A receiver that has ended takes nothing any more. What is in the list then is dropped, and a later
//! item is refused. So no sender waits for an answer that does not come.

use crate::wake::WakeEvent;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

struct Shared<T> {
    /// `None`: the receiver has ended.
    waiting: Mutex<Option<VecDeque<T>>>,
    /// Senders that live.
    senders: AtomicUsize,
    wake: WakeEvent,
}

/// The other threads' end; clones are cheap. When the last one is dropped, the receiver hears that nothing comes.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end of the thread that takes what was sent. Its descriptor is readable when something may have come.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Both ends.
///
/// # Errors
/// The process or the system has no descriptor left.
pub fn mailbox<T>() -> io::Result<(Sender<T>, Receiver<T>)> {
    let (waiting, senders) = (Mutex::new(Some(VecDeque::new())), AtomicUsize::new(1));
    let shared = Arc::new(Shared { waiting, senders, wake: WakeEvent::new()? });
    Ok((Sender(shared.clone()), Receiver(shared)))
}

impl<T> Sender<T> {
    /// Sends an item, which is dropped if the receiver ends before it comes to it. O(1).
    ///
    /// # Errors
    /// The receiver has ended: the item comes back.
    pub fn send(&self, item: T) -> Result<(), T> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(items) = &mut *waiting else { return Err(item) };
        items.push_back(item);
        drop(waiting);
        self.0.wake.wake();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Relaxed);
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Release: a receiver that sees no sender sees all that was sent.
        if self.0.senders.fetch_sub(1, Release) == 1 {
            self.0.wake.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// All that has come, in its order, and whether nothing comes any more; not readable until something new comes.
    /// Waits for no thread, and allocates nothing.
    pub fn take(&self) -> (VecDeque<T>, bool) {
        self.clear();
        // Senders that are over have sent everything before, and have no lock any more.
        let is_over = self.0.senders.load(Acquire) == 0;
        let taken = self.0.waiting.try_lock().ok().and_then(|mut waiting| waiting.as_mut().map(std::mem::take));
        (taken.unwrap_or_default(), is_over)
    }

    /// The next item, unless there is none or a sender has the lock just now. O(1).
    pub fn next(&self) -> Option<T> {
        self.0.waiting.try_lock().ok()?.as_mut()?.pop_front()
    }

    /// Makes the descriptor readable once more, for items that [`next`](Self::next) has left.
    pub fn wake_again(&self) {
        self.0.wake.wake();
    }

    /// Makes the descriptor unreadable, until something new comes. Comes before the look at what there is.
    pub fn clear(&self) {
        self.0.wake.clear();
    }
}

impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Behind the lock: items may hold any part of the program, and an item's sender may wait for its answer.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable<T>(receiver: &Receiver<T>) -> bool {
        let mut fds = [PollFd::new(receiver, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    /// A thread is putting one in, and stays there. Broken on purpose and seen red: the receiver waits for the lock (a
    /// test that hangs).
    #[test]
    fn a_receiver_waits_for_no_sender_and_is_told_once_more() {
        let (sender, receiver) = mailbox().unwrap();
        let putting = sender.0.waiting.lock().unwrap();
        assert_eq!((receiver.take().0.len(), is_readable(&receiver)), (0, false));
        assert_eq!(receiver.next(), None);
        drop(putting);
        assert!(sender.send(1).is_ok() && sender.send(2).is_ok() && is_readable(&receiver));
        let (taken, is_over) = receiver.take();
        assert_eq!((taken, is_over, is_readable(&receiver)), ([1, 2].into(), false, false));
        assert!(sender.send(3).is_ok());
        drop(sender);
        let (taken, is_over) = receiver.take();
        assert_eq!((taken, is_over), ([3].into(), true), "what was sent before comes first");
    }

    /// Broken on purpose and seen red: a receiver that has ended leaves the list as it is.
    #[test]
    fn a_receiver_that_has_ended_refuses_and_drops_what_it_has_not_taken() {
        let (sender, receiver) = mailbox().unwrap();
        let content = Arc::new(());
        assert!(sender.send(content.clone()).is_ok());
        drop(receiver);
        assert_eq!((Arc::strong_count(&content), sender.send(content.clone()).is_err()), (1, true));
    }

    /// Planted break: the first sender that goes ends it.
    #[test]
    fn it_is_over_when_the_last_sender_has_gone() {
        let (sender, receiver) = mailbox::<u32>().unwrap();
        let other = sender.clone();
        drop(sender);
        assert!(!receiver.take().1 && other.send(1).is_ok());
        drop(other);
        assert!(is_readable(&receiver));
        assert_eq!(receiver.take(), ([1].into(), true));
    }

    /// Planted break: `wake_again` does nothing.
    #[test]
    fn items_that_are_left_wake_the_receiver_again() {
        let (sender, receiver) = mailbox().unwrap();
        assert!(sender.send(1).is_ok() && sender.send(2).is_ok());
        receiver.clear();
        assert_eq!((receiver.next(), is_readable(&receiver)), (Some(1), false));
        receiver.wake_again();
        assert!(is_readable(&receiver));
        assert_eq!(receiver.next(), Some(2));
    }
}
