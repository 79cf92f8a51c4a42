//! The block layer alone: tenants that send block requests, without files, a page cache or processes.
//!
//! What a scheduler's promises at the block level are tested on: as many requests as come, none merged or cut.

use crate::block::Bio;
use crate::config::MachineConfig;
use crate::fs::raw::Raw;
use crate::machine::Machine;
use crate::simulation::Simulation;
use crate::workload::{Arrivals, Tenant, Workload};
use plimsoll_core::{AccountTree, Scheduler, Time};
use plimsoll_devices::DeviceModel;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;

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

/// A device with a scheduler and tenants, in virtual time.
pub struct BlockHost {
    simulation: Simulation,
    tenants: usize,
    served: Rc<RefCell<Vec<Served>>>,
}

impl BlockHost {
    /// A host with a scheduler that learns every account of `accounts` at time zero.
    pub fn new(scheduler: Box<dyn Scheduler>, device: Box<dyn DeviceModel>, accounts: &AccountTree) -> BlockHost {
        let config = MachineConfig {
            request_bytes_max: u32::MAX,
            requests_max: u32::MAX,
            has_flusher: false,
            ..MachineConfig::default()
        };
        let file_system = Rc::new(Raw::new(device.profile().capacity_bytes));
        let simulation = Simulation::new(config, scheduler, device, file_system, accounts);
        BlockHost { simulation, tenants: 0, served: Rc::default() }
    }

    /// Adds a tenant; `seed` decides where its random requests go. Answers with its index.
    pub fn add_tenant(&mut self, workload: Workload, seed: u64) -> usize {
        let index = self.tenants;
        self.tenants += 1;
        let (start, arrivals) = (workload.active.start, workload.arrivals);
        let sender = Sender {
            machine: self.simulation.machine().clone(),
            index,
            tenant: Rc::new(RefCell::new(Tenant::new(workload, seed))),
            served: self.served.clone(),
        };
        let machine = self.simulation.machine();
        match arrivals {
            Arrivals::Closed { depth, think } => {
                for _ in 0..depth {
                    let sender = sender.clone();
                    machine.spawn_kernel(async move {
                        sender.machine.executor.sleep_until(start).await;
                        while sender.is_active() {
                            sender.send().await;
                            sender.machine.executor.sleep(think).await;
                        }
                    });
                }
            }
            Arrivals::Open { .. } => {
                machine.spawn_kernel(async move {
                    sender.machine.executor.sleep_until(start).await;
                    loop {
                        let next = sender.tenant.borrow().next_arrival();
                        if next == Time::MAX {
                            break;
                        }
                        sender.machine.executor.sleep_until(next).await;
                        let one = sender.clone();
                        sender.machine.spawn_kernel(async move { one.send().await });
                        sender.tenant.borrow_mut().count_arrival();
                    }
                });
            }
        }
        index
    }

    /// The scheduler, to change accounts while the run goes on.
    pub fn scheduler(&mut self) -> RefMut<'_, dyn Scheduler> {
        self.simulation.machine().scheduler()
    }

    /// Requests, task runs and completions so far.
    pub fn events(&self) -> u64 {
        self.simulation.events()
    }

    /// Runs until `end` and answers with what completed since the last call, in order.
    ///
    /// # Panics
    /// If a request was lost or answered twice: what was sent must be served or under way.
    pub fn run_until(&mut self, end: Time) -> Vec<Served> {
        self.simulation.run_until(end);
        self.served.take()
    }
}

#[derive(Clone)]
struct Sender {
    machine: Machine,
    index: usize,
    tenant: Rc<RefCell<Tenant>>,
    served: Rc<RefCell<Vec<Served>>>,
}

impl Sender {
    fn is_active(&self) -> bool {
        self.tenant.borrow().is_active(self.machine.now())
    }

    async fn send(&self) {
        let bio: Bio = self.tenant.borrow_mut().next_bio();
        let length = bio.length;
        let timing = self.machine.perform(bio).await;
        self.served.borrow_mut().push(Served {
            tenant: self.index,
            length,
            arrived: timing.arrived,
            dispatched: timing.dispatched,
            completed: timing.completed,
        });
    }
}
