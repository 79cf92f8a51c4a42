//! The simulator as a host: a machine in virtual time that prepares files, then runs processes or tenants to the end.
//!
//! Files are prepared before the experiment starts, and the experiment starts at the next whole second after they are:
//! its seconds are the machine's, shifted. What the preparation left in memory is written back before that.

use super::parts::{file_system, scheduler, seed_of};
use super::recorder::Recorder;
use super::{Accounts, Host, HostError, cluster, filer, guest, process, tenant, utility};
use crate::results::{PRIORITY_LEVELS, RunResult};
use crate::scenario::{CacheSetup, MachineSetup, Setup};
use plimsoll_cache::CacheConfig;
use plimsoll_cache::units::UNIT_BYTES;
use plimsoll_core::{Account, AccountTree, Priority, Span, Time};
use plimsoll_devices::DeviceModel;
use plimsoll_sim::cached_volume::{CacheFigures, CachedVolume, Elevator};
use plimsoll_sim::{Machine, MachineConfig, Simulation};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Interval of samples of the device's load and the tags' memory: fine enough for runs of seconds, and rarer than most
/// requests.
const SAMPLE: Span = Span::from_millis(1);

/// The simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimHost;

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
    if let Some(of) = &setup.filer {
        return filer::run(of, setup.duration, seed);
    }
    if let Some(scheduler) = setup.machine.kernel_scheduler {
        return Err(HostError::NotRun(format!("the kernel's {scheduler} is on the live host only")));
    }
    if setup.machine.own_disk_bytes.is_some() {
        return Err(HostError::NotRun("this machine's own disk is on the live host only".to_owned()));
    }
    if setup.machine.alternate.is_some() {
        return Err(HostError::NotRun("schedulers take turns on the live host only".to_owned()));
    }
    if setup.database.is_some() {
        return Err(HostError::NotRun("a real database is on the live host only".to_owned()));
    }
    let failed = |(name, error): (String, String)| HostError::Failed(format!("account {name}: {error}"));
    let accounts = Accounts::open(&setup.machine, &setup.accounts).map_err(failed)?;
    let (mut simulation, volume) = build(setup, &accounts, seed)?;
    let recorder = Recorder::default();
    // The host, or the nodes of a cluster; guests are added later.
    let machines = simulation.machines().to_vec();
    let on_host = || setup.processes.iter().filter(|process| process.guest.is_none());
    let guests = guest::boot(&mut simulation, setup, &accounts, seed);
    process::prepare(&mut simulation, &machines[0], on_host(), accounts.flusher, seed);
    let start = Time::ZERO + Span::from_secs(simulation.machine().now().as_secs_f64().ceil() as u64);
    recorder.start.set(start);
    simulation.run_until(start);
    let cpu_before = cpu_busy(&machines);
    process::start(&machines[0], on_host(), &accounts, seed, &recorder);
    guests.iter().for_each(|guest| guest.start(setup, &recorder));
    let throttle_layer = tenant::start(&machines[0], setup, &accounts, seed, &recorder)?;
    let cluster = setup.cluster.map(|of| cluster::start(&simulation, setup, &of, &accounts, seed, &recorder));
    let samples = sample(&machines);
    let requests_before = requests_by_level(&machines, &accounts.tree);
    let end = start + setup.duration;
    let cache = run_stages(&mut simulation, setup, &accounts, volume.as_ref(), &recorder, end);
    if let Some(cluster) = cluster {
        cluster.assert_conserved();
    }
    let cpu = cpu_busy(&machines).saturating_sub(cpu_before);
    let seconds = simulation.machine().now().since(start).as_secs_f64();
    let sources = recorder.sources.borrow().iter().map(|(name, of)| (name.clone(), of.borrow().clone())).collect();
    let tag_bytes_max = machines.iter().map(|machine| machine.cache.borrow().tag_bytes_max()).max();
    Ok(RunResult {
        hash: Some(simulation.trace_hash()),
        sources,
        cpu_cores: cpu.as_secs_f64() / seconds,
        device_busy: samples.busy.get() as f64 * SAMPLE.as_secs_f64() / seconds / machines.len() as f64,
        priority_shares: shares(&requests_before, &requests_by_level(&machines, &accounts.tree)),
        tag_bytes_mean: samples.tag_bytes_sum.get() as f64 / samples.count.get().max(1) as f64 / machines.len() as f64,
        tag_bytes_max: tag_bytes_max.unwrap_or(0) as f64,
        cache,
        cache_units: setup.machine.cache.as_ref().map_or(0, |cache| cache.bytes / UNIT_BYTES),
        far_lines: throttle_layer.far_lines_per_request(),
        ..RunResult::default()
    })
}

/// Runs processes until they or the run end, then one utility after the other. Answers the cache's figures of each.
fn run_stages(
    simulation: &mut Simulation,
    setup: &Setup,
    accounts: &Accounts,
    volume: Option<&CachedVolume>,
    recorder: &Recorder,
    end: Time,
) -> BTreeMap<String, CacheFigures> {
    let (mut figures, mut before) = (BTreeMap::new(), volume.map(CachedVolume::figures).unwrap_or_default());
    let mut counted = |names: Vec<&String>| {
        let Some(now) = volume.map(CachedVolume::figures) else { return };
        figures.extend(names.into_iter().map(|name| (name.clone(), now.since(&before))));
        before = now;
    };
    if !setup.is_until_ended {
        simulation.run_until(end);
        counted(setup.processes.iter().map(|process| &process.name).collect());
        return figures;
    }
    simulation.run_until_ended(end);
    counted(setup.processes.iter().map(|process| &process.name).collect());
    for utility in &setup.utilities {
        let process = setup.processes.iter().find(|process| process.name == utility.of);
        let folder = process::folder(process.expect("checked when it was read"));
        utility::start(simulation.machine(), utility, folder, accounts.ids[&utility.account], recorder);
        simulation.run_until_ended(end);
        counted(vec![&utility.name]);
    }
    figures
}

