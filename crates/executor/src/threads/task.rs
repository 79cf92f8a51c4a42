//! One request under way: its future, and where it stands.
//!
//! ```text
//!   queued --> running --> done
//!     ^          |  \
//!     |  woken   |   woken while it runs: queued again
//!     +-- suspended
//! ```
//!
//! A request is in one queue at most, and one thread at most runs it. Only the thread that changes its state from
//! suspended to queued puts it there. Its memory is used again by the next request, so that a server that has seen its
//! busiest hour allocates next to nothing.

use super::Shared;
use crate::{Arrival, Kind};
use plimsoll_core::Time;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

const SUSPENDED: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Woken while it runs.
const WOKEN: u8 = 3;
const DONE: u8 = 4;

/// What of a request is set when it arrives and stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) deadline: Option<Time>,
}

pub(super) struct Task<F> {
    state: AtomicU8,
    /// Taken by the thread that runs it and the thread that ends it, without contention.
    future: Mutex<Option<F>>,
    pub(super) about: About,
    shared: Weak<Shared<F>>,
}

/// How a run ended.
pub(super) enum Ended {
    /// Its future has ended and was dropped; one of both may have panicked.
    Done {
        has_panicked: bool,
    },
    Suspended,
    /// It was woken meanwhile and is to be queued again.
    Again(Arrival),
}

/// Does a step of a request, which may panic: `None` then, and the caller continues.
fn contained<T>(step: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(step)) {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    // What was thrown may throw when it is dropped. Then that is left lying.
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(thrown);
    }
    None
}

impl<F: Future<Output = ()> + Send + 'static> Task<F> {
    pub(super) fn new(future: F, about: About, shared: &Arc<Shared<F>>) -> Arc<Task<F>> {
        let (state, shared) = (AtomicU8::new(QUEUED), Arc::downgrade(shared));
        Arc::new(Task { state, future: Mutex::new(Some(future)), about, shared })
    }

    /// Makes it the next request, if no other thread has it any more.
    pub(super) fn renew(self: &mut Arc<Task<F>>, future: F, about: About) -> Result<(), F> {
        let Some(task) = Arc::get_mut(self) else { return Err(future) };
        *task.state.get_mut() = QUEUED;
        *task.future.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(future);
        task.about = about;
        Ok(())
    }

    /// Runs it until it is done, waits, or stops at a checkpoint, which `step` reports. It was taken out of a queue.
    /// A panic, while it runs or when it is dropped, ends the request and nothing else.
    pub(super) fn run(
        self: &Arc<Task<F>>,
        step: impl FnOnce(&mut dyn FnMut() -> Poll<()>) -> (Poll<()>, bool),
    ) -> Ended {
        // Acquire: this run sees whatever was done before the request was woken while it waited.
        self.state.swap(RUNNING, AcqRel);
        let waker = Waker::from(self.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_panicked = false;
        let (outcome, is_preempted) = step(&mut || {
            let Some(future) = future.as_mut() else { return Poll::Ready(()) };
            // SAFETY: the future lies in an `Arc` that is never taken apart while there is a future in it: `renew`, the
            // only other one to reach it, needs that it has ended. It is dropped where it is.
            let future = unsafe { Pin::new_unchecked(future) };
            // What it leaves behind when it panics is its own: no thread polls it again.
            contained(|| future.poll(&mut context)).unwrap_or_else(|| {
                has_panicked = true;
                Poll::Ready(())
            })
        });
        if outcome.is_ready() {
            has_panicked |= contained(|| *future = None).is_none();
            self.state.store(DONE, Relaxed);
            return Ended::Done { has_panicked };
        }
        drop(future);
        if is_preempted {
            // Whether it was woken meanwhile, as its checkpoint has done, changes nothing: it is queued.
            self.state.swap(QUEUED, AcqRel);
            return Ended::Again(Arrival::Preempted);
        }
        match self.state.compare_exchange(RUNNING, SUSPENDED, AcqRel, Acquire) {
            Ok(_) => Ended::Suspended,
            Err(_) => {
                self.state.swap(QUEUED, AcqRel);
                Ended::Again(Arrival::Resumed)
            }
        }
    }

    /// Ends it without running it any more.
    pub(super) fn give_up(&self) {
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        contained(|| *future = None);
        self.state.store(DONE, Relaxed);
    }
}

/// A request without a waker is over: it waited for an event that cannot come any more.
impl<F> Drop for Task<F> {
    fn drop(&mut self) {
        let future = self.future.get_mut().unwrap_or_else(PoisonError::into_inner);
        if future.is_none() {
            return;
        }
        contained(|| *future = None);
        if let Some(shared) = self.shared.upgrade() {
            shared.alive.fetch_sub(1, Release);
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Wake for Task<F> {
    fn wake(self: Arc<Task<F>>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Task<F>>) {
        // Written in any case: then the next run sees what was done before it was woken.
        let woken = |state| match state {
            SUSPENDED => Some(QUEUED),
            RUNNING => Some(WOKEN),
            other => Some(other),
        };
        let is_suspended = self.state.fetch_update(AcqRel, Acquire, woken) == Ok(SUSPENDED);
        if is_suspended && let Some(shared) = self.shared.upgrade() {
            shared.queue(self.clone(), Arrival::Resumed);
        }
    }
}
