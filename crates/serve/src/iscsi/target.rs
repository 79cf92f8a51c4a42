//! Targets: what initiators discover and log in to. Each has one logical unit, number 0.

use plimsoll_engine::backend::VolumeInfo;
use plimsoll_protocols::iscsi::chap::Chap;
use plimsoll_protocols::iscsi::text;
use plimsoll_protocols::scsi::{Geometry, Identity, LogicalUnit, NexusId, PortName};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A target and its unit.
///
/// The unit stands behind a lock, because sessions begin on threads of their own. All its commands come from one
/// thread, that of the volume's device. So the lock is free whenever it is taken there, but for the moment of a login.
///
/// A target of a session that an application has opened is another name for the same unit: another target port of it.
pub struct Target {
    name: String,
    /// Its number among the unit's target ports, from 1.
    number: u16,
    /// No list names it.
    is_hidden: bool,
    chap: Option<Chap>,
    shared: Arc<Shared>,
}

/// What the names of one unit share.
struct Shared {
    unit: Mutex<LogicalUnit>,
    connections: Mutex<Vec<Connected>>,
    /// How many names there were.
    numbers: AtomicU16,
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
        let (unit, connections, numbers) = (Mutex::new(unit), Mutex::default(), AtomicU16::new(1));
        let shared = Arc::new(Shared { unit, connections, numbers });
        Target { name: name.to_owned(), number: 1, is_hidden: false, chap, shared }
    }

    /// Another name for the same unit, which no list names.
    pub fn of_session(&self, name: &str) -> Target {
        // After 65,535 sessions numbers come again; the port's names differ all the same.
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(2);
        Target { name: name.to_owned(), number, is_hidden: true, chap: self.chap.clone(), shared: self.shared.clone() }
    }

    /// The target called `name` with `volume` as its unit.
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
        locked(&self.shared.unit)
    }

    /// A session of `port` begins on `socket`. One that it had before ends, and its connection is closed (RFC 7143,
    /// 6.3.5).
    ///
    /// # Errors
    /// No descriptor is left to remember the socket by.
    pub fn session_began(&self, port: &PortName, socket: impl AsFd) -> std::io::Result<NexusId> {
        let own = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        let port = &PortName { target_port: self.number, ..port.clone() };
        let mut connections = locked(&self.shared.connections);
        for other in connections.iter().filter(|other| other.port == *port) {
            // An error means that it has ended already.
            let _ = shutdown(&other.socket, Shutdown::Both);
        }
        let nexus = self.unit().session_began(port.clone());
        connections.push(Connected { nexus, port: port.clone(), socket: own, front_end: None });
        Ok(nexus)
    }

    /// The front end of a session's connection is attached. Answers the front ends of sessions that it has replaced.
    pub(super) fn attached(&self, nexus: NexusId, front_end: u32) -> Vec<u32> {
        let mut connections = locked(&self.shared.connections);
        let Some(own) = connections.iter_mut().find(|own| own.nexus == nexus) else { return Vec::new() };
        own.front_end = Some(front_end);
        let port = own.port.clone();
        let before = connections.iter().filter(|other| other.nexus < nexus && other.port == port);
        before.filter_map(|other| other.front_end).collect()
    }

    /// The front ends of those sessions that are meant, by their number and port.
    pub(super) fn front_ends(&self, is_meant: impl Fn(NexusId, &PortName) -> bool) -> Vec<u32> {
        let connections = locked(&self.shared.connections);
        let meant = connections.iter().filter(|other| is_meant(other.nexus, &other.port));
        meant.filter_map(|other| other.front_end).collect()
    }

    /// A connection is no more.
    pub(super) fn detached(&self, nexus: NexusId) {
        locked(&self.shared.connections).retain(|other| other.nexus != nexus);
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

    /// Removes the target called `name`, if there is one: no initiator can log in to it any more.
    pub fn remove(&self, name: &str) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).retain(|target| target.name != name);
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

    /// The answer to SendTargets: all targets that are not of a session, or the one that is asked for. Each is at
    /// `portal`; without one, each is where the initiator has asked.
    pub fn discover(&self, wanted: Option<&str>, portal: Option<&str>) -> Vec<u8> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Vec::new();
        let is_meant = |target: &&Arc<Target>| match wanted {
            Some(wanted) => wanted == target.name,
            None => !target.is_hidden,
        };
        for target in list.iter().filter(is_meant) {
            describe(&mut answer, &target.name, portal);
        }
        answer
    }
}

/// Adds a target and where it is. Without an address the target is where the initiator has asked (RFC 7143, Appendix
/// C).
pub(super) fn describe(answer: &mut Vec<u8>, name: &str, portal: Option<&str>) {
    text::push(answer, "TargetName", name);
    if let Some(portal) = portal {
        text::push(answer, "TargetAddress", &format!("{portal},{}", plimsoll_protocols::iscsi::login::PORTAL_GROUP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Planted break that was seen red: a session's target is in the list.
    /// Promise: iscsi-session.
    #[test]
    fn a_target_of_a_session_is_another_port_of_the_same_unit() {
        let volume = VolumeInfo { name: "v".into(), size_bytes: 1 << 20, block_bytes: 512, is_read_only: false };
        let targets = Targets::default();
        let own = targets.add(Target::of_volume("iqn.2026-01.org.example:v", None, &volume, false)).unwrap();
        let name = "iqn.2026-01.org.example:v:loader.1";
        let of_session = targets.add(own.of_session(name)).unwrap();
        let listed = String::from_utf8(targets.discover(None, Some("127.0.0.1:3260"))).unwrap();
        assert!(listed.contains("example:v\0") && !listed.contains("loader"), "{listed}");
        assert!(
            !targets.discover(Some(name), Some("127.0.0.1:3260")).is_empty(),
            "an initiator that knows the name may ask"
        );

        let port = PortName { initiator: "iqn.2026-01.org.example:i".into(), isid: [0; 6], target_port: 1 };
        let socket = UnixStream::pair().unwrap().0;
        let first = own.session_began(&port, &socket).unwrap();
        let second = of_session.session_began(&port, &socket).unwrap();
        assert!(own.front_ends(|_, _| true).is_empty(), "none is attached");
        assert_eq!((own.attached(first, 7), of_session.attached(second, 8)), (vec![], vec![]), "none took a place");
        assert_eq!(own.front_ends(|nexus, _| nexus != first), [8], "both are sessions of one unit");
        targets.remove(name);
        assert!(targets.find(name).is_none() && targets.find(own.name()).is_some());
    }
}
