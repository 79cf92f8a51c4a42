//! The block level of a disk that is not ours: its requests are seen, not ordered.
//!
//! On a Plimsoll volume the scheduler decides when a request goes to the device. On any other disk the kernel does, and we
//! are told afterwards that it went and that it came back. A scheduler can still be asked: it gets every request as it is
//! seen, and gives it back when *it* would have let it go.
//!
//! A request that the scheduler gives back early is completed when the disk has it; one that it would have kept longer is
//! completed at once when it gives it back. So each request is added, dispatched and completed once and in this order,
//! every charge is made, and what an account had too early makes its calls wait at the gates above: there the delay is
//! made up for that could not be had here.
//!
//! What comes from below may be incomplete. A completion that never came is supposed after [`LOST_AFTER`]; one without a
//! request is ignored; and there are [`REQUESTS_MAX`] at the most, of which those that are seen beyond are left out.

use plimsoll_core::{AccountId, BlockRequest, CauseSet, Completion, Dispatch, RequestId, Scheduler, Span, Time};
use std::collections::BTreeMap;

/// A disk that has not answered for so long does not any more, or its answer was not seen: the kernel's own timeout for
/// a command (`/sys/block/*/queue/io_timeout`).
pub const LOST_AFTER: Span = Span::from_secs(30);
/// Requests that are remembered at the most: more than any queue of a disk holds (1023 tags), in every of 64 queues.
pub const REQUESTS_MAX: usize = 65_536;

struct Observed {
    /// The kernel's name for it.
    key: u64,
    session: AccountId,
    causes: CauseSet,
    runs: u64,
    seen: Time,
    /// The scheduler has let it go.
    is_dispatched: bool,
    /// When the disk had done it, and whether it could.
    done: Option<(Time, bool)>,
}

/// Requests that were seen and are not yet completed.
#[derive(Default)]
pub struct ObservedRequests {
    requests: BTreeMap<RequestId, Observed>,
    /// Those that the disk has, by the kernel's name, which it gives to another as soon as they are done.
    at_disk: BTreeMap<u64, RequestId>,
    requests_so_far: u64,
    left_out: u64,
}

impl ObservedRequests {
    /// A request went to the disk, where the kernel calls it `key`. It gets a number of its own.
    pub fn issued(&mut self, now: Time, scheduler: &mut dyn Scheduler, key: u64, mut request: BlockRequest) {
        // The one before of that name is done, though nobody saw it.
        self.completed(now, scheduler, key, true);
        if self.requests.len() >= REQUESTS_MAX {
            self.left_out += 1;
            return;
        }
        self.requests_so_far += 1;
        request.id = RequestId(self.requests_so_far);
        let (session, causes, runs) = (request.session, request.causes.clone(), request.runs());
        let observed = Observed { key, session, causes, runs, seen: now, is_dispatched: false, done: None };
        self.requests.insert(request.id, observed);
        self.at_disk.insert(key, request.id);
        scheduler.request_added(now, request);
    }

    /// The disk has done the request that the kernel calls `key`.
    pub fn completed(&mut self, now: Time, scheduler: &mut dyn Scheduler, key: u64, succeeded: bool) {
        let Some(id) = self.at_disk.remove(&key) else { return };
        let Some(observed) = self.requests.get_mut(&id) else { return };
        observed.done = Some((now, succeeded));
        self.complete(now, scheduler, id);
    }

    /// Lets the scheduler dispatch what it will. Answers with when it wants to be asked again.
    pub fn pump(&mut self, now: Time, scheduler: &mut dyn Scheduler) -> Option<Time> {
        loop {
            match scheduler.next(now) {
                Dispatch::Now(request) => {
                    if let Some(observed) = self.requests.get_mut(&request.id) {
                        observed.is_dispatched = true;
                    }
                    self.complete(now, scheduler, request.id);
                }
                Dispatch::NotBefore(time) => return Some(time),
                Dispatch::Nothing => return None,
            }
        }
    }

    /// Supposes that the disk has done what it had for too long. O(requests): now and then.
    pub fn give_up_lost(&mut self, now: Time, scheduler: &mut dyn Scheduler) {
        let is_lost = |observed: &&Observed| observed.done.is_none() && now.since(observed.seen) >= LOST_AFTER;
        let lost: Vec<u64> = self.requests.values().filter(is_lost).map(|observed| observed.key).collect();
        lost.into_iter().for_each(|key| self.completed(now, scheduler, key, false));
    }

    /// Another scheduler is in charge: what the one before had is not its business.
    pub fn forget(&mut self) {
        self.requests.clear();
        self.at_disk.clear();
    }

    /// Requests that were seen when there were too many already.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether an account has a request under way: as long as it has, it must not be closed.
    pub fn is_busy(&self, account: AccountId) -> bool {
        self.requests.values().any(|observed| observed.session == account || observed.causes.contains(account))
    }

    fn complete(&mut self, now: Time, scheduler: &mut dyn Scheduler, id: RequestId) {
        let Some(Observed { session, runs, seen, is_dispatched: true, done: Some((at, succeeded)), .. }) =
            self.requests.get(&id)
        else {
            return;
        };
        let service = at.since(*seen);
        let completion = Completion { id, session: *session, runs: *runs, service, succeeded: *succeeded };
        self.requests.remove(&id);
        scheduler.request_completed(now, &completion);
    }
}

#[cfg(test)]
mod tests;
