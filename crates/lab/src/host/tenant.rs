//! Tenants: block requests without a file system.

use super::recorder::Recorder;
use super::requests::Requests;
use super::{Accounts, HostError};
use crate::results::Source;
use crate::scenario::{Arrivals, Setup, TenantSetup};
use plimsoll_core::{AccountId, CauseSet, Class, Operation, Span, Time};
use plimsoll_sim::Machine;
use plimsoll_sim::block::{Bio, BioEnd};
use plimsoll_sim::numa::{Submitter, ThrottleLayer};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

struct Tenant {
    setup: TenantSetup,
    machine: Machine,
    session: AccountId,
    recorder: Recorder,
    source: Rc<RefCell<Source>>,
    requests: RefCell<Requests>,
    layer: Rc<ThrottleLayer>,
}

/// Starts all tenants of `setup`; answers with the layer that their threads' requests pass.
pub(super) fn start(
    machine: &Machine,
    setup: &Setup,
    accounts: &Accounts,
    seed: u64,
    recorder: &Recorder,
) -> Result<Rc<ThrottleLayer>, HostError> {
    let layer = Rc::new(ThrottleLayer::new(setup.machine.throttle_lock));
    let mut threads_before = 0;
    let capacity_bytes = machine.block.borrow().device().profile().capacity_bytes;
    for (number, tenant) in setup.tenants.iter().enumerate() {
        let tenant = Rc::new(Tenant {
            setup: tenant.clone(),
            machine: machine.clone(),
            session: accounts.ids[&tenant.account],
            source: recorder.source(&tenant.name),
            recorder: recorder.clone(),
            requests: RefCell::new(Requests::new(tenant, number, capacity_bytes, seed)?),
            layer: layer.clone(),
        });
        let node = |number| (tenant.setup.node.unwrap_or(number) % setup.machine.numa_nodes) as usize;
        let numbers = threads_before..threads_before + tenant.setup.threads;
        let threads: Vec<_> = numbers.map(|number| Rc::new(Submitter::new(number, node(number)))).collect();
        threads_before += tenant.setup.threads;
        match tenant.setup.arrivals {
            Arrivals::Closed { depth, think } => (0..depth as usize).for_each(|slot| {
                let thread = (!threads.is_empty()).then(|| threads[slot % threads.len()].clone());
                machine.spawn_kernel(tenant.clone().closed(thread, think));
            }),
            Arrivals::Open { per_second, outstanding_max: None } => {
                machine.spawn_kernel(tenant.open(per_second));
            }
            Arrivals::Open { per_second, outstanding_max: Some(depth) } => {
                let sent = Rc::<Cell<u64>>::default();
                (0..depth).for_each(|_| {
                    machine.spawn_kernel(tenant.clone().paced(per_second, sent.clone()));
                });
            }
        }
    }
    Ok(layer)
}

impl Tenant {
    fn begin(&self) -> Time {
        self.recorder.start.get() + self.setup.start
    }

    fn is_over(&self) -> bool {
        self.machine.now() >= self.recorder.start.get() + self.setup.stop
    }

    async fn closed(self: Rc<Self>, thread: Option<Rc<Submitter>>, think: Span) {
        self.machine.executor.sleep_until(self.begin()).await;
        while !self.is_over() {
            if let Some(thread) = &thread {
                let (executor, work) = (&self.machine.executor, self.machine.config.cpu.call);
                self.layer.pass(executor, thread, self.session.index(), work).await;
            }
            self.send().await;
            if think > Span::ZERO {
                self.machine.executor.sleep(think).await;
            }
        }
    }

    async fn open(self: Rc<Self>, per_second: f64) {
        for sent in 0u64.. {
            self.machine.executor.sleep_until(self.due(sent, per_second)).await;
            if self.is_over() {
                break;
            }
            let one = self.clone();
            self.machine.spawn_kernel(async move { one.send().await });
        }
    }

    /// One of several that take turns at the same arrivals, `sent` of which have gone or are waited for.
    async fn paced(self: Rc<Self>, per_second: f64, sent: Rc<Cell<u64>>) {
        loop {
            let due = self.due(sent.replace(sent.get() + 1), per_second);
            self.machine.executor.sleep_until(due).await;
            if self.is_over() {
                break;
            }
            self.send().await;
        }
    }

    /// When the arrival of this number comes.
    fn due(&self, number: u64, per_second: f64) -> Time {
        self.begin() + Span::from_secs_f64(number as f64 / per_second)
    }

    async fn send(&self) {
        let bio = self.next();
        let (operation, length) = (bio.operation, u64::from(bio.length));
        let timing = self.machine.perform(bio).await;
        let kind = if operation == Operation::Read { "read" } else { "write" };
        let latency = timing.completed.since(timing.arrived);
        self.source.borrow_mut().record(kind, self.recorder.at(timing.completed), latency, length);
    }

    fn next(&self) -> Bio {
        let (offset, length, is_read) = self.requests.borrow_mut().next();
        let operation = if is_read { Operation::Read } else { Operation::Write };
        Bio {
            session: self.session,
            causes: CauseSet::of(self.session),
            class: Class::UNCLASSIFIED,
            operation,
            offset,
            length: length as u32,
            is_sync: is_read,
            is_forced: false,
            file: None,
            end: BioEnd::Nothing,
        }
    }
}
