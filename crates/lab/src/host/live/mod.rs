//! The laboratory in real time: the same setup with real processes on a real file system.
//!
//! ```text
//!   processes of the scenario, their threads: pread, pwrite, fsync, ...
//!      ext4 or XFS  ->  loop device  ->  FUSE  ->  engine: the scenario's scheduler, the device's model in real time
//! ```
//!
//! The device is emulated in memory. So a run shows today's file system, page cache and writeback of the kernel. It
//! shows nothing of this machine's disk, unless it asks for that ([`own_disk`]). With `kernel_scheduler` the kernel's
//! own scheduler decides (as a rival). It gets priorities, with `kernel_limits` also limits and weights. The device
//! below it serves first come, first served. If the scenario has several accounts, or its scheduler decides above the
//! block layer, a station distinguishes processes and holds their calls ([`tenants`]). Tenants need none of this: they
//! are clients of the engine ([`clients`]). What the host cannot do is *not run*, with the reason: it takes root, FUSE
//! and loop devices, and BPF programs for a station.
//!
//! A scenario with a database has no processes: it has a real PostgreSQL ([`database`]).
//!
//! A cache before the device is the engine's own ([`cache`]). Its classes come from a station, and processes have as
//! much memory as the scenario's machine ([`memory`]).
//!
//! A machine that is busy with something else makes the emulated device answer late. Seconds with late replies don't
//! count. They are cut out, the run continues for as many more, and [`LiveHost::notes`] says how many they were.
//! Workloads with a start or a stop cannot be extended; there every second counts, and too many late replies make the
//! run *not run*.

mod cache;
mod cgroups;
mod clients;
pub(crate) mod clock;
mod counted;
mod crew;
mod database;
mod disk;
mod error;
mod files;
mod group_folder;
mod job;
mod knobs;
mod measure;
mod memory;
mod own_disk;
mod priority;
mod process;
mod program;
mod queue;
mod runner;
mod tally;
mod tenants;
mod utility;

pub use process::serve_process;
pub(crate) use queue::KERNEL_SCHEDULERS;

use super::{Host, HostError};
use crate::results::RunResult;
use crate::scenario::{DatabaseSetup, ProcessSetup, Setup};
use cgroups::Groups;
use clients::Clients;
use counted::Counted;
use crew::Crew;
use database::Database;
use disk::Disk;
use error::interrupted;
use job::Job;
use measure::measure;
use memory::MemoryGroup;
use plimsoll_core::{Allocation, ByteCount, Rate, Span, Time};
use plimsoll_workloads::Plan;
use priority::Priorities;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a volume may take of memory, bytes: a third of a machine with 24 GiB. A larger one takes it as it is written.
const VOLUME_BYTES_MAX: u64 = 8 << 30;
/// Bytes of a volume beside the prepared files: a journal, metadata, and 1 GiB. An appended file is cut at 1 GiB unless
/// the workload says otherwise.
const VOLUME_SPARE_BYTES: u64 = (1 << 30) + (256 << 20);
/// Memory that is left for everything else, bytes.
const MEMORY_SPARE_BYTES: u64 = 2 << 30;

/// The program that becomes a process of a scenario: with these arguments it calls [`serve_process`].
#[derive(Clone, Debug)]
pub struct ProcessProgram {
    /// The path of the program.
    pub path: PathBuf,
    /// What makes a process of it.
    pub arguments: Vec<OsString>,
}

/// Real processes on a real file system.
pub struct LiveHost {
    program: ProcessProgram,
    /// Ctrl-C was pressed.
    stop: Arc<AtomicBool>,
    /// What is worth knowing about the runs. Held during a run: each has the machine for itself.
    notes: Mutex<Vec<String>>,
}

impl LiveHost {
    /// A host with `program` for its processes. When `stop` is set, its runs end and are cleaned up.
    pub fn new(program: ProcessProgram, stop: Arc<AtomicBool>) -> LiveHost {
        LiveHost { program, stop, notes: Mutex::default() }
    }

    /// What is worth knowing about the runs so far, a line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cleans up after a killed run, as each run does before it begins. Answers a line for each step.
    ///
    /// # Errors
    /// A run is under way, or the folder of the runs cannot be opened.
    pub fn recover(&self) -> Result<Vec<String>, HostError> {
        disk::recover_what_was_left()
    }
}

impl Host for LiveHost {
    fn name(&self) -> &'static str {
        "live"
    }

    fn run(&self, setup: &Setup, seed: u64) -> Result<RunResult, HostError> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        if !setup.tenants.is_empty() {
            let disk = build_for_clients(setup, seed)?;
            notes.extend_from_slice(disk.recovered());
            notes.extend(disk.own().map(|own| format!("seed {seed}: {own}")));
            let clients = Clients::connect(&disk, setup, seed)?;
            let (result, late_seconds) = measure(&disk, setup, clients, clients::are_timed(setup), &self.stop)?;
            notes.extend(late_note(seed, late_seconds));
            return Ok(result);
        }
        match &setup.database {
            Some(database) => self.run_database(database, setup, seed, &mut notes),
            None => self.run_processes(setup, seed, &mut notes),
        }
    }
}

