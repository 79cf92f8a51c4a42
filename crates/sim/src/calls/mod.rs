//! System calls: the gate that every call passes, and what each does.
//!
//! A call enters ([`plimsoll_core::Scheduler::call_entered`]); the scheduler admits it or holds it until it names it
//! among the released. Then the call does its work and returns. Everything that waits inside a call (for the device, a
//! lock, a throttled dirtier's pause) is part of its latency; so is being held.
//!
//! Calls entered = calls returned + calls inside, held ones among them.

mod direct;
pub mod metadata;
pub mod names;
pub mod read;
pub mod read_ahead;
pub mod write;

use crate::executor::{Executor, TaskId};
use crate::fs::Inode;
use crate::process::Process;
use crate::trace::Event;
use plimsoll_core::{Call, CallDecision, CallId, CallKind, Scheduler, Time};
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

impl Process {
    /// Enters a call: counts, asks the scheduler, waits if held, and takes the processor time of the entry.
    pub(crate) async fn enter(&self, kind: CallKind, inode: &Inode, offset: u64, length: u64) -> Call {
        let (machine, gate) = (self.machine(), &self.machine().gate);
        let id = CallId(gate.entered.get());
        gate.entered.set(id.0 + 1);
        gate.inside.set(gate.inside.get() + 1);
        let now = machine.now();
        let (account, thread, file) = (self.session(), self.thread(), inode.number.file());
        let call = Call { id, account, thread, kind, file, offset, length, entered: now };
        machine.trace.record(Event::CallEntered, now, file.0, length);
        let decision = machine.block.borrow_mut().scheduler.call_entered(now, &call);
        machine.mark_unsettled();
        if decision == CallDecision::Hold {
            gate.held.borrow_mut().insert(id, machine.executor.current());
            Held { gate, call: id }.await;
        }
        self.compute(machine.config.cpu.call).await;
        call
    }

    /// Returns from a call that moved `bytes`.
    pub(crate) fn leave(&self, call: &Call, bytes: u64) {
        let (machine, gate) = (self.machine(), &self.machine().gate);
        let now = machine.now();
        gate.returned.set(gate.returned.get() + 1);
        gate.inside.set(gate.inside.get() - 1);
        machine.trace.record(Event::CallReturned, now, call.file.0, now.since(call.entered).as_nanos());
        machine.block.borrow_mut().scheduler.call_returned(now, call);
        machine.mark_unsettled();
        self.statistics().record(call.kind, now, now.since(call.entered), bytes);
    }
}
