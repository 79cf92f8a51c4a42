//! The laboratory in real time: the same setup with real processes on a real file system.
//!
//! ```text
//!   processes of the scenario, their threads: pread, pwrite, fsync, ...
//!      ext4 or XFS  ->  loop device  ->  FUSE  ->  engine: the scenario's scheduler, the device's model in real time
//! ```
//!
//! The device is emulated in memory, so a run says something about the kernel's file system, page cache and writeback
//! as they are today, and about nothing of this machine's disk, unless it asks for that ([`own_disk`]). With
//! `kernel_scheduler` the kernel's own scheduler decides (it is a rival): it is told priorities, with `kernel_limits`
//! also limits and weights, and the device below it serves first come, first served. Where ours has several accounts,
//! or decides above the block layer, a station tells processes apart and holds their calls ([`tenants`]). Tenants need
//! none of this: they are clients of the brick ([`clients`]). What the host cannot do is *not run*, with the reason: it
//! takes root, FUSE and loop devices, and BPF programs for a station.
//!
//! A machine that is busy with something else makes the emulated device answer late. Seconds in which it did don't count:
//! they are cut out, the run goes on for as many more, and [`LiveHost::notes`] says how many they were. Workloads with a
//! start or a stop cannot be extended; there every second counts, and too many late replies make the run *not run*.

mod cgroups;
mod clients;
pub(crate) mod clock;
mod crew;
mod disk;
mod files;
mod knobs;
mod own_disk;
mod priority;
mod process;
mod queue;
mod runner;
mod tally;
mod tenants;

pub use process::serve_process;
pub(crate) use queue::KERNEL_SCHEDULERS;

use super::{Host, HostError};
use crate::results::RunResult;
use crate::scenario::{ProcessSetup, Setup};
use cgroups::Groups;
use clients::Clients;
use crew::{Crew, Load};
use disk::Disk;
use plimsoll_core::{Allocation, ByteCount, Rate, Span};
use plimsoll_workloads::Plan;
use priority::Priorities;
use process::Job;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest volume, which lies in memory, bytes: a third of a machine with 24 GiB.
const VOLUME_BYTES_MAX: u64 = 8 << 30;
/// What a volume has beside the files that are prepared, bytes: a journal, metadata, and 1 GiB, at which an appended file
/// is cut unless the workload says otherwise.
const VOLUME_SPARE_BYTES: u64 = (1 << 30) + (256 << 20);
/// Memory that is left for everything else, bytes.
const MEMORY_SPARE_BYTES: u64 = 2 << 30;
/// A run takes at most so many times its length to find seconds in which the device was emulated truly.
const PATIENCE_FACTOR: u64 = 4;
/// Workloads with a start or a stop may have one late reply in so many.
const LATE_REPLIES_PART_MAX: u64 = 10;

/// The program that becomes a process of a scenario: with these arguments it calls [`serve_process`].
#[derive(Clone, Debug)]
pub struct ProcessProgram {
    /// Where it is.
    pub path: PathBuf,
    /// What makes a process of it.
    pub arguments: Vec<OsString>,
}

/// Real processes on a real file system.
pub struct LiveHost {
    program: ProcessProgram,
    /// Somebody pressed Ctrl-C.
    stop: Arc<AtomicBool>,
    /// What is worth knowing about the runs. Held during a run: each has the machine for itself.
    notes: Mutex<Vec<String>>,
}

impl LiveHost {
    /// A host whose processes are `program`, and whose runs end, and are put away, when `stop` is set.
    pub fn new(program: ProcessProgram, stop: Arc<AtomicBool>) -> LiveHost {
        LiveHost { program, stop, notes: Mutex::default() }
    }

