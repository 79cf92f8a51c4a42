//! The block layer: requests from above, a scheduler in the middle, a device model below.
//!
//! ```text
//!   bios --merge, wait for a free request--> request_added --> scheduler --next()--> device model
//!     ^                                                                                  |
//!     +----------------------------- end of each bio <--- request_completed <------------+
//! ```
//!
//! [`BlockLayer`] is the layer without tasks: it takes requests, asks the scheduler which may go, and reports which are
//! done. [`submit`] is its door for tasks: `machine.perform(bio).await`.
//!
//! The complication: as in Linux the number of requests is bounded (`nr_requests`, for synchronous and asynchronous
//! ones apart, as `blk_alloc_request` had them). A submitter that finds none waits. So a flusher with gigabytes to
//! write shows a scheduler 128 requests at a time. That is much of the reason why block schedulers cannot tell what
//! comes (split-level paper, section 2.3).

pub mod bio;
pub mod flow;
pub mod host;
pub mod submit;

pub use bio::{Bio, BioEnd, Plug};
pub use host::{BlockHost, Served};
pub use submit::Timing;

use crate::trace::{Event, Trace};
use flow::Flow;
use plimsoll_core::{AccountId, BlockRequest, Completion, Dispatch, Operation, RequestId, Scheduler, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};

/// A request under way.
struct UnderWay {
    session: AccountId,
    operation: Operation,
    runs: u64,
    is_sync: bool,
    timing: Timing,
    state: SlotState,
    /// Kept for its memory when the place is used again.
    ends: Vec<BioEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    Free,
    Queued,
    Dispatched,
    /// Done, and the task that performs it has not looked yet.
    Done,
}

/// The block layer of one device.
pub struct BlockLayer {
    pub(crate) scheduler: Box<dyn Scheduler>,
    device: Box<dyn DeviceModel>,
    under_way: Vec<UnderWay>,
    free: Vec<u64>,
    not_before: Time,
    flow: Flow,
    /// Requests that the scheduler was handed, by session.
    of_session: Vec<u64>,
}

impl BlockLayer {
    /// A layer without requests. The scheduler knows its accounts already.
    pub fn new(scheduler: Box<dyn Scheduler>, device: Box<dyn DeviceModel>) -> BlockLayer {
        BlockLayer {
            scheduler,
            device,
            under_way: Vec::new(),
            free: Vec::new(),
            not_before: Time::MAX,
            flow: Flow::default(),
            of_session: Vec::new(),
        }
    }

    /// The device model.
    pub fn device(&self) -> &dyn DeviceModel {
        &*self.device
    }

    /// What came and what left.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Requests of this session that the scheduler was handed so far: by the name of the submission, not by cause.
    pub fn requests_of(&self, session: AccountId) -> u64 {
        self.of_session.get(session.index()).copied().unwrap_or(0)
    }

    /// Hands a request to the scheduler.
    pub(crate) fn add(
        &mut self,
        now: Time,
        bio: Bio,
        ends: impl IntoIterator<Item = BioEnd>,
        trace: &Trace,
    ) -> RequestId {
        let id = RequestId(self.free.pop().unwrap_or(self.under_way.len() as u64));
        let request = BlockRequest {
            id,
            session: bio.session,
            causes: bio.causes,
            class: bio.class,
            operation: bio.operation,
            offset: bio.offset,
            length: bio.length,
            is_sync: bio.is_sync,
            is_forced: bio.is_forced,
            file: bio.file,
            arrived: now,
        };
        let kept = self.under_way.get_mut(id.0 as usize).map(|entry| std::mem::take(&mut entry.ends));
        let mut kept = kept.unwrap_or_default();
        kept.extend(ends);
        let entry = UnderWay {
            session: request.session,
            operation: request.operation,
            runs: request.runs(),
            is_sync: request.is_sync,
            timing: Timing { arrived: now, dispatched: Time::MAX, completed: Time::MAX },
            state: SlotState::Queued,
            ends: kept,
        };
        match self.under_way.get_mut(id.0 as usize) {
            Some(place) => *place = entry,
            None => self.under_way.push(entry),
        }
        if self.of_session.len() <= request.session.index() {
            self.of_session.resize(request.session.index() + 1, 0);
        }
        self.of_session[request.session.index()] += 1;
        self.flow.add(now);
        trace.record(Event::Added, now, request.offset, u64::from(request.length));
        self.scheduler.request_added(now, request);
        id
    }

