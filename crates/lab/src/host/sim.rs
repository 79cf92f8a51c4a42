//! The simulator as a host: a machine in virtual time, its files prepared, then processes or tenants until the end.
//!
//! Files are prepared before the experiment starts, and the experiment starts at the next whole second after they are:
//! its seconds are the machine's, shifted. What the preparation left in memory is written back before that.

use super::{Accounts, Host, HostError, process, tenant};
use crate::results::{PRIORITY_LEVELS, RunResult, Source};
use crate::scenario::Setup;
use plimsoll_core::{Account, AccountTree, Priority, Span, Time};
use plimsoll_sim::fs::FileSystem;
use plimsoll_sim::fs::ext4::{self, Ext4};
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::fs::xfs::{self, Xfs};
use plimsoll_sim::{Machine, MachineConfig, Simulation};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// File systems of the simulator.
pub const FILE_SYSTEMS: &[&str] = &["raw", "ext4", "ext4-dioread-lock", "xfs"];
/// How often it is looked whether the device is busy and what tags take: fine enough for runs of seconds, and rarer than most requests.
const SAMPLE: Span = Span::from_millis(1);

/// The simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimHost;

/// What processes and tenants write their figures into, and when the experiment started.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    sources: Rc<RefCell<BTreeMap<String, Rc<RefCell<Source>>>>>,
    pub(super) start: Rc<Cell<Time>>,
}

impl Recorder {
    /// The figures of the processes or tenants of this name.
    pub(super) fn source(&self, name: &str) -> Rc<RefCell<Source>> {
        self.sources.borrow_mut().entry(name.to_owned()).or_default().clone()
    }

    /// The experiment's time: zero at its start.
    pub(super) fn at(&self, now: Time) -> Time {
        Time::ZERO + now.since(self.start.get())
    }
}

impl Host for SimHost {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&self, setup: &Setup, seed: u64) -> Result<RunResult, HostError> {
        // The simulator panics where an experiment asks for the impossible (a full device) and where it finds itself
        // wrong (a lost request); either ends this run only.
        let run = AssertUnwindSafe(|| run(setup, seed));
        catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("for no stated reason");
            Err(HostError::Failed(format!("the simulator stopped: {text}")))
        })
    }
}

fn run(setup: &Setup, seed: u64) -> Result<RunResult, HostError> {
    let machine = &setup.machine;
    let failed = |(name, error): (String, String)| HostError::Failed(format!("account {name}: {error}"));
    let accounts = Accounts::open(machine, &setup.accounts).map_err(failed)?;
    let mut simulation = build(setup, &accounts, seed);
    let recorder = Recorder::default();
    process::prepare(&mut simulation, setup, &accounts, seed);
    let start = Time::ZERO + Span::from_secs(simulation.machine().now().as_secs_f64().ceil() as u64);
    recorder.start.set(start);
    simulation.run_until(start);
    let cpu_before = simulation.machine().cpu_busy();
    process::start(simulation.machine(), setup, &accounts, seed, &recorder);
    tenant::start(simulation.machine(), setup, &accounts, seed, &recorder);
    let samples = sample(simulation.machine());
    let requests_before = requests_by_level(simulation.machine(), &accounts.tree);
    simulation.run_until(start + setup.duration);
    let cpu = simulation.machine().cpu_busy().saturating_sub(cpu_before);
    let hash = simulation.trace_hash();
    let priority_shares = shares(&requests_before, &requests_by_level(simulation.machine(), &accounts.tree));
    let tag_bytes_max = simulation.machine().cache.borrow().tag_bytes_max() as f64;
    drop(simulation);
    let seconds = setup.duration.as_secs_f64();
    let sources =
        recorder.sources.borrow().iter().map(|(name, source)| (name.clone(), source.borrow().clone())).collect();
    Ok(RunResult {
        hash: Some(hash),
        sources,
        cpu_cores: cpu.as_secs_f64() / seconds,
        device_busy: samples.busy.get() as f64 * SAMPLE.as_secs_f64() / seconds,
        priority_shares,
        tag_bytes_mean: samples.tag_bytes_sum.get() as f64 / samples.count.get().max(1) as f64,
        tag_bytes_max,
    })
}

fn build(setup: &Setup, accounts: &Accounts, seed: u64) -> Simulation {
    let machine = &setup.machine;
    let device = plimsoll_devices::build(machine.device, seed).expect("a model that was chosen by its name");
    let profile = device.profile().clone();
    let scheduler = plimsoll_schedulers::build(machine.scheduler, &profile).expect("chosen by its name");
    let volume_bytes = machine.volume_bytes.map_or(profile.capacity_bytes, |bytes| bytes.min(profile.capacity_bytes));
    let file_system: Rc<dyn FileSystem> = match machine.file_system {
        "raw" => Rc::new(Raw::new(volume_bytes)),
        "ext4" => Ext4::new(volume_bytes, ext4::Options::NOLOCK),
        "ext4-dioread-lock" => Ext4::new(volume_bytes, ext4::Options::ORDERED),
        "xfs" => Xfs::new(volume_bytes, xfs::Options::default()),
        other => unreachable!("{other} is not among FILE_SYSTEMS"),
    };
    let mut config = MachineConfig { seed, ..machine.config.clone() };
    config.accounts.flusher = accounts.flusher;
    config.accounts.journal = accounts.journal;
    if setup.processes.is_empty() {
        // Tenants send requests as they are: nothing is cut, and as many come as want.
        config = MachineConfig { request_bytes_max: u32::MAX, requests_max: u32::MAX, has_flusher: false, ..config };
    }
    Simulation::new(config, scheduler, device, file_system, &accounts.tree)
}

/// What was seen at the samples.
#[derive(Default)]
struct Samples {
    count: Cell<u64>,
    /// Samples at which the device had something to do.
    busy: Cell<u64>,
    tag_bytes_sum: Cell<u64>,
}

/// Looks at the machine now and then until its end.
fn sample(machine: &Machine) -> Rc<Samples> {
    let (samples, machine) = (Rc::<Samples>::default(), machine.clone());
    let seen = samples.clone();
    machine.clone().spawn_kernel(async move {
        loop {
            machine.executor.sleep(SAMPLE).await;
            let is_busy = machine.block.borrow().device().outstanding() > 0;
            seen.count.set(seen.count.get() + 1);
            seen.busy.set(seen.busy.get() + u64::from(is_busy));
            seen.tag_bytes_sum.set(seen.tag_bytes_sum.get() + machine.cache.borrow().tag_bytes());
        }
    });
    samples
}

/// Requests that the scheduler was handed, by the level of the session in whose name they came; the last are those
/// of sessions without a level.
fn requests_by_level(machine: &Machine, accounts: &AccountTree) -> [u64; PRIORITY_LEVELS + 1] {
    let mut requests = [0; PRIORITY_LEVELS + 1];
    let block = machine.block.borrow();
    for Account { id, allocation, .. } in accounts.iter() {
        let level = match allocation.priority {
            Priority::Level(level) => usize::from(level),
            Priority::RealTime(_) | Priority::Idle => PRIORITY_LEVELS,
        };
        requests[level] += block.requests_of(*id);
    }
    requests
}

/// The part of each level in what came between `before` and `after`.
fn shares(before: &[u64; PRIORITY_LEVELS + 1], after: &[u64; PRIORITY_LEVELS + 1]) -> [f64; PRIORITY_LEVELS] {
    let came = |level: usize| after[level] - before[level];
    let total: u64 = (0..=PRIORITY_LEVELS).map(came).sum();
    std::array::from_fn(|level| came(level) as f64 / total.max(1) as f64)
}
