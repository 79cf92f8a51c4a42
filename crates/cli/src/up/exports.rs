//! Doors of volumes, NBD exports and iSCSI targets: the volumes' own, and those of the sessions that applications open
//! on them.
//!
//! Each connection to a volume's own door is a session by itself, with what the volume says. A client that wants a
//! promise opens a session over the control socket first, and connects to the name that it gets. Then all its
//! connections share what the session was promised. No other client is told such a name: it is in no list, and a client
//! that names no export does not get it.
//!
//! The client that opened a session closes it after the last connection to it has ended. Where that is left to us,
//! because that client is gone, the session's door goes first, so that no new connection comes. Then the connections
//! that are there go, then the session.

use super::refusal::Refusal;
use crate::control::protocol::{Change, SessionEntry};
use plimsoll_core::Allocation;
use plimsoll_core::account::AccountError;
use plimsoll_engine as engine;
use plimsoll_engine::{EngineError, EngineHandle, FrontEnd, SessionConfig};
use plimsoll_linux::PeerLog;
use plimsoll_protocols::iscsi::names;
use plimsoll_protocols::nbd::export::ExportError;
use plimsoll_protocols::nbd::{ExportInfo, Negotiated, SharedExports};
use plimsoll_serve::connection::Peer;
use plimsoll_serve::iscsi::{self, Targets};
use plimsoll_serve::nbd::NbdConnection;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where connections through a door go.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) engine: EngineHandle,
    pub(super) volume: String,
    /// The session of each connection.
    pub(super) session: SessionConfig,
    /// The path of the account that it opens in.
    pub(super) account: String,
}

/// What clients name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DoorName {
    /// An NBD export.
    Export(String),
    /// An iSCSI target.
    Target(String),
}

#[derive(Clone)]
enum Door {
    Export(ExportInfo),
    Target(Arc<iscsi::Target>),
}

/// The doors of a daemon.
#[derive(Default)]
pub(super) struct Exports {
    list: SharedExports,
    targets: Targets,
    known: Mutex<Known>,
    log: PeerLog,
}

#[derive(Default)]
struct Known {
    doors: BTreeMap<DoorName, (Door, Place)>,
    /// By the session's path: its door.
    sessions: BTreeMap<String, DoorName>,
    opened: u64,
}

impl Exports {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What NBD listeners read.
    pub(super) fn list(&self) -> SharedExports {
        self.list.clone()
    }

    /// What iSCSI portals read.
    pub(super) fn targets(&self) -> Targets {
        self.targets.clone()
    }

    /// Exports a volume.
    ///
    /// # Errors
    /// Another one has the name.
    pub(super) fn add(&self, info: ExportInfo, place: Place) -> Result<(), ExportError> {
        self.list.add(info.clone())?;
        self.known().doors.insert(DoorName::Export(info.name.clone()), (Door::Export(info), place));
        Ok(())
    }

    /// Makes a volume a target. False if there is one of that name.
    pub(super) fn add_target(&self, target: iscsi::Target, place: Place) -> bool {
        let Some(target) = self.targets.add(target) else { return false };
        self.known().doors.insert(DoorName::Target(target.name().to_owned()), (Door::Target(target), place));
        true
    }

    /// A client has agreed on an export.
    pub(super) fn connected(&self, socket: OwnedFd, negotiated: Negotiated, peer: &Peer) {
        let name = DoorName::Export(negotiated.export.name.clone());
        self.attach(&name, || Box::new(NbdConnection::new(socket, negotiated)), peer);
    }

    /// An initiator has logged in to a target.
    pub(super) fn logged_in(&self, session: iscsi::Session, peer: &Peer) {
        let name = DoorName::Target(session.target.name().to_owned());
        self.attach(&name, || Box::new(session.connection()), peer);
    }

    fn attach(&self, name: &DoorName, front_end: impl FnOnce() -> Box<dyn FrontEnd>, peer: &Peer) {
        let Some((_, place)) = self.known().doors.get(name).cloned() else { return };
        let attached = place.engine.attach_in(&place.volume, &place.account, place.session.clone(), front_end());
        if let Err(error) = attached {
            self.log.warn(format_args!("{peer} turned away from volume {}: {error}", place.volume));
        }
    }