    /// Asks the scheduler for requests until it has none that may go now.
    pub(crate) fn dispatch(&mut self, now: Time, trace: &Trace) {
        self.not_before = loop {
            match self.scheduler.next(now) {
                Dispatch::Now(request) => {
                    let entry = &mut self.under_way[request.id.0 as usize];
                    assert_eq!(entry.state, SlotState::Queued, "the scheduler dispatches what is queued, once");
                    entry.state = SlotState::Dispatched;
                    entry.timing.dispatched = now;
                    self.flow.dispatched += 1;
                    trace.record(Event::Dispatched, now, request.offset, u64::from(request.length));
                    self.device.submit_classified(now, as_device_request(&request), request.class);
                }
                Dispatch::NotBefore(at) => {
                    assert!(at > now, "\"not before\" must lie in the future");
                    break at;
                }
                Dispatch::Nothing => break Time::MAX,
            }
        };
    }

    /// When something happens here next.
    pub(crate) fn next_event(&self) -> Time {
        self.device.next_completion().unwrap_or(Time::MAX).min(self.not_before)
    }

    /// Takes one request that the device has done by `now`, if there is one: whether it was synchronous, and the
    /// request. Appends the ends of its bios to `ends`.
    pub(crate) fn complete(&mut self, now: Time, ends: &mut Vec<BioEnd>, trace: &Trace) -> Option<(bool, Operation)> {
        let finished = self.device.complete(now)?;
        assert!(finished.at <= now, "the device is not ahead of time");
        let id = RequestId(finished.token);
        let entry = &mut self.under_way[id.0 as usize];
        assert_eq!(entry.state, SlotState::Dispatched, "the device finishes what it has, once");
        entry.timing.completed = finished.at;
        let service = finished.at.since(entry.timing.dispatched);
        let completion = Completion { id, session: entry.session, runs: entry.runs, service, succeeded: true };
        self.flow.complete(now, entry.timing.arrived);
        let is_awaited = matches!(entry.ends[..], [BioEnd::Task(_)]);
        entry.state = if is_awaited { SlotState::Done } else { SlotState::Free };
        let (is_sync, operation) = (entry.is_sync, entry.operation);
        ends.append(&mut entry.ends);
        if !is_awaited {
            self.free.push(id.0);
        }
        trace.record(Event::Completed, now, id.0, service.as_nanos());
        self.scheduler.request_completed(now, &completion);
        Some((is_sync, operation))
    }

    /// What became of a request that a task performs: `None` until it is done; then its place is free.
    fn take_timing(&mut self, id: RequestId) -> Option<Timing> {
        let entry = &mut self.under_way[id.0 as usize];
        if entry.state != SlotState::Done {
            return None;
        }
        entry.state = SlotState::Free;
        self.free.push(id.0);
        Some(entry.timing)
    }

    /// See [`Flow::assert_conserved`].
    pub(crate) fn assert_conserved(&mut self, now: Time) {
        let is_inside = |entry: &&UnderWay| matches!(entry.state, SlotState::Queued | SlotState::Dispatched);
        let arrivals = self.under_way.iter().filter(is_inside).map(|entry| entry.timing.arrived);
        self.flow.assert_conserved(now, arrivals);
        let dispatched = self.under_way.iter().filter(|entry| entry.state == SlotState::Dispatched).count();
        assert_eq!(dispatched, self.device.outstanding(), "the device has what was dispatched and not completed");
    }
}

fn as_device_request(request: &BlockRequest) -> DeviceRequest {
    DeviceRequest {
        token: request.id.0,
        operation: request.operation,
        offset: request.offset,
        length: request.length,
        is_forced: request.is_forced,
    }
}
