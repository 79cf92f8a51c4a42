//! The agent's end of a seccomp filter: it receives calls and lets them continue.
//!
//! The kernel's rules (seccomp_unotify(2)) that shape it:
//!
//! - If the last descriptor of a listener is closed, the calls that wait fail with ENOSYS, and so do all later ones.
//!   So a [`keeper`](crate::keeper) holds one too.
//! - A call is answered by its number, which only its receiver knows. So the numbers are in a [`ledger`](Ledger) that
//!   the keeper can read.
//! - Receiving waits if there is nothing, whatever the descriptor's flags say. So we poll first; while the lease has
//!   run out the keeper receives, and we do not.

mod fair;
mod inspect;
mod ledger;
mod round;

pub use inspect::FileKey;
pub use round::{ListenerId, Listeners, Turn};

use crate::class::GateClass;
use crate::error::GateError;
use crate::filter::table::{Place, RESTRICTING};
use crate::kernel;
use ledger::Ledger;
use plimsoll_core::{AccountId, Call, CallId, FileId, ThreadId, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What `/proc` calls a listener. No file's name begins without a slash.
const KIND: &str = "anon_inode:seccomp notify";

/// A call that waits at the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCall {
    /// As schedulers know it. What it says of file, offset and length was true when we looked: a hint, which the
    /// tenant may have changed since.
    pub call: Call,
    /// Its class.
    pub class: GateClass,
    /// The file, or for a path the directory that it starts from; `None` if that is unknown.
    pub file: Option<FileKey>,
    /// The call names a path, which may lead anywhere.
    pub is_by_path: bool,
}

/// What a look at a listener brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A call that waits until it is [resumed](Listener::resume).
    Call(HeldCall),
    /// A process is about to install a filter of its own, and its shim does not know. Its account needs another
    /// [generation](crate::GateWords::begin_generation) before this call is [resumed](Listener::resume).
    Restricts(CallId),
    /// The call continued at once (without a file, for example), or ended before it was examined.
    Passed,
    /// None, or as many are held as may be; the rest wait in the kernel.
    Nothing,
    /// No process is left behind the filter.
    Ended,
}

/// What became of a call that was to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It continues.
    Continued,
    /// It was not there any more: killed, interrupted, or let go by the keeper.
    Gone,
}

/// What looks at calls that are held brought.
pub(crate) struct Looks {
    /// The calls that waited no more.
    pub(crate) gone: Vec<CallId>,
    /// How many were looked at, and the last of them.
    pub(crate) count: usize,
    pub(crate) last: Option<CallId>,
}

/// One tenant's listener.
pub struct Listener {
    descriptor: OwnedFd,
    ledger: Ledger,
    account: AccountId,
    held: BTreeMap<CallId, u16>,
}

impl Listener {
    /// For the calls of `account`.
    ///
    /// # Errors
    /// The descriptor is not a listener's, or there is no memory for the ledger.
    pub fn new(descriptor: OwnedFd, account: AccountId) -> Result<Listener, GateError> {
        check_kind(&descriptor)?;
        let ledger = Ledger::new().map_err(GateError::step("make a ledger"))?;
        Ok(Listener::with(descriptor, ledger, account))
    }

    /// One that its keeper kept for us.
    pub(crate) fn adopt(descriptor: OwnedFd, ledger: OwnedFd, account: AccountId) -> Result<Listener, GateError> {
        let ledger = Ledger::of(ledger).map_err(GateError::step("take over the ledger of held calls"))?;
        Ok(Listener::with(descriptor, ledger, account))
    }

    fn with(descriptor: OwnedFd, ledger: Ledger, account: AccountId) -> Listener {
        if let Err(error) = kernel::wake_synchronously(descriptor.as_fd()) {
            tracing::debug!("no synchronous wake-up for notifications (Linux before 6.6 has none): {error}");
        }
        Listener { descriptor, ledger, account, held: BTreeMap::new() }
    }

    /// The account that pays for its calls.
    pub fn account(&self) -> AccountId {
        self.account
    }

    /// Has another account pay for the calls that are received from now on.
    pub fn assign(&mut self, account: AccountId) {
        self.account = account;
    }

    /// How many calls are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether as many calls are held as may be.
    pub fn is_full(&self) -> bool {
        self.held.len() == ledger::SLOTS
    }