    /// Opens a session behind the door called `door`; answers with its path and the name to connect to. A number makes
    /// both unique.
    ///
    /// # Errors
    /// Admission refuses it, or the name is too long for the protocol.
    ///
    /// # Panics
    /// If there is no such door.
    pub(super) fn open_session(&self, door: &DoorName, name: &str, change: &Change) -> Result<SessionEntry, Refusal> {
        let mut known = self.known();
        let (of_volume, place) = known.doors.get(door).cloned().expect("the caller has looked");
        known.opened += 1;
        let number = known.opened;
        let path = format!("{}/{name}#{number}", place.account);
        let allocation = change.apply(place.session.allocation);
        place.engine.open_pool(&path, allocation)?;
        let opened = match self.add_door(&of_volume, name, number) {
            Ok(opened) => opened,
            Err(refusal) => {
                place.engine.close_pool(&path)?;
                return Err(refusal);
            }
        };
        // Schedulers ask which session does the I/O for its priority and its deadlines.
        let Allocation { priority, deadlines, .. } = allocation;
        let of_connection = Allocation { priority, deadlines, ..Allocation::default() };
        let session = SessionConfig { allocation: of_connection, ..place.session.clone() };
        let (opened_name, entry) = match &opened {
            Door::Export(info) => {
                let (export, target) = (Some(info.name.clone()), None);
                (DoorName::Export(info.name.clone()), SessionEntry { path: path.clone(), export, target })
            }
            Door::Target(target) => {
                let name = target.name().to_owned();
                let entry = SessionEntry { path: path.clone(), export: None, target: Some(name.clone()) };
                (DoorName::Target(name), entry)
            }
        };
        known.doors.insert(opened_name.clone(), (opened, Place { account: path.clone(), session, ..place }));
        known.sessions.insert(path, opened_name);
        Ok(entry)
    }

    /// A door for a session, which no list names.
    fn add_door(&self, of_volume: &Door, session: &str, number: u64) -> Result<Door, Refusal> {
        match of_volume {
            Door::Export(info) => {
                let name = format!("{}/{session}#{number}", info.name);
                let info = ExportInfo { name, is_hidden: true, ..info.clone() };
                let added = self.list.add(info.clone());
                added.map_err(|error| Refusal::Invalid(format!("session {session}: {error}")))?;
                Ok(Door::Export(info))
            }
            Door::Target(target) => {
                // What a session may be called and a target may not.
                let session = session.to_lowercase().replace('_', "-");
                let name = format!("{}:{session}.{number}", target.name());
                if !names::is_strict(&name) {
                    let message = format!("got target {name:?}, allowed are {} bytes", names::NAME_BYTES_MAX);
                    return Err(Refusal::Invalid(format!("session {session}: {message}")));
                }
                let added = self.targets.add(target.of_session(&name));
                added.map(Door::Target).ok_or_else(|| Refusal::Invalid(format!("there is already a target {name}")))
            }
        }
    }

    /// No client comes through a door any more.
    fn remove_door(&self, name: &DoorName) {
        match name {
            DoorName::Export(name) => _ = self.list.remove(name),
            DoorName::Target(name) => self.targets.remove(name),
        }
    }

    /// The path of the session that was opened here as `name`: its path, or the export or target that its opener was
    /// told.
    pub(super) fn session_path(&self, name: &str) -> Option<String> {
        let known = self.known();
        let is_it = |door: &DoorName| matches!(door, DoorName::Export(own) | DoorName::Target(own) if own == name);
        let by_door = || known.sessions.iter().find(|(_, door)| is_it(door)).map(|(path, _)| path.clone());
        known.sessions.contains_key(name).then(|| name.to_owned()).or_else(by_door)
    }

    /// Whether a session of that path was opened here.
    pub(super) fn has_session(&self, path: &str) -> bool {
        self.known().sessions.contains_key(path)
    }

    /// Closes a session without connections; answers whether there was one of that path.
    ///
    /// # Errors
    /// A client is connected to it.
    pub(super) fn close_session(&self, path: &str) -> Result<bool, EngineError> {
        let mut known = self.known();
        let Some(door) = known.sessions.get(path).cloned() else { return Ok(false) };
        known.doors[&door].1.engine.close_pool(path)?;
        self.remove_door(&door);
        known.doors.remove(&door);
        known.sessions.remove(path);
        Ok(true)
    }

    /// Ends a session after its opener is gone: no client connects to it any more, and connected clients are asked to
    /// finish and cut off after [`engine::GRACE_DEFAULT`]. True once it is closed; until then, it has to be called
    /// again.
    pub(super) fn end_session(&self, path: &str) -> bool {
        let engine = {
            let known = self.known();
            let Some(door) = known.sessions.get(path) else { return true };
            self.remove_door(door);
            known.doors[door].1.engine.clone()
        };
        // Each time, for clients that had agreed on the door before it went.
        let closed = engine.stop_pool(path, engine::GRACE_DEFAULT).and_then(|()| self.close_session(path));
        match closed {
            Err(EngineError::Account(AccountError::Tree { .. })) => return false,
            Err(error) => self.log.warn(format_args!("session {path}: {error}")),
            Ok(_) => self.log.info(format_args!("session {path} closed: who opened it is gone")),
        }
        true
    }
}
