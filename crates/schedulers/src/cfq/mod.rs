//! `cfq`: Linux's Completely Fair Queueing, the priority scheduler that the split-level paper compares with.
//!
//! **Intuition.** A disk that jumps between processes spends its time jumping. So one process at a time has it, for a
//! *slice* of a length that follows from the process's priority. If the process reads sequentially, the disk waits a
//! moment for its next request instead of leaving.
//!
//! **Rule.** Each process has a queue for the requests it waits for. Requests that no process waits for go into shared
//! queues, one a priority. Queues stand in trees by class and kind. The queue that is due first gets the disk until its
//! slice is used up, or until it is empty and not worth waiting for. Real time goes before best effort. The idle class
//! has what is left.
//!
//! **Complication.** The priority is that of the thread that *submits*. The kernel's writeback thread submits a
//! buffered write. So the write has that thread's priority whichever process caused it (split-level paper, figures 1, 3
//! and 11): causes have no effect.
//!
//! What is left out or different, and why, is in `docs/schedulers/cfq.md`. Cost: O(log queued) per request.

mod parameters;
mod queue;
mod slices;
mod trees;

use parameters::*;
use plimsoll_core::{Account, AccountId, BlockRequest, Completion, DeviceProfile, Dispatch, Operation, Priority};
use plimsoll_core::{RequestId, Scheduler, Span, Time};
use queue::{CfqQueue, IoClass, Slice, Workload};
use std::collections::{BTreeMap, VecDeque};
use trees::ServiceTrees;

/// The shared asynchronous queues come first: by level in real time and at best effort, and one for the idle class.
const ASYNC_QUEUES: usize = 2 * LEVELS as usize + 1;

/// A request that the device has.
struct DispatchedRequest {
    /// `None` for a flush.
    queue: Option<usize>,
    arrived: Time,
}

/// What a new request does to the slice of another queue.
#[derive(PartialEq)]
enum Preemption {
    None,
    /// It ends, and the queue that is due is next.
    EndsSlice,
    /// It ends, and the new request's queue is next.
    GoesFirst,
}

/// See the module's text.
pub struct Cfq {
    is_rotational: bool,
    /// Zero where there is no head to move (`cfq_registered_queue`).
    slice_idle: Span,
    outstanding_max: usize,
    /// The shared ones, then one for each session, by number.
    queues: Vec<CfqQueue>,
    trees: ServiceTrees,
    /// The queue that has the slice. It stands in its tree until the slice ends, even if it is empty.
    active: Option<usize>,
    /// Until when the disk waits for the next request of the active queue.
    idle_until: Option<Time>,
    serving: (IoClass, Workload),
    serving_until: Time,
    busy_average: [u64; 2],
    /// Requests in queues, flushes not counted.
    queued: usize,
    flushes: VecDeque<BlockRequest>,
    has_just_flushed: bool,
    at_device: BTreeMap<RequestId, DispatchedRequest>,
    /// Asynchronous, synchronous.
    in_flight: [u32; 2],
    /// When a synchronous request that had waited too long completed.
    late_sync: Option<Time>,
    /// When a request that is not of the idle class last came or completed.
    others_seen: Option<Time>,
}

impl Cfq {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> Cfq {
        let of_level = |level: u8| match level {
            0..LEVELS => Priority::RealTime(level),
            _ if level < 2 * LEVELS => Priority::Level(level - LEVELS),
            _ => Priority::Idle,
        };
        Cfq {
            is_rotational: device.is_rotational,
            slice_idle: if device.is_rotational { SLICE_IDLE } else { Span::ZERO },
            outstanding_max: device.outstanding_max.max(1) as usize,
            queues: (0..ASYNC_QUEUES as u8).map(|level| CfqQueue::new(of_level(level), false)).collect(),
            trees: ServiceTrees::default(),
            active: None,
            idle_until: None,
            serving: (IoClass::BestEffort, Workload::SyncNoIdle),
            serving_until: Time::ZERO,
            busy_average: [0; 2],
            queued: 0,
            flushes: VecDeque::new(),
            has_just_flushed: false,
            at_device: BTreeMap::new(),
            in_flight: [0; 2],
            late_sync: None,
            others_seen: None,
        }
    }

    fn sync_queue(&mut self, session: AccountId) -> usize {
        let index = ASYNC_QUEUES + session.index();
        while self.queues.len() <= index {
            self.queues.push(CfqQueue::new(Priority::default(), true));
        }
        index
    }

    /// The queue of a request: its submitter's own if it is waited for, else the one that all of the submitter's
    /// priority share.
    fn queue_of(&mut self, request: &BlockRequest) -> usize {
        let own = self.sync_queue(request.session);
        if request.operation == Operation::Read || request.is_sync {
            return own;
        }
        match self.queues[own].priority {
            Priority::RealTime(level) => usize::from(level),
            Priority::Level(level) => usize::from(LEVELS + level),
            Priority::Idle => ASYNC_QUEUES - 1,
        }
    }

