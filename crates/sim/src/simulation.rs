//! The run: one or several machines in one virtual time, and the loop that moves it.
//!
//! ```text
//!   run every ready task  ->  ask the schedulers (calls to release, wishes, requests to dispatch)  ->  any task ready?
//!            ^                                                                                          | no
//!            +------ wake sleepers, end what the devices have done <------ time jumps to the next event <+
//! ```
//!
//! So a scheduler is asked once all that happens at an instant has happened, as a host does that empties its plug.
//!
//! Machines share the executor and so the clock; each has its own memory, cores, file system, scheduler and device.
//! They reach each other by tasks: a guest's disk ([`crate::guest`]), a network ([`crate::network`]). Where order
//! matters, it is that in which they were added, so that several machines are as repeatable as one.

use crate::config::MachineConfig;
use crate::executor::Executor;
use crate::fs::FileSystem;
use crate::machine::Machine;
use crate::trace::mixed;
use plimsoll_core::{AccountTree, Scheduler, Time};
use plimsoll_devices::DeviceModel;
use std::rc::Rc;

/// Machines and their run.
pub struct Simulation {
    executor: Rc<Executor>,
    machines: Vec<Machine>,
}

impl Simulation {
    /// A machine at time zero, its file system mounted. The scheduler learns every account of `accounts`.
    pub fn new(
        config: MachineConfig,
        scheduler: Box<dyn Scheduler>,
        device: Box<dyn DeviceModel>,
        file_system: Rc<dyn FileSystem>,
        accounts: &AccountTree,
    ) -> Simulation {
        let mut simulation = Simulation { executor: Rc::default(), machines: Vec::new() };
        simulation.add_machine(config, scheduler, device, file_system, accounts);
        simulation
    }

    /// Adds a machine, which starts now. Its processes draw what those of the same name draw on a machine of the same
    /// seed: machines that should differ need seeds that do.
    pub fn add_machine(
        &mut self,
        config: MachineConfig,
        scheduler: Box<dyn Scheduler>,
        device: Box<dyn DeviceModel>,
        file_system: Rc<dyn FileSystem>,
        accounts: &AccountTree,
    ) -> Machine {
        let machine = Machine::boot(self.executor.clone(), config, scheduler, device, file_system, accounts);
        self.machines.push(machine.clone());
        machine
    }

    /// The first machine, to start processes on.
    pub fn machine(&self) -> &Machine {
        &self.machines[0]
    }

    /// All machines, in the order in which they were added.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// Runs until `end`, or until nothing happens any more before that.
    ///
    /// # Panics
    /// If anything was lost on its way through a layer, or Little's law does not hold in a block layer. Also if a great
    /// many steps are taken and no time passes.
    pub fn run_until(&mut self, end: Time) {
        loop {
            self.step();
            let next = self.next_event();
            if next > end || next == Time::MAX {
                break;
            }
            self.advance(next);
        }
        if end != Time::MAX {
            self.executor.advance(end);
        }
        self.assert_conserved();
    }

    /// Runs until every process of every machine has ended.
    ///
    /// # Panics
    /// As [`run_until`](Self::run_until), and if processes wait for what will never come, although the kernel's tasks
    /// go on.
    pub fn run_to_completion(&mut self) {
        loop {
            self.step();
            let running = self.running();
            if running == 0 {
                break;
            }
            let next = self.next_event();
            assert!(next != Time::MAX, "{running} processes wait for ever: {}", self.executor.processes());
            self.executor.assert_processes_run(next);
            self.advance(next);
        }
        self.assert_conserved();
    }

    /// Runs until every process of every machine has ended, or until `end`.
    ///
    /// # Panics
    /// As [`run_until`](Self::run_until).
    pub fn run_until_ended(&mut self, end: Time) {
        loop {
            self.step();
            let next = self.next_event();
            if self.running() == 0 || next > end {
                break;
            }
            self.advance(next);
        }
        self.assert_conserved();
    }

    /// Lets happen what happens at this instant.
    fn step(&mut self) {
        loop {
            self.executor.count_step();
            self.executor.run_ready();
            self.machines.iter().for_each(Machine::settle);
            if !self.executor.has_ready() && !self.machines.iter().any(Machine::is_unsettled) {
                break;
            }
        }
    }

    fn advance(&mut self, now: Time) {
        self.executor.advance(now);
        self.machines.iter().for_each(|machine| machine.advance(now));
    }

    fn next_event(&self) -> Time {
        let timer = self.executor.next_timer().unwrap_or(Time::MAX);
        self.machines.iter().map(Machine::next_event).fold(timer, Time::min)
    }

    /// Processes that have not ended.
    fn running(&self) -> u32 {
        self.machines.iter().map(|machine| machine.statistics.running()).sum()
    }

    /// A hash of the run so far: the same on every machine for the same programs and seeds. That of one simulated
    /// machine is its trace's; those of several are folded in the order in which they were added.
    pub fn trace_hash(&self) -> u64 {
        let hashes = self.machines.iter().map(|machine| machine.trace.hash());
        hashes.reduce(mixed).expect("there is a first machine")
    }

    /// Events so far: task runs, and what the traces have.
    pub fn events(&self) -> u64 {
        self.executor.polls() + self.machines.iter().map(|machine| machine.trace.events()).sum::<u64>()
    }

    fn assert_conserved(&self) {
        self.machines.iter().for_each(Machine::assert_conserved);
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.executor.clear();
    }
}
