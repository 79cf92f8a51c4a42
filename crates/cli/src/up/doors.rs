//! Doors of volumes over every front end that clients connect to: the volumes' own, and those of applications'
//! sessions.
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
use crate::control::protocol::{Change, ServedAs, SessionEntry};
use plimsoll_core::Allocation;
use plimsoll_core::account::AccountError;
use plimsoll_engine as engine;
use plimsoll_engine::{EngineError, EngineHandle, SessionConfig};
use plimsoll_linux::PeerLog;
use plimsoll_serve::connection::{Listener, Serving};
use plimsoll_serve::doors::{Arrival, DoorPlan, Doors};
use plimsoll_serve::registry::{Entry, with_sockets};
use std::collections::BTreeMap;
use std::io;
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

/// What clients name: the front end, by its name in the registry, and the door.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DoorName {
    pub(super) front_end: &'static str,
    pub(super) name: String,
}

/// The doors of one front end.
struct FrontDoors {
    front_end: &'static Entry,
    /// The front end's word for a door.
    word: &'static str,
    doors: Box<dyn Doors>,
}

/// The doors of a daemon.
pub(super) struct OpenDoors {
    front_ends: Vec<FrontDoors>,
    known: Mutex<Known>,
    log: PeerLog,
}

#[derive(Default)]
struct Known {
    doors: BTreeMap<DoorName, Place>,
    /// By the session's path: its door.
    sessions: BTreeMap<String, DoorName>,
    opened: u64,
    /// Where clients of a front end connect, by its name.
    addresses: BTreeMap<&'static str, Vec<String>>,
}

impl Default for OpenDoors {
    fn default() -> OpenDoors {
        let front_ends = with_sockets().map(|(front_end, sockets)| FrontDoors {
            front_end,
            word: sockets.words.door,
            doors: (sockets.doors)(),
        });
        OpenDoors { front_ends: front_ends.collect(), known: Mutex::default(), log: PeerLog::new() }
    }
}

impl OpenDoors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, front_end: &str) -> &FrontDoors {
        let own = self.front_ends.iter().find(|own| own.front_end.name == front_end);
        own.expect("doors are opened only of front ends in the registry")
    }

    /// Opens a volume's own door.
    ///
    /// # Errors
    /// Another one has the name, in a line.
    pub(super) fn add(&self, front_end: &Entry, plan: DoorPlan, place: Place) -> Result<(), String> {
        let FrontDoors { front_end, doors, .. } = self.of(front_end.name);
        let name = DoorName { front_end: front_end.name, name: plan.name.clone() };
        doors.add(plan)?;
        self.known().doors.insert(name, place);
        Ok(())
    }

    /// Serves a front end's doors on `listener` until the answer is dropped.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it.
    pub(super) fn serve(doors: &Arc<OpenDoors>, front_end: &Entry, listener: Listener) -> io::Result<Serving> {
        let name = doors.of(front_end.name).front_end.name;
        let all = doors.clone();
        let serving = doors.of(name).doors.serve(listener, Box::new(move |arrival| all.arrived(name, arrival)))?;
        doors.known().addresses.entry(name).or_default().push(serving.address().to_string());
        Ok(serving)
    }

    /// A client has come through a door.
    fn arrived(&self, front_end: &'static str, Arrival { door, peer, front_end: connection }: Arrival) {
        let place = self.known().doors.get(&DoorName { front_end, name: door }).cloned();
        let Some(place) = place else { return };
        let attached = place.engine.attach_in(&place.volume, &place.account, place.session.clone(), connection);
        if let Err(error) = attached {
            self.log.warn(format_args!("{peer} turned away from volume {}: {error}", place.volume));
        }
    }

    /// The ways to the door called `name` of a front end: one for each address.
    pub(super) fn ways(&self, front_end: &str, name: &str) -> Vec<ServedAs> {
        let known = self.known();
        let addresses = known.addresses.get(front_end).into_iter().flatten();
        let way =
            |address: &String| ServedAs { kind: front_end.to_owned(), name: name.to_owned(), address: address.clone() };
        addresses.map(way).collect()
    }

    /// Opens a session behind the door called `door`. Answers its path and the name for clients. A number makes both
    /// unique.
    ///
    /// # Errors
    /// Admission refuses it, or the name is too long for the protocol.
    ///
    /// # Panics
    /// If there is no such door.
    pub(super) fn open_session(&self, door: &DoorName, name: &str, change: &Change) -> Result<SessionEntry, Refusal> {
        let mut known = self.known();
        let place = known.doors.get(door).cloned().expect("the caller has looked");
        known.opened += 1;
        let number = known.opened;
        let path = format!("{}/{name}#{number}", place.account);
        let allocation = change.apply(place.session.allocation);
        place.engine.open_pool(&path, allocation)?;
        let FrontDoors { word, doors, .. } = self.of(door.front_end);
        let opened = match doors.add_for_session(&door.name, name, number) {
            Ok(opened) => opened,
            Err(error) => {
                place.engine.close_pool(&path)?;
                return Err(Refusal::Invalid(format!("session {name}: {error}")));
            }
        };
        // Schedulers ask which session does the I/O for its priority and its deadlines.
        let Allocation { priority, deadlines, .. } = allocation;
        let of_connection = Allocation { priority, deadlines, ..Allocation::default() };
        let session = SessionConfig { allocation: of_connection, ..place.session.clone() };
        let entry = SessionEntry::new(path.clone(), word, opened.clone());
        let opened = DoorName { front_end: door.front_end, name: opened };
        known.doors.insert(opened.clone(), Place { account: path.clone(), session, ..place });
        known.sessions.insert(path, opened);
        Ok(entry)
    }

    /// No client comes through a door any more.
    fn remove_door(&self, door: &DoorName) {
        self.of(door.front_end).doors.remove(&door.name);
    }

    /// The path of the session that was opened as `name`: its path, or the name of its door.
    pub(super) fn session_path(&self, name: &str) -> Option<String> {
        let known = self.known();
        let by_door = || known.sessions.iter().find(|(_, door)| door.name == name).map(|(path, _)| path.clone());
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
        known.doors[&door].engine.close_pool(path)?;
        self.remove_door(&door);
        known.doors.remove(&door);
        known.sessions.remove(path);
        Ok(true)
    }

    /// Ends a session without its opener. No client can connect to it any more; connected clients are asked to finish
    /// and cut off after [`engine::GRACE_DEFAULT`]. True once it is closed; until then, it has to be called again.
    pub(super) fn end_session(&self, path: &str) -> bool {
        let engine = {
            let known = self.known();
            let Some(door) = known.sessions.get(path) else { return true };
            self.remove_door(door);
            known.doors[door].engine.clone()
        };
        // Each time, for clients that had agreed on the door before it went.
        let closed = engine.stop_pool(path, engine::GRACE_DEFAULT).and_then(|()| self.close_session(path));
        match closed {
            Err(EngineError::Account(AccountError::Tree { .. })) => return false,
            Err(error) => self.log.warn(format_args!("session {path}: {error}")),
            Ok(_) => self.log.info(format_args!("session {path} closed: its opener is gone")),
        }
        true
    }
}