impl LiveHost {
    fn run_processes(&self, setup: &Setup, seed: u64, notes: &mut Vec<String>) -> Result<RunResult, HostError> {
        let allocation = check(setup).map_err(HostError::NotRun)?;
        let plans: Vec<Plan> = setup.processes.iter().map(|one| one.workload.plan(plan_seed(one, seed))).collect();
        let bytes = volume_bytes(setup.machine.volume_bytes, file_bytes(&plans)).map_err(HostError::NotRun)?;
        // Knobs are global: they are put back before the disk goes, whatever happens.
        let mut disk = Disk::build(setup, allocation, bytes, seed)?;
        notes.extend_from_slice(disk.recovered());
        let machine = &setup.machine;
        let _knobs = knobs::Knobs::set(&machine.config, disk.folder())?;
        let groups =
            machine.has_kernel_limits.then(|| Groups::make(setup, &disk.device(), disk.folder())).transpose()?;
        let memory = machine.cache.as_ref().map(|_| MemoryGroup::make(machine.config.memory_bytes, disk.folder()));
        let memory = memory.transpose()?;
        let crew = self.assemble(setup, seed, &disk, groups.as_ref(), memory.as_ref())?;
        let steered = groups.as_ref().filter(|_| machine.has_kernel_wdt);
        let _steering = steered.map(|groups| groups.steer(setup, &disk.device())).transpose()?;
        let is_timed = plans.iter().any(|plan| plan.active() != (Span::ZERO..Span::MAX));
        let mut counted = Counted::begin(&disk)?;
        let before = disk.requests()?;
        let (mut result, late_seconds) = measure(&disk, setup, crew, is_timed, &self.stop)?;
        let after = disk.requests()?;
        counted.add(&disk, setup.processes.iter().map(|process| &process.name), &mut result)?;
        for (process, plan) in setup.processes.iter().zip(&plans) {
            let started = Some(Time::ZERO + plan.active().start);
            result.sources.entry(process.name.clone()).and_modify(|source| source.started = started);
        }
        if !setup.utilities.is_empty() {
            disk.unmount()?;
            counted = Counted::begin(&disk)?;
        }
        for utility in &setup.utilities {
            let source = utility::run(utility, setup, &plans, &mut disk, memory.as_ref(), &self.stop)?;
            counted.add(&disk, [&utility.name], &mut result)?;
            result.sources.insert(utility.name.clone(), source);
        }
        if machine.cache.is_some() {
            notes.push(format!("seed {seed}: {}", measure::in_words(&disk, setup)?));
        }
        if after.0 > before.0 && tenants::are_needed(setup) {
            let (unknown, all) = (after.0 - before.0, after.1 - before.1);
            notes.push(format!("seed {seed}: of {all} requests the cause of {unknown} is not known"));
        }
        notes.extend(late_note(seed, late_seconds));
        Ok(result)
    }

    fn run_database(
        &self,
        of: &DatabaseSetup,
        setup: &Setup,
        seed: u64,
        notes: &mut Vec<String>,
    ) -> Result<RunResult, HostError> {
        let allocation = check(setup).map_err(HostError::NotRun)?;
        let machine = &setup.machine;
        let bytes = volume_bytes(machine.volume_bytes, database::bytes(of)).map_err(HostError::NotRun)?;
        let disk = Disk::build(setup, allocation, bytes, seed)?;
        notes.extend_from_slice(disk.recovered());
        let _knobs = knobs::Knobs::set(&machine.config, disk.folder())?;
        let memory = machine.cache.as_ref().map(|_| MemoryGroup::make(machine.config.memory_bytes, disk.folder()));
        let memory = memory.transpose()?;
        let database = Database::build(of, &disk, memory.as_ref(), seed, &self.stop)?;
        let mut counted = Counted::begin(&disk)?;
        let (mut result, late_seconds) = measure(&disk, setup, database.queries(), false, &self.stop)?;
        counted.add(&disk, [&of.name], &mut result)?;
        database.note_starts(&mut result);
        if machine.cache.is_some() {
            notes.push(format!("seed {seed}: {}", measure::in_words(&disk, setup)?));
        }
        notes.extend(late_note(seed, late_seconds));
        Ok(result)
    }

    /// Starts the processes, where they are told apart behind gates, and each in its groups.
    fn assemble(
        &self,
        setup: &Setup,
        seed: u64,
        disk: &Disk,
        groups: Option<&Groups>,
        memory: Option<&MemoryGroup>,
    ) -> Result<Crew, HostError> {
        let mut crew = Crew::default();
        for process in &setup.processes {
            let gates = disk.tenants().map(|tenants| tenants.launch(&process.account)).transpose()?;
            crew.add(&self.program, job(process, setup, seed, disk), gates.as_ref(), memory, &self.stop)?;
        }
        if let Some(tenants) = disk.tenants() {
            crew.enroll(tenants, &setup.processes)?;
        }
        if let Some(groups) = groups {
            crew.join(groups, &setup.processes)?;
        }
        Ok(crew)
    }
}

