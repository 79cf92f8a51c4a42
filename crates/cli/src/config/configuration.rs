//! A whole configuration, after it was checked, and what follows from it.

mod targets;

use super::{Backing, Cache, DaemonSection, Device, ExecutorSection, Listen, Listens, Pool, Volume};
use plimsoll_core::Allocation;
use plimsoll_settings::Problem;
use plimsoll_settings::keys::Keys;
use std::path::PathBuf;

/// A whole configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The file that it was read from, as it was named.
    pub file: PathBuf,
    /// What stands in it, key by key.
    pub keys: Keys,
    /// The daemon itself.
    pub daemon: DaemonSection,
    /// Where clients connect: an entry for each front end that a volume has, and clients connect to.
    pub listens: Listens,
    /// The service threads.
    pub executor: ExecutorSection,
    /// Devices in the order of the file; each has at least one pool.
    pub devices: Vec<Device>,
    /// Pools, parents before children.
    pub pools: Vec<Pool>,
    /// Caches in the order of the file. A cache without a volume can be attached to one.
    pub caches: Vec<Cache>,
    /// Volumes in the order of the file.
    pub volumes: Vec<Volume>,
}

impl Configuration {
    /// The service threads, where a volume needs them.
    pub fn service_threads(&self) -> Option<&ExecutorSection> {
        let needs = |volume: &Volume| match &volume.backing {
            Backing::CompressedMemory { .. } => true,
            backing => backing.is_encrypted(),
        };
        self.volumes.iter().any(needs).then_some(&self.executor)
    }

    /// Where clients of the front end with that section connect; empty if no volume has it.
    pub fn listens(&self, section: &str) -> &[Listen] {
        self.listens.get(section).map_or(&[], |addresses| addresses)
    }

    /// The device called `name`.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The cache called `name`.
    pub fn cache(&self, name: &str) -> Option<&Cache> {
        self.caches.iter().find(|cache| cache.name == name)
    }

    /// The pool called `name`.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The names from below the device to the pool called `name`, joined by `/`.
    pub fn pool_path(&self, name: &str) -> String {
        match self.pool(name).and_then(|pool| pool.parent.as_deref()) {
            Some(parent) => format!("{}/{name}", self.pool_path(parent)),
            None => name.to_owned(),
        }
    }

    /// The path of the account that `volume` is: its pool's path and its own name.
    pub fn volume_path(&self, volume: &Volume) -> String {
        format!("{}/{}", self.pool_path(&volume.pool), volume.name)
    }

    /// What each session of `volume` is promised. Rates and weight are the volume's, shared by its sessions. A priority
    /// and deadlines are each session's own: the volume's, or those of the nearest pool around it that has any.
    pub fn session_allocation(&self, volume: &Volume) -> Allocation {
        self.inherited(&self.volume_path(volume))
    }

    /// `problem` as a message with the file's name.
    pub fn message(&self, problem: &Problem) -> String {
        format!("{}:{problem}", self.file.display())
    }
}
