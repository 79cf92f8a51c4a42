//! Tenants: block requests without a file system.

use super::Accounts;
use super::sim::Recorder;
use crate::results::Source;
use crate::scenario::{Arrivals, Setup, TenantSetup};
use plimsoll_core::{AccountId, CauseSet, Class, Operation, Span, Time};
use plimsoll_sim::Machine;
use plimsoll_sim::block::{Bio, BioEnd};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Random requests are aligned to this, or to their length if that is less: file systems' blocks. Bytes.
const ALIGNMENT_BYTES: u64 = 4096;

struct Tenant {
    setup: TenantSetup,
    machine: Machine,
    session: AccountId,
    recorder: Recorder,
    source: Rc<RefCell<Source>>,
    place: RefCell<Place>,
    region: (u64, u64),
}

struct Place {
    random: Pcg64Mcg,
    position: u64,
}

/// Starts all tenants of `setup`.
pub(super) fn start(machine: &Machine, setup: &Setup, accounts: &Accounts, seed: u64, recorder: &Recorder) {
    let capacity = machine.block.borrow().device().profile().capacity_bytes;
    for (number, tenant) in setup.tenants.iter().enumerate() {
        let byte = |fraction: f64| (capacity as f64 * fraction) as u64 / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let region = (byte(tenant.region.0), byte(tenant.region.1));
        let random = Pcg64Mcg::new(u128::from(seed) << 64 | (number as u128) << 1 | 1);
        let tenant = Rc::new(Tenant {
            setup: tenant.clone(),
            machine: machine.clone(),
            session: accounts.ids[&tenant.account],
            source: recorder.source(&tenant.name),
            recorder: recorder.clone(),
            place: RefCell::new(Place { random, position: region.0 }),
            region,
        });
        match tenant.setup.arrivals {
            Arrivals::Closed { depth, think } => (0..depth).for_each(|_| {
                machine.spawn_kernel(tenant.clone().closed(think));
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
}

impl Tenant {
    fn begin(&self) -> Time {
        self.recorder.start.get() + self.setup.start
    }

    fn is_over(&self) -> bool {
        self.machine.now() >= self.recorder.start.get() + self.setup.stop
    }

    async fn closed(self: Rc<Self>, think: Span) {
        self.machine.executor.sleep_until(self.begin()).await;
        while !self.is_over() {
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
        let (length, (from, to)) = (u64::from(self.setup.length), self.region);
        let mut place = self.place.borrow_mut();
        let offset = if self.setup.is_random {
            let step = length.min(ALIGNMENT_BYTES);
            let places = (to - from).saturating_sub(length) / step + 1;
            from + place.random.next_u64() % places * step
        } else {
            let offset = if place.position + length > to { from } else { place.position };
            place.position = offset + length;
            offset
        };
        let is_read = place.random.next_u64() % 100 < u64::from(self.setup.read_percent);
        let operation = if is_read { Operation::Read } else { Operation::Write };
        Bio {
            session: self.session,
            causes: CauseSet::of(self.session),
            class: Class::UNCLASSIFIED,
            operation,
            offset,
            length: self.setup.length,
            is_sync: is_read,
            is_forced: false,
            file: None,
            end: BioEnd::Nothing,
        }
    }
}