    fn set_priority(&mut self, now: Time, account: &Account) {
        let index = self.sync_queue(account.id);
        let queue = &mut self.queues[index];
        queue.priority = account.allocation.priority;
        queue.is_idled_for &= queue.class() != IoClass::Idle;
        if self.trees.holds(index) {
            self.enlist(now, index);
        }
    }

    /// Whether it pays to keep the disk idle for the next request of a queue. It does for a sequential one, and for the
    /// last of a tree of seeky ones, so that those together get a turn, too.
    fn should_idle(&mut self, index: usize) -> bool {
        let queue = &self.queues[index];
        let (class, workload) = (queue.class(), queue.workload());
        if self.slice_idle == Span::ZERO || class == IoClass::Idle {
            return false;
        }
        let is_long = |mean: Option<Span>| mean.is_some_and(|mean| mean > self.slice_idle);
        let is_last = self.trees.companions(index) == 1;
        queue.is_idled_for || is_last && queue.is_sync && !is_long(self.trees.think(index, class, workload).mean())
    }

    /// Keeps the disk idle after a completion, if the active queue is empty and worth it.
    fn start_idling(&mut self, now: Time, index: usize) {
        let queue = &self.queues[index];
        let Slice::Running(_, end) = queue.slice else { return };
        let is_too_slow = queue.think.mean().is_some_and(|mean| mean > end.since(now));
        if queue.dispatched == 0 && !is_too_slow && self.should_idle(index) {
            self.idle_until = Some(now + self.slice_idle);
        }
    }

    /// Ends the wait for a request that did not come.
    fn stop_idling_if_over(&mut self, now: Time) {
        if self.idle_until.is_none_or(|until| until > now) {
            return;
        }
        if let Some(active) = self.active {
            self.queues[active].forget_depth();
        }
        self.end_slice(now, false);
    }

    /// What a request that has just come into another queue does to the slice under way (`cfq_should_preempt`).
    ///
    /// Two differences from Linux let no queue starve. A queue goes before all others only ahead of the idle class or
    /// of asynchronous requests, or among two seeky ones. A turn of an asynchronous queue is at least one request.
    fn preemption(&mut self, now: Time, new: usize) -> Preemption {
        let Some(active) = self.active else { return Preemption::None };
        let (old, queue) = (&self.queues[active], &self.queues[new]);
        let (old_class, class) = (old.class(), queue.class());
        if class == IoClass::Idle || old_class < class {
            return Preemption::None;
        }
        if class < old_class {
            return Preemption::GoesFirst;
        }
        if queue.is_sync && !old.is_sync {
            return if old.slice_dispatched > 0 { Preemption::GoesFirst } else { Preemption::None };
        }
        if old.is_slice_used(now) {
            return Preemption::EndsSlice;
        }
        if !old.is_empty() {
            return Preemption::None;
        }
        let is_seeky = queue.workload() == Workload::SyncNoIdle && self.serving.1 == Workload::SyncNoIdle;
        match is_seeky && self.trees.companions(new) == 2 {
            true => Preemption::GoesFirst,
            false if self.should_idle(active) => Preemption::None,
            false => Preemption::EndsSlice,
        }
    }

    fn preempt(&mut self, now: Time, index: usize) {
        let preemption = self.preemption(now, index);
        if preemption == Preemption::None {
            return;
        }
        let workload = self.queues[index].workload();
        if self.active.is_some_and(|active| self.queues[active].workload() != workload) {
            self.serving_until = Time::ZERO;
        }
        self.end_slice(now, true);
        if preemption == Preemption::GoesFirst {
            self.enlist_first(now, index);
        }
    }

    /// Whether the active queue may have one more request at the device (`cfq_may_dispatch`).
    fn may_dispatch(&mut self, now: Time, index: usize) -> bool {
        let [asynchronous, synchronous] = self.in_flight;
        let should_idle = self.should_idle(index);
        let queue = &self.queues[index];
        if (should_idle && asynchronous > 0) || (!queue.is_sync && synchronous > 0) {
            return false;
        }
        let (busy, busy_sync) = self.trees.busy();
        let mut dispatched_max = QUANTUM / 2;
        if queue.class() == IoClass::Idle {
            dispatched_max = 1;
        } else if queue.dispatched >= dispatched_max {
            let is_alone = busy == 1 || queue.is_sync && busy_sync == 1;
            if !is_alone && queue.is_slice_used_soon(now, self.slice_idle) {
                return false;
            }
            dispatched_max = if is_alone { u32::MAX } else { QUANTUM };
        }
        if !queue.is_sync
            && let Some(late) = self.late_sync
        {
            // Ten more for each second in which no synchronous request was late.
            let depth = now.since(late).as_nanos() / SLICE_SYNC.as_nanos();
            dispatched_max = dispatched_max.min((depth as u32).max(u32::from(queue.dispatched == 0)));
        }
        queue.dispatched < dispatched_max
    }

