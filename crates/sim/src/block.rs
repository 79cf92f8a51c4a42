//! The block layer in virtual time: tenants above, a scheduler in the middle, a device model below.
//!
//! ```text
//!   tenants --request_added--> scheduler --next()--> device model --complete()--> tenants
//! ```
//!
//! The loop jumps from event to event: the device's next completion, the scheduler's "not before", a tenant's next
//! arrival. After each it asks the scheduler for requests until there is none, as every host does.

use crate::workload::{Arrivals, Tenant, Workload};
use plimsoll_core::{AccountTree, BlockRequest, Completion, Dispatch, RequestId, Scheduler, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Index of the tenant, in the order in which they were added.
    pub tenant: usize,
    /// Bytes.
    pub length: u32,
    /// When it reached the scheduler.
    pub arrived: Time,
    /// When the scheduler gave it to the device.
    pub dispatched: Time,
    /// When the device was done.
    pub completed: Time,
}

struct UnderWay {
    tenant: usize,
    request: BlockRequest,
    dispatched: Time,
}

/// A device with a scheduler and tenants, in virtual time.
pub struct BlockHost {
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn DeviceModel>,
    tenants: Vec<Tenant>,
    /// By request number; `None` once it has completed.
    under_way: Vec<Option<UnderWay>>,
    free: Vec<u64>,
    /// Closed tenants that think: when they send their next request.
    thinking: BinaryHeap<Reverse<(Time, usize)>>,
    now: Time,
    not_before: Time,
    started: Vec<bool>,
    served: Vec<Served>,
    sent: u64,
    completed: u64,
}

impl BlockHost {
    /// A host whose scheduler learns every account of `accounts` at time zero.
    pub fn new(mut scheduler: Box<dyn Scheduler>, device: Box<dyn DeviceModel>, accounts: &AccountTree) -> BlockHost {
        accounts.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        BlockHost {
            scheduler,
            device,
            tenants: Vec::new(),
            under_way: Vec::new(),
            free: Vec::new(),
            thinking: BinaryHeap::new(),
            now: Time::ZERO,
            not_before: Time::MAX,
            started: Vec::new(),
            served: Vec::new(),
            sent: 0,
            completed: 0,
        }
    }

    /// Adds a tenant; `seed` decides where its random requests go. Answers with its index.
    pub fn add_tenant(&mut self, workload: Workload, seed: u64) -> usize {
        self.tenants.push(Tenant::new(workload, seed));
        self.started.push(false);
        self.tenants.len() - 1
    }

    /// The scheduler, to change accounts while the run goes on.
    pub fn scheduler(&mut self) -> &mut dyn Scheduler {
        &mut *self.scheduler
    }

    /// Runs until `end` and answers with what completed since the last call, in order.
    ///
    /// # Panics
    /// If a request was lost or answered twice: what was sent must be served or under way.
    pub fn run_until(&mut self, end: Time) -> Vec<Served> {
        loop {
            self.send_due();
            self.dispatch();
            let next = self.next_event();
            if next > end {
                break;
            }
            self.now = next;
            while let Some(finished) = self.device.complete(self.now) {
                self.complete(RequestId(finished.token), finished.at);
            }
        }
        self.now = end;
        let under_way = self.under_way.iter().flatten().count() as u64;
        assert_eq!(self.sent, self.completed + under_way, "flow is conserved");
        std::mem::take(&mut self.served)
    }

    fn next_event(&self) -> Time {
        let arrivals = self.tenants.iter().zip(&self.started).map(|(tenant, &started)| match started {
            false => tenant.workload.active.start,
            true => tenant.next_arrival(),
        });
        let thought = self.thinking.peek().map(|&Reverse((at, _))| at);
        let others = [thought, self.device.next_completion(), Some(self.not_before)];
        arrivals.chain(others.into_iter().flatten()).min().unwrap_or(Time::MAX)
    }

    fn send_due(&mut self) {
        while let Some(&Reverse((at, tenant))) = self.thinking.peek()
            && at <= self.now
        {
            self.thinking.pop();
            if self.tenants[tenant].is_active(self.now) {
                self.send(tenant);
            }
        }
        for index in 0..self.tenants.len() {
            let workload = &self.tenants[index].workload;
            if !self.started[index] && workload.active.start <= self.now {
                self.started[index] = true;
                if let Arrivals::Closed { depth, .. } = workload.arrivals {
                    (0..depth).for_each(|_| self.send(index));
                }
            }
            while self.started[index] && self.tenants[index].next_arrival() <= self.now {
                self.send(index);
            }
        }
    }

    fn send(&mut self, tenant: usize) {
        let id = RequestId(self.free.pop().unwrap_or(self.under_way.len() as u64));
        let request = self.tenants[tenant].next_request(id, self.now);
        let entry = Some(UnderWay { tenant, request: request.clone(), dispatched: Time::MAX });
        match self.under_way.get_mut(id.0 as usize) {
            Some(slot) => *slot = entry,
            None => self.under_way.push(entry),
        }
        self.sent += 1;
        self.scheduler.request_added(self.now, request);
    }

    fn dispatch(&mut self) {
        self.not_before = Time::MAX;
        loop {
            match self.scheduler.next(self.now) {
                Dispatch::Now(request) => {
                    let entry =
                        self.under_way[request.id.0 as usize].as_mut().expect("dispatched once, while under way");
                    assert_eq!(entry.dispatched, Time::MAX, "dispatched twice");
                    entry.dispatched = self.now;
                    self.device.submit(self.now, as_device_request(&request));
                }
                Dispatch::NotBefore(at) => {
                    assert!(at > self.now, "\"not before\" must lie in the future");
                    break self.not_before = at;
                }
                Dispatch::Nothing => break,
            }
        }
    }

    fn complete(&mut self, id: RequestId, at: Time) {
        let entry = self.under_way[id.0 as usize].take().expect("completed once, while under way");
        self.free.push(id.0);
        self.completed += 1;
        let service: Span = at.since(entry.dispatched);
        let (session, runs) = (entry.request.session, entry.request.runs());
        let completion = Completion { id, session, runs, service, succeeded: true };
        self.scheduler.request_completed(self.now, &completion);
        self.served.push(Served {
            tenant: entry.tenant,
            length: entry.request.length,
            arrived: entry.request.arrived,
            dispatched: entry.dispatched,
            completed: at,
        });
        if let Arrivals::Closed { think, .. } = self.tenants[entry.tenant].workload.arrivals {
            self.thinking.push(Reverse((at + think, entry.tenant)));
        }
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
