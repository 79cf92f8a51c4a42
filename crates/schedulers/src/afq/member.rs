//! What is known of an account, and of the fsyncs that go together.

use crate::request_queues::Queue;
use plimsoll_core::{CallId, CallKind, Time};
use std::collections::VecDeque;

/// Calls are held in two queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// write and whatever else changes files.
    Modify = 0,
    /// fsync, fdatasync.
    Sync = 1,
}

impl Gate {
    pub(super) fn of(kind: CallKind) -> Option<Gate> {
        match kind {
            CallKind::Read => None,
            CallKind::Fsync | CallKind::Fdatasync => Some(Gate::Sync),
            _ => Some(Gate::Modify),
        }
    }
}

/// An account. Costs are in normalised bytes.
pub(super) struct Member {
    pub(super) reads: Queue,
    pub(super) reads_at_device: u32,
    /// By [`Gate`]: calls at the entry, with their deposits, and how many are under way.
    pub(super) held: [VecDeque<(CallId, u64)>; 2],
    pub(super) inside: [u32; 2],
    /// Charged for calls under way, and not yet for what they did.
    pub(super) deposit: u64,
    /// Charged for dirty pages that are not yet written.
    pub(super) owed: u64,
    /// Calls that changed files since the last commit.
    pub(super) joined: u64,
    /// When it last made something dirty that was clean, and when its last read or fsync was done.
    pub(super) wrote: Time,
    pub(super) done: Time,
    /// Whether it came back soon the last time.
    pub(super) comes_back: bool,
    /// Until when it contends, if nothing happens.
    pub(super) contends_until: Time,
}

impl Member {
    /// An account that does nothing.
    pub(super) fn new() -> Member {
        Member {
            reads: Queue::EMPTY,
            reads_at_device: 0,
            held: [VecDeque::new(), VecDeque::new()],
            inside: [0; 2],
            deposit: 0,
            owed: 0,
            joined: 0,
            wrote: Time::ZERO,
            done: Time::ZERO,
            comes_back: false,
            contends_until: Time::ZERO,
        }
    }

    pub(super) fn is_holding(&self, gate: Gate) -> bool {
        !self.held[gate as usize].is_empty()
    }

    /// Whether it waits for the disk, or will not go on without it.
    pub(super) fn is_waiting(&self) -> bool {
        let reads = !self.reads.is_empty() || self.reads_at_device > 0;
        reads || self.is_holding(Gate::Modify) || self.is_holding(Gate::Sync) || self.inside[Gate::Sync as usize] > 0
    }

    /// Whether it has nothing under way, and contends because it will come back.
    pub(super) fn is_lingering(&self) -> bool {
        self.contends_until < Time::MAX && self.inside[Gate::Modify as usize] == 0
    }
}

/// Fsyncs that go together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) began: Time,
    /// Fsyncs under way.
    pub(super) inside: u32,
    /// When the next may begin, if all are back.
    pub(super) gathered: Time,
}