    /// Gives the disk to a queue (`cfq_select_queue`); says what to answer if none may have it.
    fn select(&mut self, now: Time) -> Result<usize, Dispatch> {
        if let Some(active) = self.active {
            let queue = &mut self.queues[active];
            if queue.is_slice_used(now) {
                self.end_slice(now, false);
            } else if queue.is_empty() {
                if let Some(until) = self.idle_until {
                    return Err(Dispatch::NotBefore(until));
                }
                queue.stop_idling_if_device_is_faster(now);
                if queue.dispatched > 0 && self.should_idle(active) {
                    return Err(Dispatch::Nothing);
                }
                self.end_slice(now, false);
            }
        }
        match self.active {
            Some(active) => Ok(active),
            None => self.begin_slice(now),
        }
    }

    fn choose(&mut self, now: Time) -> Result<BlockRequest, Dispatch> {
        if self.queued == 0 {
            return Err(Dispatch::Nothing);
        }
        let index = self.select(now)?;
        if !self.may_dispatch(now, index) {
            return Err(Dispatch::Nothing);
        }
        let queue = &mut self.queues[index];
        let request = queue.take(now).ok_or(Dispatch::Nothing)?;
        self.queued -= 1;
        self.in_flight[usize::from(queue.is_sync)] += 1;
        self.at_device.insert(request.id, DispatchedRequest { queue: Some(index), arrived: request.arrived });
        self.end_slice_if_dispatched_enough(now, index);
        Ok(request)
    }

    fn flush(&mut self) -> Option<BlockRequest> {
        let flush = self.flushes.pop_front()?;
        self.at_device.insert(flush.id, DispatchedRequest { queue: None, arrived: flush.arrived });
        Some(flush)
    }
}

impl Scheduler for Cfq {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn account_opened(&mut self, now: Time, account: &Account) {
        self.set_priority(now, account);
    }

    fn account_changed(&mut self, now: Time, account: &Account) {
        self.set_priority(now, account);
    }

    fn account_closed(&mut self, now: Time, account: AccountId) {
        let index = self.sync_queue(account);
        if self.active == Some(index) {
            self.end_slice(now, false);
        }
        self.queues[index] = CfqQueue::new(Priority::default(), true);
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        self.stop_idling_if_over(now);
        if request.operation == Operation::Flush {
            return self.flushes.push_back(request);
        }
        let index = self.queue_of(&request);
        let queue = &mut self.queues[index];
        queue.add(now, request, self.slice_idle, self.is_rotational);
        self.queued += 1;
        let (class, workload, is_sync) = (queue.class(), queue.workload(), queue.is_sync);
        if class != IoClass::Idle {
            self.others_seen = Some(now);
        }
        if !self.trees.holds(index) {
            self.enlist(now, index);
        }
        if is_sync {
            self.trees.think(index, class, workload).requested(now, self.slice_idle * 2);
        }
        if self.active == Some(index) {
            self.idle_until = None;
        } else {
            self.preempt(now, index);
        }
    }

    fn next(&mut self, now: Time) -> Dispatch {
        self.stop_idling_if_over(now);
        if self.at_device.len() >= self.outstanding_max {
            return Dispatch::Nothing;
        }
        if !self.has_just_flushed
            && let Some(flush) = self.flush()
        {
            self.has_just_flushed = true;
            return Dispatch::Now(flush);
        }
        match self.choose(now) {
            Ok(request) => {
                self.has_just_flushed = false;
                Dispatch::Now(request)
            }
            Err(otherwise) => self.flush().map_or(otherwise, Dispatch::Now),
        }
    }

    fn request_completed(&mut self, now: Time, completion: &Completion) {
        let Some(DispatchedRequest { queue, arrived }) = self.at_device.remove(&completion.id) else { return };
        self.stop_idling_if_over(now);
        let Some(index) = queue else { return };
        let queue = &mut self.queues[index];
        queue.dispatched -= 1;
        let (class, workload, is_sync) = (queue.class(), queue.workload(), queue.is_sync);
        self.in_flight[usize::from(is_sync)] -= 1;
        if class != IoClass::Idle {
            self.others_seen = Some(now);
        }
        if is_sync {
            queue.think.completed(now);
            self.trees.think(index, class, workload).completed(now);
            if now >= arrived + EXPIRE_SYNC {
                self.late_sync = Some(now);
            }
        }
        if self.active == Some(index) {
            self.start_slice_if_new(now, index);
            let queue = &self.queues[index];
            if queue.is_slice_used(now) || class == IoClass::Idle {
                self.end_slice(now, true);
            } else if is_sync && queue.is_empty() {
                self.start_idling(now, index);
            }
        }
    }
}
