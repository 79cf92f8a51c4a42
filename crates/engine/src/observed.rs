//! The block level of an observed disk: its requests are seen, not ordered.
//!
//! On a Plimsoll volume the scheduler decides when a request goes to the device. On any other disk the kernel does, and
//! we are told afterwards that it went and that it came back. A scheduler can still be asked: it gets every request as
//! it is seen, and gives it back when *it* would have let it go.
//!
//! A request that the scheduler gives back early is completed when the disk has it. One that the scheduler would have
//! kept longer is completed at once when the scheduler gives it back. So each request is added, dispatched and
//! completed once and in this order, and every charge is made. An account that had service too early pays for it at the
//! gates above: its calls wait there. [`HeldReads`] names the accounts that had reads too early; a scheduler holds
//! writes back at the calls anyway.
//!
//! What comes from below may be incomplete. A completion that never came is supposed after [`LOST_AFTER`]; one without
//! a request is ignored. The book has room for [`REQUESTS_MAX`] at the most; those that are seen beyond are left out.
//!
//! **A read that bypasses the gates** (a container, a static program, a mapping) goes to the disk at once, whatever the
//! scheduler decides. So that such reads do not fill the book for all, each session has a bound. A session that owes
//! [`READS_OWED_MAX`] reads is not charged for more until it has paid some, as on a volume
//! ([`early_reads`](super::early_reads)). Writes are always charged: a scheduler has to hear of each page that it knows
//! to be dirty.

use super::held_reads::HeldReads;
use super::meter::Meters;
use super::tap::Tap;
use plimsoll_core::{
    AccountId, AccountTree, BlockRequest, CauseSet, Completion, Operation, RequestId, Scheduler, Span, Time,
};
use std::collections::BTreeMap;

/// Time after which a request without a completion counts as lost: the kernel's own timeout for a command
/// (`/sys/block/*/queue/io_timeout`).
pub const LOST_AFTER: Span = Span::from_secs(30);
/// Most requests in the books: more than any disk queue holds (1023 tags), in each of 64 queues.
pub const REQUESTS_MAX: usize = 65_536;
/// Reads that a session may have had early before it is charged for no more. All 62 that can be told apart together
/// take half of the book, and leave the other to what is under way.
pub const READS_OWED_MAX: u32 = 512;
const _: () = assert!(62 * READS_OWED_MAX as usize <= REQUESTS_MAX / 2);
/// The log hears of the same trouble no more often.
const WARNING_INTERVAL: Span = Span::from_secs(60);
/// Bit in the numbers of observed requests. Numbers of the engine's own pieces are indices of a table.
const SEEN: u64 = 1 << 63;
/// A disk that is seen has one volume: itself.
const VOLUME: u32 = 0;

/// Whether a request was seen, and is none of our pieces.
pub(super) fn is_observed(id: RequestId) -> bool {
    id.0 & SEEN != 0
}

/// The books that hear of what happens to a request.
pub(super) struct Books<'engine> {
    pub(super) scheduler: &'engine mut dyn Scheduler,
    pub(super) meters: &'engine mut Meters,
    pub(super) tap: Option<&'engine mut Tap>,
    pub(super) reads: &'engine mut HeldReads,
    /// For the names in the log.
    pub(super) tree: &'engine AccountTree,
}

/// Whether the log knows of a trouble.
#[derive(Default)]
struct Warning {
    is_known: bool,
    last: Option<Time>,
}

impl Warning {
    /// There is trouble: whether to say so. It is said once until it is over, and then not before some time has gone.
    fn is_news(&mut self, now: Time) -> bool {
        if self.is_known || self.last.is_some_and(|last| now.since(last) < WARNING_INTERVAL) {
            return false;
        }
        (self.is_known, self.last) = (true, Some(now));
        true
    }

    fn is_over(&mut self) {
        self.is_known = false;
    }
}

