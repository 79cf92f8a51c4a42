//! A request's view of its time slice: where it may be asked to stop.
//!
//! The thread that runs a request keeps the end of its slice for it. A request passes *checkpoints* between the heavy
//! steps of its work (a checksum, a compression, a large copy). If its slice is spent at one, it gives its thread back
//! and runs again from there.

use super::clock;
use plimsoll_core::Time;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// When the slice of what this thread runs ends; never, where no request is run.
    static ENDS: Cell<Time> = const { Cell::new(Time::MAX) };
    /// The request that was run last stopped at a checkpoint.
    static IS_PREEMPTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the slice of this thread's request is spent; false outside of a request.
pub fn is_slice_spent() -> bool {
    let ends = ENDS.get();
    ends != Time::MAX && clock::now() >= ends
}

/// A place where a request may be preempted. It continues at once, or, if its slice is spent, at its next turn. Outside
/// of an executor's threads it always continues.
///
/// It reads the clock, some 20 ns: once for each heavy step is often enough.
pub fn checkpoint() -> Checkpoint {
    Checkpoint { has_stopped: false, stops_always: false }
}

/// A place where a request stops in any case, and continues at its next turn: for maintenance, between steps that
/// others would wait for. A slice of the maintenance queue ends there if a client's request waits; otherwise it
/// continues at once. Outside of an executor's threads it always continues.
pub fn give_way() -> Checkpoint {
    Checkpoint { has_stopped: false, stops_always: true }
}

/// What [`checkpoint`] and [`give_way`] answer; with a name, for requests that are written as state machines.
#[derive(Debug)]
pub struct Checkpoint {
    has_stopped: bool,
    stops_always: bool,
}

impl Future for Checkpoint {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let stops = if self.stops_always { ENDS.get() != Time::MAX } else { is_slice_spent() };
        if self.has_stopped || !stops {
            return Poll::Ready(());
        }
        self.has_stopped = true;
        // The thread that runs the request sees this, and queues it again: it needs no waking, and is queued once
        // though it is woken. But a future made of several futures polls again only those that were woken.
        IS_PREEMPTED.set(true);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Runs `step` of a request with a slice until `ends`. Also says whether it stopped at a checkpoint.
pub(super) fn within<T>(ends: Time, step: impl FnOnce() -> T) -> (T, bool) {
    ENDS.set(ends);
    IS_PREEMPTED.set(false);
    let outcome = step();
    ENDS.set(Time::MAX);
    (outcome, IS_PREEMPTED.get())
}
