//! `block_deadline`: Linux's mq-deadline, the block scheduler that the split-level paper compares with.
//!
//! **Intuition.** A disk likes requests in the order of their places, a process likes its own served soon. **Rule.**
//! Requests of one direction go in order of place, in batches. At the end of a batch, if the oldest has waited too
//! long, the next batch begins there. Reads come before writes, but not more than twice in a row. **Complication.**
//! None of it knows the asking process: a deadline is kept per request, so the process that asks most gets most.
//!
//! Flushes have no place: they take turns with the others ([`FlushQueue`]). An account's own deadlines (`Deadlines`)
//! replace the defaults for its requests, as the split-level paper's experiments need it (its table 3).
//!
//! Cost: O(log queued) per request. This yardstick uses the standard library's trees, which allocate as they grow.

use crate::deadline_book::DeadlineBook;
use crate::flush_queue::FlushQueue;
use plimsoll_core::account::Account;
use plimsoll_core::{BlockRequest, Completion, DeviceProfile, Dispatch, Operation, RequestId, Scheduler, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How long a read may wait (Linux, `read_expire`).
const READ_EXPIRE: Span = Span::from_millis(500);
/// How long a write may wait (Linux, `write_expire`).
const WRITE_EXPIRE: Span = Span::from_secs(5);
/// Requests served by place before deadlines are looked at (Linux, `fifo_batch`).
const FIFO_BATCH: u32 = 16;
/// How often reads may go ahead of waiting writes (Linux, `writes_starved`).
const WRITES_STARVED: u32 = 2;

/// The requests of one direction, by place and by deadline.
#[derive(Default)]
struct Direction {
    by_place: BTreeMap<(u64, RequestId), (BlockRequest, Time)>,
    by_deadline: BTreeSet<(Time, u64, RequestId)>,
    /// Where the last request ended.
    position: u64,
}

impl Direction {
    fn add(&mut self, request: BlockRequest, deadline: Time) {
        let place = (request.offset, request.id);
        self.by_deadline.insert((deadline, place.0, place.1));
        self.by_place.insert(place, (request, deadline));
    }

    fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// The place of the next request at or after the position.
    fn following(&self) -> Option<(u64, RequestId)> {
        let from = (self.position, RequestId(0));
        self.by_place.range(from..).next().map(|(&place, _)| place)
    }

    fn oldest(&self) -> Option<(Time, (u64, RequestId))> {
        self.by_deadline.first().map(|&(deadline, offset, id)| (deadline, (offset, id)))
    }

    fn take(&mut self, place: (u64, RequestId)) -> BlockRequest {
        let (request, deadline) = self.by_place.remove(&place).expect("the place was just found");
        self.by_deadline.remove(&(deadline, place.0, place.1));
        self.position = request.end();
        request
    }
}

/// See the module's text.
pub struct BlockDeadline {
    reads: Direction,
    writes: Direction,
    flushes: FlushQueue,
    /// Whether the batch under way is of writes.
    is_writing: bool,
    batched: u32,
    /// How often reads went ahead while a write waited.
    starved: u32,
    promised: DeadlineBook,
    outstanding: u32,
    outstanding_max: u32,
}

impl BlockDeadline {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> BlockDeadline {
        BlockDeadline {
            reads: Direction::default(),
            writes: Direction::default(),
            flushes: FlushQueue::default(),
            is_writing: false,
            batched: FIFO_BATCH,
            starved: 0,
            promised: DeadlineBook::default(),
            outstanding: 0,
            outstanding_max: device.outstanding_max.max(1),
        }
    }

    /// Chooses the direction of a new batch; `None` if nothing waits.
    fn choose_direction(&mut self) -> Option<bool> {
        let writes_wait = !self.writes.is_empty();
        let is_writes_turn = writes_wait && self.starved >= WRITES_STARVED;
        if !self.reads.is_empty() && !is_writes_turn {
            self.starved += u32::from(writes_wait);
            return Some(false);
        }
        self.starved = 0;
        writes_wait.then_some(true)
    }

    fn choose(&mut self, now: Time) -> Option<BlockRequest> {
        let others_wait = !self.reads.is_empty() || !self.writes.is_empty();
        if let Some(flush) = self.flushes.pop(others_wait) {
            return Some(flush);
        }
        let current = if self.is_writing { &mut self.writes } else { &mut self.reads };
        if self.batched < FIFO_BATCH
            && let Some(place) = current.following()
        {
            self.batched += 1;
            return Some(current.take(place));
        }
        self.is_writing = self.choose_direction()?;
        self.batched = 1;
        let direction = if self.is_writing { &mut self.writes } else { &mut self.reads };
        let (deadline, oldest) = direction.oldest()?;
        let place = if deadline <= now { oldest } else { direction.following().unwrap_or(oldest) };
        Some(direction.take(place))
    }
}

impl Scheduler for BlockDeadline {
    fn name(&self) -> &'static str {
        "block_deadline"
    }

    fn account_opened(&mut self, _now: Time, account: &Account) {
        self.promised.promise_account(account.id, account.allocation.deadlines);
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        self.promised.promise_account(account.id, account.allocation.deadlines);
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        let own = self.promised.account(request.session);
        match request.operation {
            Operation::Flush => self.flushes.push(request),
            Operation::Read => self.reads.add(request, now + own.read.unwrap_or(READ_EXPIRE)),
            _ => self.writes.add(request, now + own.write.unwrap_or(WRITE_EXPIRE)),
        }
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if self.outstanding >= self.outstanding_max {
            return Dispatch::Nothing;
        }
        let Some(request) = self.choose(now) else { return Dispatch::Nothing };
        self.outstanding += 1;
        Dispatch::Now(request)
    }

    fn request_completed(&mut self, _now: Time, _completion: &Completion) {
        self.outstanding -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::disk;
    use plimsoll_core::{AccountId, Deadlines};

    fn add(scheduler: &mut BlockDeadline, id: u64, operation: Operation, offset: u64, now: Time) {
        scheduler.request_added(now, BlockRequest::new(RequestId(id), AccountId(1), operation, offset, 4096, now));
    }

    fn order(scheduler: &mut BlockDeadline, now: Time) -> Vec<u64> {
        let next = || match scheduler.next(now) {
            Dispatch::Now(request) => Some(request.id.0),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn goes_by_place_and_wraps_around() {
        let mut scheduler = BlockDeadline::new(&disk(100));
        for (id, place) in [(1, 900), (2, 100), (3, 500)] {
            add(&mut scheduler, id, Operation::Read, place << 12, Time::ZERO);
        }
        assert_eq!(order(&mut scheduler, Time::ZERO), [2, 3, 1]);
        add(&mut scheduler, 4, Operation::Read, 950 << 12, Time::ZERO);
        add(&mut scheduler, 5, Operation::Read, 10 << 12, Time::ZERO);
        assert_eq!(order(&mut scheduler, Time::ZERO), [4, 5]);
    }

    #[test]
    fn an_expired_request_is_served_when_the_batch_ends() {
        let mut scheduler = BlockDeadline::new(&disk(1000));
        add(&mut scheduler, 1000, Operation::Read, 1 << 12, Time::ZERO);
        let now = Time::ZERO + READ_EXPIRE;
        scheduler.reads.position = 5 << 12;
        for id in 0..40 {
            add(&mut scheduler, id, Operation::Read, (10 + id) << 12, now);
        }
        let order = order(&mut scheduler, now);
        assert_eq!(order[0], 1000, "the first batch starts with the expired one");
        assert_eq!(order[1..17], (0..16).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn writes_wait_for_two_batches_of_reads_at_the_most() {
        let mut scheduler = BlockDeadline::new(&disk(1000));
        for id in 0..100 {
            add(&mut scheduler, id, Operation::Read, id << 12, Time::ZERO);
            add(&mut scheduler, 1000 + id, Operation::Write, id << 12, Time::ZERO);
        }
        let order = order(&mut scheduler, Time::ZERO);
        let first_write = order.iter().position(|&id| id >= 1000).unwrap();
        assert_eq!(first_write as u32, WRITES_STARVED * FIFO_BATCH);
        assert_eq!(order.len(), 200);
    }

    #[test]
    fn an_accounts_own_deadline_counts() {
        let mut scheduler = BlockDeadline::new(&disk(1000));
        let deadlines = Deadlines { write: Some(Span::from_millis(10)), ..Deadlines::default() };
        scheduler.promised.promise_account(AccountId(1), deadlines);
        scheduler.writes.position = 1 << 30;
        add(&mut scheduler, 1, Operation::Write, 0, Time::ZERO);
        add(&mut scheduler, 2, Operation::Write, 2 << 30, Time::ZERO);
        assert_eq!(order(&mut scheduler, Time::ZERO + Span::from_millis(10)), [1, 2]);
    }
}