struct Observed {
    /// The kernel's name for it.
    key: u64,
    session: AccountId,
    causes: CauseSet,
    operation: Operation,
    offset: u64,
    length: u32,
    runs: u64,
    seen: Time,
    /// The recording that knows of it, by its number.
    recording: Option<u32>,
    /// The scheduler has let it go.
    is_dispatched: bool,
    /// When the disk had done it, and whether it could.
    done: Option<(Time, bool)>,
}

impl Observed {
    /// The accounts it was done for.
    fn owners(&self) -> impl Iterator<Item = AccountId> + '_ {
        self.causes.iter().chain(self.causes.is_empty().then_some(self.session))
    }

    /// The disk has read it before the scheduler would have let it.
    fn is_early_read(&self) -> bool {
        self.operation == Operation::Read && self.done.is_some() && !self.is_dispatched
    }
}

/// Requests that were seen and are not yet completed.
#[derive(Default)]
pub(super) struct ObservedRequests {
    requests: BTreeMap<RequestId, Observed>,
    /// Requests that the disk has, by the kernel's name. The kernel gives the name to another request as soon as they
    /// are done.
    at_disk: BTreeMap<u64, RequestId>,
    /// The accounts that caused what was written since the last flush.
    pub(super) unflushed: CauseSet,
    requests_so_far: u64,
    /// When the newest was seen.
    last_seen: Time,
    left_out: u64,
    /// The book is full.
    full: Warning,
    /// A session owes too much.
    owing: Warning,
}

impl ObservedRequests {
    /// A request went to the disk on arrival. The kernel calls it `key`. It gets a number of its own.
    pub(super) fn issued(&mut self, now: Time, books: &mut Books<'_>, key: u64, mut request: BlockRequest) {
        if self.is_once_more(key, &request) {
            return;
        }
        // The one before of that name is done, though its end was not seen.
        self.completed(now, books, key, request.arrived, true);
        if !self.has_room(now, books, &request) {
            self.left_out += 1;
            return;
        }
        // Processors tell of theirs independently.
        self.last_seen = self.last_seen.max(request.arrived);
        request.arrived = self.last_seen;
        request.id = RequestId(SEEN | self.requests_so_far);
        if request.operation == Operation::Flush && request.causes.is_empty() {
            request.causes = std::mem::take(&mut self.unflushed);
        }
        let sequence = self.requests_so_far;
        self.requests_so_far += 1;
        let tap = books.tap.as_mut();
        let recording =
            tap.and_then(|tap| tap.arrived(request.arrived, VOLUME, sequence, &request).then_some(tap.number));
        let observed = Observed {
            key,
            session: request.session,
            causes: request.causes.clone(),
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            runs: request.runs(),
            seen: request.arrived,
            recording,
            is_dispatched: false,
            done: None,
        };
        if observed.operation == Operation::Read {
            observed.owners().for_each(|owner| books.reads.arrived(owner));
        }
        self.requests.insert(request.id, observed);
        self.at_disk.insert(key, request.id);
        books.meters.piece_queued(request.session);
        books.scheduler.request_added(now, request);
    }

    /// Whether the disk's driver gave this request back before and gets it again, as it does while the disk is busy
    /// with a flush. The kernel issues it again, under the same name. One that was done unseen, and came back the same,
    /// counts once.
    fn is_once_more(&self, key: u64, request: &BlockRequest) -> bool {
        let before = self.at_disk.get(&key).and_then(|id| self.requests.get(id));
        before.is_some_and(|before| {
            let of_both = (before.session, before.operation, before.offset, before.length);
            of_both == (request.session, request.operation, request.offset, request.length)
        })
    }

    /// Whether a request goes into the book.
    fn has_room(&mut self, now: Time, books: &Books<'_>, request: &BlockRequest) -> bool {
        if request.operation == Operation::Read && books.reads.of(request.session).early >= READS_OWED_MAX {
            if self.owing.is_news(now) {
                let path = books.tree.path(request.session);
                tracing::warn!(
                    "{path:?} reads without waiting at its gates and owes for {READS_OWED_MAX} requests: more are not \
                     charged to it"
                );
            }
            return false;
        }
        let has_room = self.requests.len() < REQUESTS_MAX;
        if !has_room && self.full.is_news(now) {
            tracing::warn!("{REQUESTS_MAX} requests are at the disk: more are not accounted for");
        }
        has_room
    }

