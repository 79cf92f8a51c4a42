//! Doors: the names under which clients reach volumes over one protocol.
//!
//! ```text
//!   client -- address --> Listener -- handshake, login --> Doors::serve -- Arrival --> the daemon --> engine
//! ```
//!
//! A daemon has one [`Doors`] for each front end of the [registry](crate::registry) that clients connect to. A volume
//! has a door of its own, which protocols list. A session that an application opens has another door to the same
//! volume, which no list names.

use crate::connection::{Listener, Peer, Serving};
use plimsoll_engine::FrontEnd;
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_protocols::iscsi::Chap;
use std::io;

/// A door to a volume.
#[derive(Clone, Debug)]
pub struct DoorPlan {
    /// What clients ask for.
    pub name: String,
    /// What is behind it.
    pub volume: VolumeInfo,
    /// Whether the volume's device is a rotating disk.
    pub is_rotational: bool,
    /// What clients must prove. Only protocols with a login ask for it.
    pub login: Option<Chap>,
}

/// A client that has come through a door.
pub struct Arrival {
    /// The name of the door.
    pub door: String,
    /// The client.
    pub peer: Peer,
    /// Its connection, for the engine.
    pub front_end: Box<dyn FrontEnd>,
}

/// Callback for a client that has come through a door, on its handshake's thread. It hands the client on and returns.
pub type Arrived = Box<dyn Fn(Arrival) + Send + Sync>;

/// All doors of a daemon over one protocol.
pub trait Doors: Send + Sync {
    /// Opens a door to a volume.
    ///
    /// # Errors
    /// The name is taken or not allowed, in a line.
    fn add(&self, plan: DoorPlan) -> Result<(), String>;

    /// Opens another door to the volume of the door `of`, for the session called `session`. Answers the door's name,
    /// which `number` makes unique. No list names it.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    fn add_for_session(&self, of: &str, session: &str, number: u64) -> Result<String, String>;

    /// Closes the door called `name`, if there is one: no further client comes through it.
    fn remove(&self, name: &str);

    /// Serves all doors on `listener`, on threads of its own, until the answer is dropped.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it.
    fn serve(&self, listener: Listener, arrived: Arrived) -> io::Result<Serving>;
}
