//! The cache before the device of a live run: the engine's own, with its journal, on a fast device that is emulated
//! too.
//!
//! The fast device is a file in memory that has no name, so nothing is left of it however a run ends. What is a write for good
//! and what only when it was flushed is as on a disk with a volatile write cache (`Semantics::WriteCache`).

use super::disk::Disk;
use super::{HostError, failed, memory};
use crate::results::RunResult;
use crate::scenario::{CacheSetup, MachineSetup};
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::{CacheStatus, LATENESS_BOUND_DEFAULT};
use plimsoll_sim::cached_volume::{CacheFigures, ClassCounts};
use rustix::fs::{MemfdFlags, memfd_create};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

const NAME: &str = "plimsoll-cache";

/// Why the machine's cache cannot be run here, if so.
pub(super) fn why_not(machine: &MachineSetup) -> Option<String> {
    machine.cache.as_ref()?;
    match machine.kernel_scheduler {
        Some(_) => {
            Some("a cache takes the classes that our station tells, and a kernel_scheduler is without one".to_owned())
        }
        None => memory::why_not(),
    }
}

/// An empty cache for `volume`, as fast as its model; `None` if the setup has no policy.
pub(super) fn make(setup: &CacheSetup, volume: &Volume, seed: u64) -> Result<Option<FoundCache>, HostError> {
    let Some(policy) = setup.policy else { return Ok(None) };
    let file = memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(|errno| failed("make a file in memory", errno))?;
    // A process that opens this path has the file, too.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let settings = CacheSettings::new(NAME, path, policy, setup.scheme.scheme.clone());
    let settings = CacheSettings { size_bytes: Some(setup.bytes), ..settings };
    let found = FoundCache::find(settings, volume).map_err(|error| failed("make a cache", error))?;
    let model = plimsoll_devices::build(setup.device, seed).expect("a model that was chosen by its name");
    Ok(Some(found.emulated(model, LATENESS_BOUND_DEFAULT)))
}

/// What a cache had counted when it was last looked at; nothing where there is none.
pub(super) struct Counted(CacheFigures);

impl Counted {
    /// From now on.
    pub(super) fn begin(disk: &Disk) -> Result<Counted, HostError> {
        Ok(Counted(disk.cache()?.as_ref().map(figures).unwrap_or_default()))
    }

    /// What was counted since, while those called `names` did something.
    pub(super) fn add<'a>(
        &mut self,
        disk: &Disk,
        names: impl IntoIterator<Item = &'a String>,
        result: &mut RunResult,
    ) -> Result<(), HostError> {
        let Some(status) = disk.cache()? else { return Ok(()) };
        let now = figures(&status);
        result.cache.extend(names.into_iter().map(|name| (name.clone(), now.since(&self.0))));
        result.cache_units = u64::from(status.units);
        self.0 = now;
        Ok(())
    }
}

/// What the cache has counted since it was made, in the words of the simulated one. Blocks that came in are not counted
/// by class.
fn figures(status: &CacheStatus) -> CacheFigures {
    let mut figures = CacheFigures { cleaned: status.cleaned, ..CacheFigures::default() };
    for class in &status.classes {
        figures.classes[usize::from(class.number)] = ClassCounts {
            reads: class.reads,
            read_hits: class.read_hits,
            writes: class.writes,
            write_hits: class.write_hits,
            taken: 0,
            units: u64::from(class.units),
        };
    }
    figures
}