    /// What is worth knowing about the runs so far, a line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
            notes.extend(disk.own().map(|own| format!("seed {seed}: {own}")));
            let clients = Clients::connect(&disk, setup, seed)?;
            let (result, late_seconds) = measure(&disk, setup, clients, clients::are_timed(setup), &self.stop)?;
            notes.extend(late_note(seed, late_seconds));
            return Ok(result);
        }
        let allocation = check(setup).map_err(HostError::NotRun)?;
        let plans: Vec<Plan> = setup.processes.iter().map(|one| one.workload.plan(plan_seed(one, seed))).collect();
        let bytes = volume_bytes(setup.machine.volume_bytes, &plans).map_err(HostError::NotRun)?;
        // Knobs are global: they are put back before the disk goes, whatever happens.
        let disk = Disk::build(setup, allocation, bytes, seed)?;
        let _knobs = knobs::Knobs::set(&setup.machine.config, disk.folder())?;
        let has_limits = setup.machine.has_kernel_limits;
        let groups = has_limits.then(|| Groups::make(setup, &disk.device(), disk.folder())).transpose()?;
        let mut crew = Crew::default();
        for process in &setup.processes {
            let gates = disk.tenants().map(|tenants| tenants.launch(process)).transpose()?;
            crew.add(&self.program, job(process, setup, seed, &disk), gates.as_ref(), &self.stop)?;
        }
        if let Some(tenants) = disk.tenants() {
            crew.enroll(tenants, &setup.processes)?;
        }
        if let Some(groups) = &groups {
            crew.join(groups, &setup.processes)?;
        }
        let is_steered = setup.machine.has_kernel_wdt;
        let steering = groups.as_ref().filter(|_| is_steered).map(|groups| groups.steer(setup, &disk.device()));
        let _steering = steering.transpose()?;
        let is_timed = plans.iter().any(|plan| plan.active() != (Span::ZERO..Span::MAX));
        let before = disk.requests()?;
        let (result, late_seconds) = measure(&disk, setup, crew, is_timed, &self.stop)?;
        let after = disk.requests()?;
        if disk.tenants().is_some() && after.0 > before.0 {
            let (unknown, all) = (after.0 - before.0, after.1 - before.1);
            notes.push(format!("seed {seed}: of {all} requests the cause of {unknown} is not known"));
        }
        notes.extend(late_note(seed, late_seconds));
        Ok(result)
    }
}

fn late_note(seed: u64, seconds: u64) -> Option<String> {
    let note = format!("seed {seed}: {seconds} seconds in which the emulated device answered late were left out");
    (seconds > 0).then_some(note)
}

/// The device for tenants that send block requests, as clients of the brick.
fn build_for_clients(setup: &Setup, seed: u64) -> Result<Disk, HostError> {
    clients::why_not(setup).map_or_else(|| Disk::build_bare(setup, seed), |reason| Err(HostError::NotRun(reason)))
}

fn interrupted() -> HostError {
    HostError::Failed("interrupted".to_owned())
}

fn failed(doing: impl std::fmt::Display, error: impl std::fmt::Display) -> HostError {
    HostError::Failed(format!("{doing}: {error}"))
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
        folder: disk.folder().join(&process.name),
        is_prepared: false,
        priorities: setup.machine.kernel_scheduler.map(|_| priorities()),
    }
}

/// What the mount's account is promised; or why the setup cannot be run here.
fn check(setup: &Setup) -> Result<Allocation, String> {
    if setup.processes.is_empty() {
        return Err("a cluster runs on the simulator only".to_owned());
    }
    if setup.machine.cache.is_some() || !setup.utilities.is_empty() {
        return Err("a cache before the device, and utilities, run on the simulator only".to_owned());
    }
    let machine = &setup.machine;
    if machine.own_disk_bytes.is_some() {
        return Err("a file system is on an emulated device only, own_disk is for tenants".to_owned());
    }
    if !machine.config.has_flusher {
        return Err("the kernel's flusher cannot be turned off".to_owned());
    }
    if let Some(process) = setup.processes.iter().find(|process| !process.file_deadlines.is_empty()) {
        let name = &process.name;
        return Err(format!("{name} has file_deadlines, but below a mount nobody can tell which file a request is of"));
    }
    disk::why_not_mounted(machine.file_system).map_or(Ok(()), Err)?;
    if machine.has_kernel_limits
        && let Some(reason) = cgroups::why_not(setup)
    {
        return Err(reason);
    }
    // The kernel's scheduler tells processes apart by itself, and the device below serves whom it chose.
    if machine.kernel_scheduler.is_some() {
        return Ok(Allocation::default());
    }
    if tenants::are_needed(setup) {
        // Their sessions' reserves are taken out of the volume's, which is all there is on the device.
        let whole = Allocation { reserve: Rate::DevicePercent(100.0), ..Allocation::default() };
        return tenants::why_not(setup).map_or(Ok(whole), Err);
    }
    // Nobody is promised more than another, or there is only one.
    let sessions = setup.accounts.iter().filter(|account| !account.is_pool);
    Ok(sessions.map(|account| account.allocation).next().unwrap_or_default())
}

