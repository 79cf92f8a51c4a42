//! NBD for the registry and for the configuration: `[nbd]`, where clients connect, and `[volume.NAME.nbd]`, a volume as
//! an export.

use super::doors::ExportDoors;
use crate::connection::Address;
use crate::sockets::{DoorSection, Sockets, Tables, Words};
use plimsoll_settings::key::{Absent, Key, KeyTable, SubTable, Text, Texts};
use plimsoll_settings::{Problem, Section};

/// Longest export name of the NBD protocol. Bytes.
const EXPORT_NAME_BYTES_MAX: usize = 4096;
const EXPORT_ALLOWED: &str = "1 to 4096 bytes without control characters";

const LISTEN: Key<Texts> = Key {
    name: "listen",
    form: Texts { allowed: "a list such as [\"unix:/run/plimsoll/nbd.sock\", \"tcp:127.0.0.1:10809\"]" },
    absent: Absent::Words("`[\"unix:STATE/nbd.sock\"]` if a volume is exported"),
    help: "at most 64 of `\"unix:PATH\"`, `\"tcp:ADDRESS:PORT\"` and `\"ADDRESS:PORT\"` (the same as with `tcp:`). \
           Refused where no volume has `nbd`",
};
const OWN_TABLE: KeyTable = KeyTable { path: "nbd", keys: &[&LISTEN] };

const EXPORT: Key<Text> = Key {
    name: "export",
    form: Text::new("text", EXPORT_ALLOWED),
    absent: Absent::Words("the volume's name"),
    help: "the name that clients ask for; each once",
};
const VOLUME_TABLE: KeyTable = KeyTable { path: "volume.NAME.nbd", keys: &[&EXPORT] };

/// NBD. Without encryption and without a login, an export is for this machine only.
pub(crate) const SOCKETS: Sockets = Sockets {
    words: Words { door: "export", a_door: "an export", the_name: "the export name", served: "exported over NBD" },
    tables: Tables {
        own: Key {
            name: "nbd",
            form: SubTable { table: &OWN_TABLE },
            absent: Absent::Words("its defaults"),
            help: "where NBD clients connect",
        },
        listen: LISTEN,
        default_address: |state_directory| Address::Unix(state_directory.join("nbd.sock")),
        of_volume: Key {
            name: "nbd",
            form: SubTable { table: &VOLUME_TABLE },
            absent: Absent::Words("not exported"),
            help: "it is an export; `nbd = {}` is enough",
        },
        name: EXPORT.name,
        read,
    },
    login: None,
    has_reservations: false,
    doors: || Box::<ExportDoors>::default(),
};

fn read(volume: &str, mut section: Section<'_>, problems: &mut Vec<Problem>) -> DoorSection {
    let name = EXPORT.read(&mut section, problems, |text| {
        let is_fine = (1..=EXPORT_NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(EXPORT_ALLOWED.to_owned()) }
    });
    let place = section.finish(problems);
    DoorSection { name: name.unwrap_or_else(|| volume.to_owned()), login: None, place }
}
