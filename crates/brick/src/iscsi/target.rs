//! Targets: what initiators discover and log in to. Each has one logical unit, number 0.

use super::chap::Chap;
use super::text;
use crate::backend::VolumeInfo;
use crate::scsi::{Geometry, Identity, LogicalUnit, NexusId, PortName};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A target and its unit.
///
/// The unit stands behind a lock, because sessions begin on threads of their own. All its commands come from one thread,
/// that of the volume's device, so that the lock is free whenever it is taken there, but for the moment of a login.
pub struct Target {
    name: String,
    chap: Option<Chap>,
    unit: Mutex<LogicalUnit>,
    connections: Mutex<Vec<Connected>>,
}

/// A connection, from its login until nothing of its session is under way any more.
struct Connected {
    nexus: NexusId,
    port: PortName,
    socket: OwnedFd,
    /// Its front end's number, once it is attached.
    front_end: Option<u32>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Target {
    /// A target of that iSCSI name.
    pub fn new(name: &str, chap: Option<Chap>, unit: LogicalUnit) -> Target {
        Target { name: name.to_owned(), chap, unit: Mutex::new(unit), connections: Mutex::default() }
    }

    /// The target called `name` whose unit is `volume`.
    pub fn of_volume(name: &str, chap: Option<Chap>, volume: &VolumeInfo, is_rotational: bool) -> Target {
        let geometry = Geometry {
            block_bytes: volume.block_bytes,
            blocks: volume.size_bytes / u64::from(volume.block_bytes),
            is_read_only: volume.is_read_only,
            is_rotational,
        };
        Target::new(name, chap, LogicalUnit::new(geometry, Identity::new(name, &volume.name)))
    }

    /// Its iSCSI name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its unit.
    pub fn unit(&self) -> MutexGuard<'_, LogicalUnit> {
        locked(&self.unit)
    }

    /// A session of `port` begins on `socket`. One that it had before ends, and its connection is closed (RFC 7143, 6.3.5).
    ///
    /// # Errors
    /// No descriptor is left to remember the socket by.
    pub fn session_began(&self, port: &PortName, socket: impl AsFd) -> std::io::Result<NexusId> {
        let own = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        let mut connections = locked(&self.connections);
        for other in connections.iter().filter(|other| other.port == *port) {
            // An error means that it has ended already.
            let _ = shutdown(&other.socket, Shutdown::Both);
        }
        let nexus = self.unit().session_began(port.clone());
        connections.push(Connected { nexus, port: port.clone(), socket: own, front_end: None });
        Ok(nexus)
    }

    /// The front end of a session's connection is attached; gives those of sessions that it has taken the place of.
    pub(super) fn attached(&self, nexus: NexusId, front_end: u32) -> Vec<u32> {
        let mut connections = locked(&self.connections);
        let Some(own) = connections.iter_mut().find(|own| own.nexus == nexus) else { return Vec::new() };
        own.front_end = Some(front_end);
        let port = own.port.clone();
        let before = connections.iter().filter(|other| other.nexus < nexus && other.port == port);
        before.filter_map(|other| other.front_end).collect()
    }

    /// The front ends of those sessions that are meant, by their number and port.
    pub(super) fn front_ends(&self, is_meant: impl Fn(NexusId, &PortName) -> bool) -> Vec<u32> {
        let connections = locked(&self.connections);
        let meant = connections.iter().filter(|other| is_meant(other.nexus, &other.port));
        meant.filter_map(|other| other.front_end).collect()
    }

    /// A connection is no more.
    pub(super) fn detached(&self, nexus: NexusId) {
        locked(&self.connections).retain(|other| other.nexus != nexus);
    }
}

/// The targets of a daemon. Clones are the same list.
#[derive(Clone, Default)]
pub struct Targets {
    list: Arc<RwLock<Vec<Arc<Target>>>>,
}

impl Targets {
    /// Adds a target at the end; `None` if there is one of that name already.
    pub fn add(&self, target: Target) -> Option<Arc<Target>> {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.iter().any(|other| other.name == target.name) {
            return None;
        }
        let target = Arc::new(target);
        list.push(target.clone());
        Some(target)
    }

    /// The target called `name`.
    pub fn find(&self, name: &str) -> Option<Arc<Target>> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().find(|target| target.name == name).cloned()
    }

    /// What a login has to know of the target called `name`.
    pub fn look_up(&self, name: &str) -> Option<Option<Chap>> {
        self.find(name).map(|target| target.chap.clone())
    }

    /// The answer to SendTargets: all targets, or the one that is asked for, each at `portal`.
    pub fn discover(&self, wanted: Option<&str>, portal: &str) -> Vec<u8> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Vec::new();
        for target in list.iter().filter(|target| wanted.is_none_or(|wanted| wanted == target.name)) {
            describe(&mut answer, &target.name, portal);
        }
        answer
    }
}

/// Adds a target and where it is.
pub(super) fn describe(answer: &mut Vec<u8>, name: &str, portal: &str) {
    text::push(answer, "TargetName", name);
    text::push(answer, "TargetAddress", &format!("{portal},{}", super::login::PORTAL_GROUP));
}
