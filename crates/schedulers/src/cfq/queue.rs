//! One queue of CFQ: a process's synchronous requests, or all processes' asynchronous ones of one priority.
//!
//! **Intuition.** Inside its slice a queue has the disk for itself and goes through its requests by place, as an
//! elevator does. **Rule.** The nearest request ahead goes first; one a little behind may, at twice its distance;
//! otherwise the sweep begins again at the lowest place. Once a slice the oldest request goes first if it has waited
//! too long. **Complication.** The queue remembers how its process behaves: how far apart its requests lie, and how
//! long it thinks between them. Only for some processes it is worth to keep the disk idle until they ask again.

use super::parameters::*;
use plimsoll_core::{BlockRequest, Operation, Priority, RequestId, Span, Time};
use std::collections::BTreeMap;

/// The kernel's I/O classes, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoClass {
    RealTime,
    BestEffort,
    Idle,
}

/// What kind of waiting a queue deserves (`enum wl_type_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// No process waits for it.
    Async,
    /// A process waits, but the disk idles only for the last of such queues.
    SyncNoIdle,
    /// The disk is kept idle until the next request comes.
    Sync,
}

/// Mean time from a completion to the next request, forgetting an eighth at each sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThinkTime {
    last_completion: Time,
    samples: u64,
    total_ns: u64,
}

impl ThinkTime {
    pub fn completed(&mut self, now: Time) {
        self.last_completion = now;
    }

    /// Counts the time since the last completion, at most `sample_max`.
    pub fn requested(&mut self, now: Time, sample_max: Span) {
        let sample = now.since(self.last_completion).min(sample_max);
        self.samples = (7 * self.samples + 256) / 8;
        self.total_ns = (7 * self.total_ns + 256 * sample.as_nanos()) / 8;
    }

    /// `None` until there are enough samples.
    pub fn mean(&self) -> Option<Span> {
        (self.samples > THINK_SAMPLES_VALID).then(|| Span::from_nanos(self.total_ns / self.samples))
    }
}

/// The disk time that a queue has been given.
#[derive(Clone, Copy, Debug)]
pub enum Slice {
    /// It begins with the first completion, so that the way there is not paid for.
    New,
    /// From, until.
    Running(Time, Time),
}

/// See the module's text.
pub struct CfqQueue {
    pub priority: Priority,
    pub is_sync: bool,
    /// With the number of arrival.
    by_place: BTreeMap<(u64, RequestId), (u64, BlockRequest)>,
    by_arrival: BTreeMap<u64, (u64, RequestId)>,
    arrivals: u64,
    /// Where its last dispatched request ended.
    position: u64,
    /// Requests at the device.
    pub dispatched: u32,
    pub slice: Slice,
    /// Requests dispatched in this slice.
    pub slice_dispatched: u32,
    /// What was left of the last slice; negative if it was overrun.
    pub residue_ns: i64,
    has_looked_at_oldest: bool,
    pub is_idled_for: bool,
    is_deep: bool,
    /// A bit for each of the last 32 requests: whether it was a seek.
    seeks: u32,
    /// Where the last request that arrived ends; 0 before the first.
    last_end: u64,
    pub think: ThinkTime,
}

impl CfqQueue {
    pub fn new(priority: Priority, is_sync: bool) -> CfqQueue {
        CfqQueue {
            priority,
            is_sync,
            by_place: BTreeMap::new(),
            by_arrival: BTreeMap::new(),
            arrivals: 0,
            position: 0,
            dispatched: 0,
            slice: Slice::New,
            slice_dispatched: 0,
            residue_ns: 0,
            has_looked_at_oldest: false,
            is_idled_for: is_sync && priority != Priority::Idle,
            is_deep: false,
            seeks: 0,
            last_end: 0,
            think: ThinkTime::default(),
        }
    }

    pub fn class(&self) -> IoClass {
        match self.priority {
            Priority::RealTime(_) => IoClass::RealTime,
            Priority::Level(_) => IoClass::BestEffort,
            Priority::Idle => IoClass::Idle,
        }
    }

