//! Threads that have nothing to do: they sleep, and are woken one at a time.
//!
//! **Rule.** A thread that queues a request wakes one sleeper, unless a thread is awake already and looks for work. A
//! thread that finds work and leaves some behind wakes the next. So a burst wakes as many threads as it needs, one
//! after the other, and a single request wakes one.
//!
//! **Why no thread sleeps through a request.** A thread that queues a request first counts it, then looks whether
//! another searches or sleeps. A thread that goes to sleep first says so, then looks once more whether a request is
//! counted. All four steps are sequentially consistent, so one of the two threads sees the other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

#[derive(Default)]
pub(super) struct Idle {
    /// A thread takes the lock when it falls asleep or wakes another, never while all are busy.
    sleepers: Mutex<Vec<Thread>>,
    sleeping: AtomicUsize,
    searching: AtomicUsize,
    /// Sleepers that were woken because something was queued. Written under the lock.
    woken: AtomicU64,
}

impl Idle {
    /// Something was counted. O(1), and two loads while all are busy.
    pub(super) fn wake_one(&self) {
        if self.searching.load(SeqCst) > 0 || self.sleeping.load(SeqCst) == 0 {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = sleepers.pop() else { return };
        self.sleeping.fetch_sub(1, SeqCst);
        self.searching.fetch_add(1, SeqCst);
        self.woken.fetch_add(1, Relaxed);
        drop(sleepers);
        thread.unpark();
    }

    /// Threads that sleep, and how often one of them was woken.
    pub(super) fn figures(&self) -> (usize, u64) {
        (self.sleeping.load(SeqCst), self.woken.load(Relaxed))
    }

    /// Has every sleeper look whether it is over.
    pub(super) fn wake_all(&self) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sleepers.len();
        self.sleeping.fetch_sub(count, SeqCst);
        self.searching.fetch_add(count, SeqCst);
        sleepers.drain(..).for_each(|thread| thread.unpark());
    }

    /// Sleeps until it is woken, unless there is something to do after all. Afterwards it counts as searching.
    pub(super) fn sleep(&self, has_work: impl Fn() -> bool) {
        let me = std::thread::current();
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.push(me.clone());
        self.sleeping.fetch_add(1, SeqCst);
        drop(sleepers);
        loop {
            let is_woken = || !self.is_asleep(&me);
            if is_woken() {
                return;
            }
            if has_work() && self.get_up(&me) {
                return;
            }
            std::thread::park();
        }
    }

    fn is_asleep(&self, me: &Thread) -> bool {
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter().any(|thread| thread.id() == me.id())
    }

    /// Wakes by itself; says whether no other thread had woken it.
    fn get_up(&self, me: &Thread) -> bool {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = sleepers.iter().position(|thread| thread.id() == me.id()) else { return false };
        sleepers.swap_remove(at);
        self.sleeping.fetch_sub(1, SeqCst);
        self.searching.fetch_add(1, SeqCst);
        true
    }

    /// The woken thread has found something, or goes to sleep again.
    pub(super) fn searched(&self) {
        self.searching.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Planted break: it is not looked at once more.
    #[test]
    fn a_thread_that_falls_asleep_after_an_arrival_wakes_by_itself() {
        let idle = Arc::new(Idle::default());
        let (awake, is_awake) = channel();
        let sleeper = idle.clone();
        let thread = std::thread::spawn(move || {
            sleeper.sleep(|| true);
            awake.send(()).unwrap();
        });
        // Long, so that it ends at all where it is broken.
        let is_awake = is_awake.recv_timeout(Duration::from_secs(20)).is_ok();
        idle.wake_all();
        thread.join().unwrap();
        assert!(is_awake);
        assert_eq!((idle.sleeping.load(SeqCst), idle.searching.load(SeqCst)), (0, 1));
    }
}
