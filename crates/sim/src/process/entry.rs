//! How a process enters a call and returns from it.

use super::Process;
use crate::fs::Inode;
use crate::trace::Event;
use plimsoll_core::{Call, CallDecision, CallKind};

impl Process {
    /// Enters a call: counts, asks the scheduler, waits if held, and takes the processor time of the entry.
    pub(crate) async fn enter(&self, kind: CallKind, inode: &Inode, offset: u64, length: u64) -> Call {
        let machine = self.machine();
        let (id, now) = (machine.gate.enter(), machine.now());
        let (account, thread, file) = (self.session(), self.thread(), inode.number.file());
        let call = Call { id, account, thread, kind, file, offset, length, entered: now };
        machine.trace.record(Event::CallEntered, now, file.0, length);
        let decision = machine.block.borrow_mut().scheduler.call_entered(now, &call);
        machine.mark_unsettled();
        if decision == CallDecision::Hold {
            machine.gate.hold(id, machine.executor.current()).await;
        }
        self.compute(machine.config.cpu.call).await;
        call
    }

    /// Returns from a call that moved `bytes`.
    pub(crate) fn leave(&self, call: &Call, bytes: u64) {
        let machine = self.machine();
        let now = machine.now();
        machine.gate.leave();
        machine.trace.record(Event::CallReturned, now, call.file.0, now.since(call.entered).as_nanos());
        machine.block.borrow_mut().scheduler.call_returned(now, call);
        machine.mark_unsettled();
        self.statistics().record(call.kind, now, now.since(call.entered), bytes);
    }
}