    pub(crate) fn ledger(&self) -> BorrowedFd<'_> {
        self.ledger.as_fd()
    }

    /// The next call, without waiting. To be asked only while the lease of the words lasts: see [`Listeners::turn`].
    ///
    /// # Errors
    /// The descriptor is not a listener's.
    pub fn receive(&mut self, now: Time) -> Result<Received, GateError> {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(GateError::step("poll a listener")(errno)),
        }
        let ready = polled[0].revents();
        if ready.contains(PollFlags::NVAL) || ready.contains(PollFlags::ERR) {
            return Err(GateError::step("poll a listener")(rustix::io::Errno::BADF));
        }
        if !ready.contains(PollFlags::IN) {
            return Ok(if ready.contains(PollFlags::HUP) { Received::Ended } else { Received::Nothing });
        }
        let Some((slot, place)) = self.ledger.take() else { return Ok(Received::Nothing) };
        // SAFETY: the place is in the ledger's mapping, which is used as atomic words only.
        match unsafe { kernel::receive(self.descriptor.as_fd(), place) } {
            Ok(()) => self.received(slot, now),
            Err(error) => {
                self.ledger.free(slot);
                match error.kind() {
                    // Gone since we polled, or a signal.
                    ErrorKind::NotFound | ErrorKind::Interrupted => Ok(Received::Passed),
                    _ => Err(GateError::step("receive a notification")(error)),
                }
            }
        }
    }

    fn received(&mut self, slot: u16, now: Time) -> Result<Received, GateError> {
        let notification = self.ledger.read(slot);
        let id = CallId(notification.id);
        self.held.insert(id, slot);
        if RESTRICTING.iter().any(|(number, ..)| *number == notification.number) {
            return Ok(Received::Restricts(id));
        }
        let Some(findings) = inspect::inspect(&notification) else {
            self.resume(id)?;
            return Ok(Received::Passed);
        };
        // The thread's number may be another's by now, and what we read then was another's too.
        if !self.is_waiting(id) {
            self.forget(id);
            return Ok(Received::Passed);
        }
        let call = Call {
            id,
            account: self.account,
            thread: ThreadId(notification.thread),
            kind: findings.call.kind,
            file: findings.file.map_or(FileId::DEVICE, FileKey::id),
            offset: findings.offset,
            length: findings.length,
            entered: now,
        };
        let is_by_path = matches!(findings.call.place, Place::Path(_));
        Ok(Received::Call(HeldCall { call, class: findings.call.class, file: findings.file, is_by_path }))
    }

    /// Lets a call that was received go on.
    ///
    /// # Errors
    /// The descriptor is not a listener's.
    pub fn resume(&mut self, id: CallId) -> Result<Resumed, GateError> {
        if !self.held.contains_key(&id) {
            return Ok(Resumed::Gone);
        }
        let outcome = kernel::send_continue(self.descriptor.as_fd(), id.0);
        self.forget(id);
        match outcome {
            Ok(()) => Ok(Resumed::Continued),
            // Not there, or answered by the keeper.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINPROGRESS)) => Ok(Resumed::Gone),
            Err(error) => Err(GateError::step("answer a notification")(error)),
        }
    }

    /// Whether a call that was received still waits.
    pub fn is_waiting(&self, id: CallId) -> bool {
        self.held.contains_key(&id) && kernel::is_valid(self.descriptor.as_fd(), id.0)
    }

    /// Examines up to `count_max` of the held calls, beginning behind `after`, and forgets those that were killed or
    /// interrupted.
    pub(crate) fn take_gone(&mut self, after: Option<CallId>, count_max: usize) -> Looks {
        let from = after.map_or(Unbounded, Excluded);
        let looked: Vec<CallId> = self.held.range((from, Unbounded)).map(|(&id, _)| id).take(count_max).collect();
        let gone: Vec<CallId> = looked.iter().copied().filter(|&id| !self.is_waiting(id)).collect();
        gone.iter().for_each(|&id| self.forget(id));
        Looks { gone, count: looked.len(), last: looked.last().copied() }
    }

    /// After the answer and not before: a keeper answers only calls in the ledger. Answering twice does no harm.
    fn forget(&mut self, id: CallId) {
        self.held.remove(&id).into_iter().for_each(|slot| self.ledger.free(slot));
    }
}

/// On another kind of descriptor, for example a file of a tenant's own file system, the kernel's requests could mean
/// anything.
fn check_kind(descriptor: &OwnedFd) -> Result<(), GateError> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    let got = link.map_err(GateError::step("look at a descriptor in /proc"))?.to_string_lossy().into_owned();
    if got == KIND { Ok(()) } else { Err(GateError::NotListener { got }) }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