    pub fn workload(&self) -> Workload {
        match (self.is_sync, self.is_idled_for) {
            (false, _) => Workload::Async,
            (true, false) => Workload::SyncNoIdle,
            (true, true) => Workload::Sync,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    pub fn is_seeky(&self) -> bool {
        self.seeks.count_ones() > SEEKS_MAX
    }

    pub fn is_slice_used(&self, now: Time) -> bool {
        matches!(self.slice, Slice::Running(_, end) if now >= end)
    }

    /// Whether the slice will be used up by what is at the device already.
    pub fn is_slice_used_soon(&self, now: Time, slice_idle: Span) -> bool {
        match self.slice {
            Slice::New => true,
            Slice::Running(_, end) => now + slice_idle * u64::from(self.dispatched) > end,
        }
    }

    /// The disk is the queue's from now on.
    pub fn begin(&mut self) {
        self.slice = Slice::New;
        self.slice_dispatched = 0;
        self.has_looked_at_oldest = false;
    }

    /// Takes in a request and what it says about the process.
    pub fn add(&mut self, now: Time, request: BlockRequest, slice_idle: Span, is_rotational: bool) {
        let distance = if self.last_end == 0 { 0 } else { self.last_end.abs_diff(request.offset) };
        let is_seek = if is_rotational { distance > SEEK_BYTES } else { request.length < SEEK_BYTES_FLASH };
        self.seeks = self.seeks << 1 | u32::from(is_seek);
        self.last_end = request.end();
        let is_read = request.operation == Operation::Read;
        let place = (request.offset, request.id);
        self.arrivals += 1;
        self.by_arrival.insert(self.arrivals, place);
        self.by_place.insert(place, (self.arrivals, request));
        if self.is_sync {
            self.think.requested(now, slice_idle * 2);
            self.update_idling(is_read, slice_idle);
        }
    }

    /// Whether the disk should idle for this queue. Linux marks synchronous writes as not to be idled for (`WRITE_SYNC`
    /// contains `REQ_NOIDLE`).
    fn update_idling(&mut self, is_read: bool, slice_idle: Span) {
        self.is_deep |= self.by_place.len() >= DEEP_REQUESTS;
        let is_hopeless = !is_read || slice_idle == Span::ZERO || (!self.is_deep && self.is_seeky());
        self.is_idled_for = match self.think.mean() {
            _ if is_hopeless || self.class() == IoClass::Idle => false,
            Some(mean) => mean <= slice_idle,
            None => self.is_idled_for,
        };
    }

    /// Idling for it did not help: it needs more requests waiting to be idled for again.
    pub fn forget_depth(&mut self) {
        self.is_deep = false;
    }

    /// A seeky queue that the device serves faster than it asks is not idled for.
    pub fn stop_idling_if_device_is_faster(&mut self, now: Time) {
        let is_early = match self.slice {
            Slice::New => true,
            Slice::Running(start, end) => end.since(now) > now.since(start),
        };
        if self.is_seeky() && self.is_idled_for && is_early {
            self.is_deep = false;
            self.is_idled_for = false;
        }
    }

    /// Takes out the request to serve now; `None` if there is none.
    pub fn take(&mut self, now: Time) -> Option<BlockRequest> {
        let place = self.overdue(now).or_else(|| self.nearest())?;
        let (arrival, request) = self.by_place.remove(&place)?;
        self.by_arrival.remove(&arrival);
        self.position = request.end();
        self.dispatched += 1;
        self.slice_dispatched += 1;
        Some(request)
    }

    /// The oldest request if it has waited too long; looked at once a slice.
    fn overdue(&mut self, now: Time) -> Option<(u64, RequestId)> {
        if std::mem::replace(&mut self.has_looked_at_oldest, true) {
            return None;
        }
        let (_, place) = self.by_arrival.first_key_value()?;
        let expire = if self.is_sync { EXPIRE_SYNC } else { EXPIRE_ASYNC };
        let (_, request) = self.by_place.get(place)?;
        (now >= request.arrived + expire).then_some(*place)
    }

    fn nearest(&self) -> Option<(u64, RequestId)> {
        let here = (self.position, RequestId(0));
        let ahead = self.by_place.range(here..).next().map(|(&place, _)| place);
        let behind = self.by_place.range(..here).next_back().map(|(&place, _)| place);
        let behind = behind.filter(|place| self.position - place.0 <= BACK_SEEK_BYTES_MAX);
        match (ahead, behind) {
            (Some(ahead), Some(behind)) => {
                let is_ahead_nearer = ahead.0 - self.position <= (self.position - behind.0) * BACK_SEEK_PENALTY;
                Some(if is_ahead_nearer { ahead } else { behind })
            }
            (ahead, behind) => ahead.or(behind).or_else(|| self.by_place.first_key_value().map(|(&place, _)| place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::AccountId;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    fn add(queue: &mut CfqQueue, id: u64, operation: Operation, offset: u64, now: Time) {
        let request = BlockRequest::new(RequestId(id), AccountId(1), operation, offset, 4096, now);
        queue.add(now, request, SLICE_IDLE, true);
    }

    /// Linux's comparison of two requests, applied to all. It is the distance ahead, or twice the distance behind if
    /// that is not too far, or else a new sweep from the lowest.
    fn cost(position: u64, offset: u64) -> (bool, u64) {
        match offset >= position {
            true => (false, offset - position),
            false if position - offset <= BACK_SEEK_BYTES_MAX => (false, 2 * (position - offset)),
            false => (true, offset),
        }
    }

    proptest! {
        #[test]
        fn the_cheapest_place_goes_first(places in proptest::collection::vec(0u64..20_000, 1..40), start in 0u64..20_000) {
            let mut queue = CfqQueue::new(Priority::default(), true);
            queue.position = start << 12;
            let mut oracle: Vec<u64> = places.iter().map(|place| place << 12).collect();
            places.iter().enumerate().for_each(|(id, place)| add(&mut queue, id as u64, Operation::Read, place << 12, at(0)));
            while let Some(position) = Some(queue.position).filter(|_| !oracle.is_empty()) {
                let best = oracle.iter().map(|&offset| cost(position, offset)).min().unwrap();
                let taken = queue.take(at(0)).unwrap().offset;
                prop_assert_eq!(cost(position, taken), best);
                oracle.swap_remove(oracle.iter().position(|&offset| offset == taken).unwrap());
            }
            prop_assert!(queue.is_empty() && queue.take(at(0)).is_none());
        }
    }

    #[test]
    fn one_overdue_request_a_slice_goes_first() {
        let mut queue = CfqQueue::new(Priority::default(), true);
        (0..3).for_each(|id| add(&mut queue, id, Operation::Read, (9 - id) << 30, at(0)));
        add(&mut queue, 3, Operation::Read, 0, at(100));
        queue.begin();
        let mut take = |now| queue.take(now).unwrap().id.0;
        assert_eq!([take(at(125)), take(at(125))], [0, 3], "the oldest, then by place");
        queue.begin();
        assert_eq!(queue.take(at(125)).unwrap().id.0, 1);
    }

    #[test]
    fn a_queue_is_seeky_after_five_seeks_and_no_longer_idled_for_unless_it_is_deep() {
        let mut queue = CfqQueue::new(Priority::default(), true);
        for id in 0..6u64 {
            assert!(queue.is_idled_for && !queue.is_seeky(), "the first is no seek, {id} more are not enough");
            add(&mut queue, id, Operation::Read, (id % 2 + 1) << 30, at(id));
            queue.take(at(id));
        }
        assert!(queue.is_seeky() && !queue.is_idled_for);
        (0..4).for_each(|id| add(&mut queue, 10 + id, Operation::Read, id << 30, at(10)));
        queue.is_idled_for = true;
        add(&mut queue, 20, Operation::Read, 9 << 30, at(10));
        assert!(queue.is_idled_for, "deep");
        queue.stop_idling_if_device_is_faster(at(11));
        assert!(!queue.is_idled_for);
    }

    #[test]
    fn neither_synchronous_writes_nor_long_thinkers_nor_the_idle_class_are_idled_for() {
        let mut writes = CfqQueue::new(Priority::default(), true);
        add(&mut writes, 0, Operation::Write, 4096, at(0));
        assert!(!writes.is_idled_for);
        for (think_ms, is_idled_for) in [(2, true), (12, false)] {
            let mut queue = CfqQueue::new(Priority::default(), true);
            for id in 0..20 {
                add(&mut queue, id, Operation::Read, id << 12, at(id * think_ms));
                queue.take(at(id * think_ms));
                queue.think.completed(at(id * think_ms));
            }
            assert_eq!(queue.is_idled_for, is_idled_for, "{think_ms} ms");
        }
        assert!(!CfqQueue::new(Priority::Idle, true).is_idled_for);
    }
}