fn late_note(seed: u64, seconds: u64) -> Option<String> {
    let note = format!("seed {seed}: {seconds} seconds in which the emulated device answered late were left out");
    (seconds > 0).then_some(note)
}

/// The device for tenants that send block requests, as clients of the engine.
fn build_for_clients(setup: &Setup, seed: u64) -> Result<Disk, HostError> {
    clients::why_not(setup).map_or_else(|| Disk::build_bare(setup, seed), |reason| Err(HostError::NotRun(reason)))
}

/// Each process draws from a stream of its own, as on the simulator.
fn plan_seed(process: &ProcessSetup, seed: u64) -> u64 {
    let name = process.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name
}

fn job(process: &ProcessSetup, setup: &Setup, seed: u64, disk: &Disk) -> Job {
    let priorities = || Priorities::of(process, &setup.accounts);
    Job {
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        name: process.name.clone(),
        workload: process.workload.to_string(),
        seed: plan_seed(process, seed),
        folder: if process.is_in_root { disk.folder().to_owned() } else { disk.folder().join(&process.name) },
        is_in_root: process.is_in_root,
        is_written_before: process.is_written_before,
        is_until_ended: setup.is_until_ended,
        is_prepared: false,
        unit_sizes: process.unit_sizes.clone(),
        priorities: setup.machine.kernel_scheduler.map(|_| priorities()),
    }
}

/// What the mount's account is promised; or why the setup cannot be run here.
fn check(setup: &Setup) -> Result<Allocation, String> {
    match &setup.database {
        Some(_) => database::why_not().map_or(Ok(()), Err)?,
        None if setup.processes.is_empty() => return Err("a cluster runs on the simulator only".to_owned()),
        None => {}
    }
    utility::why_not(&setup.utilities).map_or(Ok(()), Err)?;
    let machine = &setup.machine;
    cache::why_not(machine).map_or(Ok(()), Err)?;
    if machine.alternate.is_some() {
        return Err("schedulers take turns where tenants are, not processes".to_owned());
    }
    if machine.own_disk_bytes.is_some() {
        return Err("a file system is on an emulated device only, own_disk is for tenants".to_owned());
    }
    if !machine.config.has_flusher {
        return Err("the kernel's flusher cannot be turned off".to_owned());
    }
    if let Some(process) = setup.processes.iter().find(|process| !process.file_deadlines.is_empty()) {
        let name = &process.name;
        return Err(format!("{name} has file_deadlines, but below a mount a request does not say which file it is of"));
    }
    disk::why_not_mounted(machine.file_system).map_or(Ok(()), Err)?;
    if machine.has_kernel_limits
        && let Some(reason) = cgroups::why_not(setup)
    {
        return Err(reason);
    }
    // The kernel's scheduler tells processes apart by itself, and the device below serves what it chose.
    if machine.kernel_scheduler.is_some() {
        return Ok(Allocation::default());
    }
    if tenants::are_needed(setup) {
        // Their sessions' reserves are taken out of the volume's, which is all there is on the device.
        let whole = Allocation { reserve: Rate::DevicePercent(100.0), ..Allocation::default() };
        return tenants::why_not(setup).map_or(Ok(whole), Err);
    }
    // No account is promised more than another, or there is only one.
    let sessions = setup.accounts.iter().filter(|account| !account.is_pool);
    Ok(sessions.map(|account| account.allocation).next().unwrap_or_default())
}

/// Bytes of the files that processes find.
fn file_bytes(plans: &[Plan]) -> u64 {
    let of_plan = |plan: &Plan| (0..plan.file_count()).map(|n| plan.file(plimsoll_workloads::FileIndex(n)).bytes).sum();
    plans.iter().map(|plan| -> u64 { of_plan(plan) }).sum()
}

/// Bytes of the volume: as the scenario says, or what its files need. A device that is larger than the allowed memory
/// gets what its files need.
fn volume_bytes(wanted: Option<u64>, files: u64) -> Result<u64, String> {
    let of_files = (files + VOLUME_SPARE_BYTES).next_multiple_of(1 << 20);
    let bytes = wanted.unwrap_or(of_files);
    let taken = if bytes > VOLUME_BYTES_MAX { of_files } else { bytes };
    let (needed, allowed) = (ByteCount(taken), ByteCount(VOLUME_BYTES_MAX));
    if taken > VOLUME_BYTES_MAX {
        return Err(format!("its files need a volume of {needed} in memory, allowed are {allowed}"));
    }
    match plimsoll_agent::memory::available_bytes() {
        Some(available) if available < taken + MEMORY_SPARE_BYTES => {
            let available = ByteCount(available);
            Err(format!("its files need a volume of {needed} in memory, of which {available} is available"))
        }
        _ => Ok(bytes),
    }
}