    /// The disk has done, at `at`, the request that the kernel calls `key`.
    pub(super) fn completed(&mut self, now: Time, books: &mut Books<'_>, key: u64, at: Time, succeeded: bool) {
        let Some(id) = self.at_disk.remove(&key) else { return };
        let Some(observed) = self.requests.get_mut(&id) else { return };
        let at = at.max(observed.seen);
        observed.done = Some((at, succeeded));
        if let Some(tap) = &mut books.tap
            && observed.recording == Some(tap.number)
        {
            tap.completed(at, id.0 & !SEEN);
        }
        if observed.operation == Operation::Write {
            self.unflushed.union_with(&observed.causes);
        }
        if observed.is_early_read() {
            observed.owners().for_each(|owner| books.reads.was_early(owner));
        }
        self.complete(now, books, id);
    }

    /// The scheduler lets a request go.
    pub(super) fn dispatched(&mut self, now: Time, books: &mut Books<'_>, id: RequestId) {
        let Some(observed) = self.requests.get_mut(&id) else { return };
        if observed.is_early_read() {
            observed.owners().for_each(|owner| books.reads.is_early_no_more(owner));
            if books.reads.of(observed.session).early == 0 {
                self.owing.is_over();
            }
        }
        observed.is_dispatched = true;
        books.meters.piece_dispatched(observed.session);
        self.complete(now, books, id);
    }

    /// Supposes that the disk has done what it had for too long. O(requests): now and then.
    pub(super) fn give_up_lost(&mut self, now: Time, books: &mut Books<'_>) {
        let is_lost = |observed: &&Observed| observed.done.is_none() && now.since(observed.seen) >= LOST_AFTER;
        let lost: Vec<u64> = self.requests.values().filter(is_lost).map(|observed| observed.key).collect();
        lost.into_iter().for_each(|key| self.completed(now, books, key, now, false));
    }

    /// Another scheduler is in charge, or observation ends: earlier requests count no more.
    pub(super) fn forget(&mut self, meters: &mut Meters, reads: &mut HeldReads) {
        for observed in std::mem::take(&mut self.requests).into_values() {
            if observed.is_early_read() {
                observed.owners().for_each(|owner| reads.is_early_no_more(owner));
            }
            if !observed.is_dispatched {
                meters.piece_dispatched(observed.session);
            }
            meters.piece_completed(observed.session, &CauseSet::EMPTY, 0, 0);
        }
        self.at_disk.clear();
    }

    /// Requests that were seen and are not completed.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Number of requests under way of an account, which must not be closed while it has any. O(requests).
    pub(super) fn of(&self, account: AccountId) -> usize {
        let is_its = |observed: &&Observed| observed.session == account || observed.causes.contains(account);
        self.requests.values().filter(is_its).count()
    }

    fn complete(&mut self, now: Time, books: &mut Books<'_>, id: RequestId) {
        let is_through = |observed: &Observed| observed.is_dispatched && observed.done.is_some();
        if !self.requests.get(&id).is_some_and(is_through) {
            return;
        }
        let Some(Observed { session, causes, operation, length, runs, seen, done: Some((at, succeeded)), .. }) =
            self.requests.remove(&id)
        else {
            return;
        };
        if self.requests.len() <= REQUESTS_MAX / 2 {
            self.full.is_over();
        }
        let service = at.since(seen);
        books.meters.piece_completed(session, &causes, runs, length);
        books.meters.request_completed(session, operation, service, succeeded);
        books.scheduler.request_completed(now, &Completion { id, session, runs, service, succeeded });
    }
}

#[cfg(test)]
mod tests;