/// Bytes of the volume: as the scenario says, or what its files need.
fn volume_bytes(wanted: Option<u64>, plans: &[Plan]) -> Result<u64, String> {
    let of_plan = |plan: &Plan| (0..plan.file_count()).map(|n| plan.file(plimsoll_workloads::FileIndex(n)).bytes).sum();
    let files: u64 = plans.iter().map(|plan| -> u64 { of_plan(plan) }).sum();
    let bytes = wanted.unwrap_or((files + VOLUME_SPARE_BYTES).next_multiple_of(1 << 20));
    let (needed, allowed) = (ByteCount(bytes), ByteCount(VOLUME_BYTES_MAX));
    if bytes > VOLUME_BYTES_MAX {
        return Err(format!("its files need a volume of {needed} in memory, allowed are {allowed}"));
    }
    match plimsoll_agent::memory::available_bytes() {
        Some(available) if available < bytes + MEMORY_SPARE_BYTES => {
            let available = ByteCount(available);
            Err(format!("its files need a volume of {needed} in memory, of which {available} is available"))
        }
        _ => Ok(bytes),
    }
}

/// Runs the load until there are as many seconds that count as the setup asks for; answers with how many did not.
fn measure(
    disk: &Disk,
    setup: &Setup,
    mut load: impl Load,
    is_timed: bool,
    stop: &AtomicBool,
) -> Result<(RunResult, u64), HostError> {
    let wanted = setup.duration.as_secs_f64().ceil() as u64;
    let patience = if is_timed { wanted } else { wanted * PATIENCE_FACTOR };
    let origin = load.start()?;
    let (mut counts, mut busy_samples, mut samples) = (Vec::new(), 0, 0);
    let mut before = disk.emulation()?;
    while counts.iter().filter(|&&counts| counts).count() < wanted as usize && (counts.len() as u64) < patience {
        let end = origin + Span::from_secs(counts.len() as u64 + 1);
        while clock::now() < end && !load.has_failed() {
            if stop.load(Ordering::Relaxed) {
                disk.release();
                return load.finish().and(Err(interrupted()));
            }
            clock::sleep_until(end.min(clock::now() + clock::SLICE));
            samples += 1;
            busy_samples += u64::from(disk.is_busy()?);
        }
        if load.has_failed() {
            break;
        }
        let now = disk.emulation()?;
        counts.push(is_timed || now.was_true_since(&before));
        before = now;
    }
    let late = counts.iter().filter(|&&counts| !counts).count() as u64;
    disk.release();
    let log = load.finish()?;
    if counts.len() as u64 - late < wanted {
        return Err(HostError::NotRun(format!(
            "this machine was too busy to emulate {}: of {} seconds {late} were late",
            setup.machine.device,
            counts.len(),
        )));
    }
    if is_timed {
        check_timed(disk, wanted)?;
    }
    let result = RunResult {
        hash: None,
        cpu_cores: log.processor().as_secs_f64() / counts.len() as f64,
        sources: log.sources(&counts),
        device_busy: busy_samples as f64 / f64::from(samples.max(1)),
        ..RunResult::default()
    };
    Ok((result, late))
}

/// Seconds of a timed workload all count; then the emulation must have been true over all of them.
fn check_timed(disk: &Disk, seconds: u64) -> Result<(), HostError> {
    let status = disk.emulation()?;
    let late_allowed = status.replies / LATE_REPLIES_PART_MAX;
    if status.late_replies <= late_allowed {
        return Ok(());
    }
    let (late, replies) = (status.late_replies, status.replies);
    Err(HostError::NotRun(format!(
        "this machine was too busy: in {seconds} s {late} of {replies} replies of the emulated device were late"
    )))
}
