//! The trait that every scheduler implements, with handlers at three levels.
//!
//! ```text
//!   process            call_entered -> Admit | Hold        call_returned
//!      |                    released_calls <- held calls that may go on
//!   page cache         pages_dirtied                       pages_freed
//!      |
//!   block layer        request_added -> next(now) -> Now(request) | NotBefore(t) | Nothing -> request_completed
//! ```
//!
//! The block level is **pulled**: after every event the host asks [`Scheduler::next`] until the answer is not a
//! request. "Not before t" is how limits and idling are said: the host asks again at t, or at the next event if that is
//! sooner.
//!
//! Every handler but those of the block level does nothing by default. So a block scheduler implements three functions
//! and a split-level scheduler the levels that it uses (split-level paper, section 4.2 and table 2).
//!
//! The rules that all schedulers keep, and that the conformance suite checks, are in `docs/schedulers/README.md`.

use crate::account::{Account, AccountId, Deadlines};
use crate::call::{Call, CallId, FileId};
use crate::cause::CauseSet;
use crate::request::{BlockRequest, Completion};
use crate::time::{Span, Time};

/// What a scheduler answers to a call at its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// The call may begin.
    Admit,
    /// The process waits at the entry until [`Scheduler::released_calls`] names the call.
    Hold,
}

/// What [`Scheduler::next`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Give this request to the device now; it leaves the scheduler until it completes.
    Now(BlockRequest),
    /// Nothing may go before this time; it lies in the future.
    NotBefore(Time),
    /// Nothing can go until another event comes.
    Nothing,
}

/// A stretch of pages of one file changed its state in the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageEvent {
    /// The file.
    pub file: FileId,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, a whole number of pages.
    pub length: u64,
    /// The accounts that dirtied the pages now (dirtied), or that the pages belonged to (freed).
    pub causes: CauseSet,
    /// The accounts that had dirtied them before, not yet written; empty if they were clean.
    pub previous: CauseSet,
}

/// What a scheduler would like the host to do besides dispatching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Start writing the file's dirty pages, at most so many bytes, without waiting for them.
    StartWriteback {
        /// The file.
        file: FileId,
        /// Bytes at the most.
        bytes_max: u64,
    },
    /// Have the file system's journal commit what has joined it, now. A host that cannot does nothing.
    Commit,
    /// Ask `released_calls` and `wishes` again at this time.
    WakeAt(Time),
}

/// A scheduler: a pure state machine that owns the order of one device's I/O.
///
/// Time never goes backwards from one handler to the next. Handlers allocate nothing on the hot path: queues are
/// reserved when accounts open and grow by doubling, answers go into buffers that the caller owns.
pub trait Scheduler: Send {
    /// The name it has in the registry and in configuration files.
    fn name(&self) -> &'static str;

    /// A pool or a session opened. Parents open before their children; the root, which stands for the device, first.
    fn account_opened(&mut self, now: Time, account: &Account) {
        let _ = (now, account);
    }

    /// An administrator changed what an account was promised.
    fn account_changed(&mut self, now: Time, account: &Account) {
        let _ = (now, account);
    }

    /// An account closed. Nothing of it is queued or outstanding, and it has no children.
    fn account_closed(&mut self, now: Time, account: AccountId) {
        let _ = (now, account);
    }

    /// Whether the scheduler starts the writeback of all dirty pages, by [`Wish::StartWriteback`]. Then the host starts
    /// no flusher of its own (split-level paper, sections 4.2 and 7.1.2). Constant.
    fn owns_writeback(&self) -> bool {
        false
    }

    /// The host allows at most so many bytes of dirty memory. Beyond that it makes writers wait by itself. Told before
    /// anything is dirty, and again when it changes.
    fn dirty_memory_limited(&mut self, now: Time, bytes_max: u64) {
        let _ = (now, bytes_max);
    }

    /// A single file was promised deadlines, which take precedence over those of its accounts. A deadline of `None`
    /// stays with the account. Told again when they change; a file with none at all is an ordinary one.
    fn file_promised(&mut self, now: Time, file: FileId, deadlines: &Deadlines) {
        let _ = (now, file, deadlines);
    }

    /// A process entered a system call.
    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        let _ = (now, call);
        CallDecision::Admit
    }

    /// A call that had been admitted or released returned.
    fn call_returned(&mut self, now: Time, call: &Call) {
        let _ = (now, call);
    }

    /// Appends the held calls that may go on.
    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        let _ = (now, released);
    }

    /// Pages became dirty, or dirty ones were dirtied again.
    fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        let _ = (now, event);
    }

    /// Dirty pages were deleted before they were written.
    fn pages_freed(&mut self, now: Time, event: &PageEvent) {
        let _ = (now, event);
    }

    /// A request arrived; the scheduler keeps it until `next` answers with it.
    fn request_added(&mut self, now: Time, request: BlockRequest);

    /// What should go to the device now.
    fn next(&mut self, now: Time) -> Dispatch;

    /// The device finished a request.
    fn request_completed(&mut self, now: Time, completion: &Completion) {
        let _ = (now, completion);
    }

    /// Appends what the scheduler would like the host to do.
    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let _ = (now, wishes);
    }

    /// Time by which all reserves together fell behind since the start, because the device was slower than its
    /// promises. Zero where they hold, and for schedulers without any.
    fn overload(&self) -> Span {
        Span::ZERO
    }
}
