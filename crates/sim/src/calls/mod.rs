//! System calls: the gate that every call passes, and what each does.
//!
//! A call enters ([`plimsoll_core::Scheduler::call_entered`]); the scheduler admits it or holds it until it names it
//! among the released. Then the call does its work and returns. Everything that waits inside a call (for the device, a
//! lock, a throttled dirtier's pause) is part of its latency; so is being held.
//!
//! Calls entered = calls returned + calls inside, held ones among them.

pub mod file;
pub mod names;
pub mod read_ahead;

use crate::executor::{Executor, TaskId};
use plimsoll_core::{CallId, Scheduler, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls between entry and return.
#[derive(Default)]
pub(crate) struct Gate {
    entered: Cell<u64>,
    returned: Cell<u64>,
    inside: Cell<u64>,
    held: RefCell<BTreeMap<CallId, TaskId>>,
    released: RefCell<Vec<CallId>>,
}

impl Gate {
    /// A call enters: gives its number.
    pub(crate) fn enter(&self) -> CallId {
        let call = CallId(self.entered.get());
        self.entered.set(call.0 + 1);
        self.inside.set(self.inside.get() + 1);
        call
    }

    /// The call of `task`, which the scheduler holds, waits until it is released.
    pub(crate) async fn hold(&self, call: CallId, task: TaskId) {
        self.held.borrow_mut().insert(call, task);
        Held { gate: self, call }.await;
    }

    /// A call returns.
    pub(crate) fn leave(&self) {
        self.returned.set(self.returned.get() + 1);
        self.inside.set(self.inside.get() - 1);
    }

    /// Lets the calls go on that the scheduler names.
    pub(crate) fn release(&self, now: Time, scheduler: &mut dyn Scheduler, executor: &Executor) {
        let mut released = self.released.borrow_mut();
        scheduler.released_calls(now, &mut released);
        for call in released.drain(..) {
            let task = self.held.borrow_mut().remove(&call);
            executor.wake(task.expect("the scheduler releases calls that it holds, once"));
        }
    }

    pub(crate) fn assert_conserved(&self) {
        assert_eq!(self.entered.get(), self.returned.get() + self.inside.get(), "calls entered = returned + inside");
        assert!(self.held.borrow().len() as u64 <= self.inside.get(), "held calls are inside");
    }
}

struct Held<'a> {
    gate: &'a Gate,
    call: CallId,
}

impl Future for Held<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if self.gate.held.borrow().contains_key(&self.call) { Poll::Pending } else { Poll::Ready(()) }
    }
}
