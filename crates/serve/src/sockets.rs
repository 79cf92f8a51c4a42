//! A front end that clients connect to, described in its own folder: what it is called, its tables of the
//! configuration, its doors.
//!
//! The [registry](crate::registry) has the description in its line. The daemon and the reading of the configuration
//! loop over the registry, and name no front end.

use crate::connection::Address;
use crate::doors::Doors;
use plimsoll_protocols::iscsi::Chap;
use plimsoll_settings::key::{Key, SubTable, Texts};
use plimsoll_settings::{Place, Problem, Section};
use std::path::Path;

/// A front end that clients connect to.
pub struct Sockets {
    /// What messages and answers call its doors.
    pub words: Words,
    /// Its tables of the configuration.
    pub tables: Tables,
    /// The key in a volume's table by which its clients are asked to prove their identity. Where they can be, other
    /// machines may reach an address.
    pub login: Option<&'static str>,
    /// Clients may reserve a volume for themselves, so a writable volume has no other front end.
    pub has_reservations: bool,
    /// The doors of a daemon: none yet.
    pub doors: fn() -> Box<dyn Doors>,
}

/// What messages and answers call a door.
pub struct Words {
    /// What clients call it: a key in the answer to `session_open`, and, in capitals, the end of the variable
    /// `PLIMSOLL_...` of commands with a session.
    pub door: &'static str,
    /// The same with an article, as a part of a message: `an export`.
    pub a_door: &'static str,
    /// What is said of its name: `the export name` of a volume.
    pub the_name: &'static str,
    /// What is said of a volume that has one: it is `exported over NBD`.
    pub served: &'static str,
}

/// Tables of the configuration.
pub struct Tables {
    /// The file's own table: where clients connect.
    pub own: Key<SubTable>,
    /// The one key of that table.
    pub listen: Key<Texts>,
    /// The address where the file says none, for a daemon with this state directory.
    pub default_address: fn(state_directory: &Path) -> Address,
    /// The table in a volume, which gives the volume a door.
    pub of_volume: Key<SubTable>,
    /// The key of that table with the door's name.
    pub name: &'static str,
    /// Reads that table.
    pub read: ReadDoor,
}

/// Reads the table of the volume called `volume`; says what is wrong with it.
pub type ReadDoor = fn(volume: &str, section: Section<'_>, problems: &mut Vec<Problem>) -> DoorSection;

/// What the configuration says of a volume's door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorSection {
    /// What clients ask for.
    pub name: String,
    /// What clients must prove.
    pub login: Option<Chap>,
    /// Where the table stands.
    pub place: Place,
}
