//! The cache of a live run's device: the engine's own, with its journal, on an emulated fast device.
//!
//! The fast device is a file in memory that has no name, so nothing is left of it however a run ends. What is a write
//! for good and what only when it was flushed is as on a disk with a volatile write cache (`Semantics::WriteCache`).

use super::error::failed;
use super::{HostError, memory};
use crate::scenario::{CacheSetup, MachineSetup};
use plimsoll_engine::LATENESS_BOUND_DEFAULT;
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{CacheSettings, FoundCache};
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