/// The machine, or all nodes of the cluster; and the machine's volume, if there is a cache before its device.
fn build(setup: &Setup, accounts: &Accounts, seed: u64) -> Result<(Simulation, Option<CachedVolume>), HostError> {
    let MachineSetup { device, scheduler: scheduler_name, volume_bytes, .. } = setup.machine;
    let mut config = setup.machine.config.clone();
    config.accounts.flusher = accounts.flusher;
    config.accounts.journal = accounts.journal;
    if !setup.tenants.is_empty() {
        // Tenants send requests as they are: nothing is cut, and as many come as want.
        config = MachineConfig { request_bytes_max: u32::MAX, requests_max: u32::MAX, has_flusher: false, ..config };
    }
    let parts = |seed| {
        let device = plimsoll_devices::build(device, seed).expect("a model that was chosen by its name");
        let capacity_bytes = device.profile().capacity_bytes;
        let bytes = volume_bytes.map_or(capacity_bytes, |bytes| bytes.min(capacity_bytes));
        let scheduler = scheduler(scheduler_name, device.profile());
        (
            MachineConfig { seed, ..config.clone() },
            scheduler,
            device,
            file_system(setup.machine.file_system, bytes, setup.machine.journal_bytes),
        )
    };
    let (config, scheduler, device, files) = parts(seed);
    let (device, volume) = cached(device, setup.machine.cache.as_ref(), seed)?;
    let mut simulation = Simulation::new(config, scheduler, device, files, &accounts.tree);
    for number in 1..setup.cluster.map_or(1, |cluster| cluster.nodes) {
        let (config, scheduler, device, files) = parts(seed_of(seed, number));
        simulation.add_machine(config, scheduler, device, files, &accounts.tree);
    }
    Ok((simulation, volume))
}

/// `store` with a cache before it, if there is one.
fn cached(
    store: Box<dyn DeviceModel>,
    setup: Option<&CacheSetup>,
    seed: u64,
) -> Result<(Box<dyn DeviceModel>, Option<CachedVolume>), HostError> {
    let Some(setup) = setup else { return Ok((store, None)) };
    let Some(policy) = setup.policy else { return Ok((Box::new(Elevator::new(store)), None)) };
    let fast = plimsoll_devices::build(setup.device, seed).expect("a model that was chosen by its name");
    let units = u32::try_from(setup.bytes / UNIT_BYTES).unwrap_or(u32::MAX);
    let config = CacheConfig { seed, ..CacheConfig::new(units, setup.scheme.scheme.clone()) };
    let volume = CachedVolume::new(&config, policy, fast, store);
    let volume = volume.map_err(|error| HostError::Failed(format!("cache: {error}")))?;
    Ok((Box::new(volume.clone()), Some(volume)))
}

fn cpu_busy(machines: &[Machine]) -> Span {
    machines.iter().map(Machine::cpu_busy).sum()
}

/// What was seen at the samples.
#[derive(Default)]
struct Samples {
    count: Cell<u64>,
    /// Devices that had something to do, over all samples.
    busy: Cell<u64>,
    tag_bytes_sum: Cell<u64>,
}

/// Looks at the machines now and then until their end.
fn sample(machines: &[Machine]) -> Rc<Samples> {
    let (samples, machines) = (Rc::<Samples>::default(), machines.to_vec());
    let seen = samples.clone();
    machines[0].clone().spawn_kernel(async move {
        loop {
            machines[0].executor.sleep(SAMPLE).await;
            let busy = machines.iter().filter(|machine| machine.block.borrow().device().outstanding() > 0).count();
            let tag_bytes = machines.iter().map(|machine| machine.cache.borrow().tag_bytes()).sum::<u64>();
            seen.count.set(seen.count.get() + 1);
            seen.busy.set(seen.busy.get() + busy as u64);
            seen.tag_bytes_sum.set(seen.tag_bytes_sum.get() + tag_bytes);
        }
    });
    samples
}

/// Requests that the schedulers got, by the level of their session. The last element is for sessions without a level.
fn requests_by_level(machines: &[Machine], accounts: &AccountTree) -> [u64; PRIORITY_LEVELS + 1] {
    let mut requests = [0; PRIORITY_LEVELS + 1];
    for Account { id, allocation, .. } in accounts.iter() {
        let level = match allocation.priority {
            Priority::Level(level) => usize::from(level),
            Priority::RealTime(_) | Priority::Idle => PRIORITY_LEVELS,
        };
        requests[level] += machines.iter().map(|machine| machine.block.borrow().requests_of(*id)).sum::<u64>();
    }
    requests
}

/// The part of each level in what came between `before` and `after`.
fn shares(before: &[u64; PRIORITY_LEVELS + 1], after: &[u64; PRIORITY_LEVELS + 1]) -> [f64; PRIORITY_LEVELS] {
    let came = |level: usize| after[level] - before[level];
    let total: u64 = (0..=PRIORITY_LEVELS).map(came).sum();
    std::array::from_fn(|level| came(level) as f64 / total.max(1) as f64)
}
