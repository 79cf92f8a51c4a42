//! Tenants: block requests without a file system.

use super::sim::Recorder;
use super::{Accounts, HostError};
use crate::results::Source;
use crate::scenario::{Arrivals, Setup, TenantSetup};
use plimsoll_core::{AccountId, CauseSet, Class, Operation, Span, Time};
use plimsoll_sim::Machine;
use plimsoll_sim::block::{Bio, BioEnd};
use plimsoll_sim::numa::{Submitter, ThrottleLayer};
use plimsoll_traces::TraceRecord;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Random requests are aligned to this, or to their length if that is less: file systems' blocks. Bytes.
const ALIGNMENT_BYTES: u64 = 4096;
/// Requests of a trace that are used: more than a run of some seconds sends, and no run reads a million.
const TRACE_REQUESTS_MAX: usize = 200_000;
/// Longest request of a trace that is sent, as for tenants without one. Bytes.
const TRACE_LENGTH_BYTES_MAX: u64 = 64 << 20;

struct Tenant {
    setup: TenantSetup,
    machine: Machine,
    session: AccountId,
    recorder: Recorder,
    source: Rc<RefCell<Source>>,
    place: RefCell<Place>,
    region: (u64, u64),
    layer: Rc<ThrottleLayer>,
    /// What is sent, if it was recorded.
    trace: Vec<TraceRecord>,
}

struct Place {
    random: Pcg64Mcg,
    /// Of a stream, the next byte; of a trace, the number of the next request.
    position: u64,
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
    let capacity = machine.block.borrow().device().profile().capacity_bytes;
    for (number, tenant) in setup.tenants.iter().enumerate() {
        let byte = |fraction: f64| (capacity as f64 * fraction) as u64 / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let region = (byte(tenant.region.0), byte(tenant.region.1));
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | (number as u128) << 1 | 1);
        let trace = tenant.trace.as_deref().map_or(Ok(Vec::new()), |path| recorded(&tenant.name, path))?;
        let position = if trace.is_empty() { region.0 } else { random.next_u64() % trace.len() as u64 };
        let tenant = Rc::new(Tenant {
            setup: tenant.clone(),
            machine: machine.clone(),
            session: accounts.ids[&tenant.account],
            source: recorder.source(&tenant.name),
            recorder: recorder.clone(),
            place: RefCell::new(Place { random, position }),
            region,
            layer: layer.clone(),
            trace,
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

/// The reads and writes of a tenant's trace.
fn recorded(tenant: &str, path: &Path) -> Result<Vec<TraceRecord>, HostError> {
    if !path.exists() {
        let another = format!("--set tenant.{tenant}.trace=PATH takes another");
        return Err(HostError::NotRun(format!("the trace {} is not there; {another}", path.display())));
    }
    let failed = |error: plimsoll_traces::TraceError| HostError::Failed(error.to_string());
    let reader = plimsoll_traces::open(path, None).map_err(failed)?;
    let is_sent = |record: &TraceRecord| {
        matches!(record.operation, Operation::Read | Operation::Write)
            && (1..=TRACE_LENGTH_BYTES_MAX).contains(&record.length)
    };
    let records: Result<Vec<_>, _> = reader.take(TRACE_REQUESTS_MAX).collect();
    let records: Vec<_> = records.map_err(failed)?.into_iter().filter(is_sent).collect();
    match records.is_empty() {
        true => Err(HostError::Failed(format!("the trace {} has neither reads nor writes", path.display()))),
        false => Ok(records),
    }
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

    /// Where the next request goes, how long it is and whether it reads.
    fn choose(&self) -> (u64, u64, bool) {
        let (from, to) = self.region;
        let mut place = self.place.borrow_mut();
        if !self.trace.is_empty() {
            let record = self.trace[place.position as usize];
            place.position = (place.position + 1) % self.trace.len() as u64;
            // The device need not be the recorded one: what lies beyond the region starts again at its beginning.
            let offset = from + record.offset % (to - from).saturating_sub(record.length).max(1);
            return (offset, record.length, record.operation == Operation::Read);
        }
        let length = u64::from(self.setup.length);
        let offset = if self.setup.is_random {
            let step = length.min(ALIGNMENT_BYTES);
            let places = (to - from).saturating_sub(length) / step + 1;
            from + place.random.next_u64() % places * step
        } else {
            let offset = if place.position + length > to { from } else { place.position };
            place.position = offset + length;
            offset
        };
        (offset, length, place.random.next_u64() % 100 < u64::from(self.setup.read_percent))
    }

    fn next(&self) -> Bio {
        let (offset, length, is_read) = self.choose();
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
