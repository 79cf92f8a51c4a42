//! What a configuration says of each front end of the registry (`plimsoll_serve::registry`) that clients connect to:
//! its addresses, and the doors of volumes. The keys and their reading are the front end's own, and nothing here names
//! one.

use super::Problem;
use super::listen::{self, Listen};
use plimsoll_serve::registry::with_sockets;
use plimsoll_serve::sockets::DoorSection;
use plimsoll_settings::Section;
use std::collections::BTreeMap;
use std::path::Path;

/// Where clients of a front end connect, by its section.
pub type Listens = BTreeMap<&'static str, Vec<Listen>>;

/// The doors of a volume, by the sections of the front ends.
pub type Doors = BTreeMap<&'static str, DoorSection>;

/// The addresses that the file has. A later check, when the doors are known, says which of them other machines may
/// reach.
pub(super) fn read_addresses(file: &mut Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Listens {
    let mut listens = Listens::new();
    for (entry, sockets) in with_sockets() {
        let Some(section) = sockets.tables.own.read(file, problems) else { continue };
        let (listen, has_login) = (&sockets.tables.listen, sockets.login.is_some());
        if let Some(addresses) = listen::addresses(section, listen, directory, has_login, problems) {
            listens.insert(entry.section, addresses);
        }
    }
    listens
}

/// The doors of the volume called `name`, which `section` describes.
pub(super) fn read_doors(name: &str, section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Doors {
    let mut doors = Doors::new();
    for (entry, sockets) in with_sockets() {
        if let Some(table) = sockets.tables.of_volume.read(section, problems) {
            doors.insert(entry.section, (sockets.tables.read)(name, table, problems));
        }
    }
    doors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, parse};
    use plimsoll_serve::registry::front_ends;
    use std::path::Path;

    /// Outcome: every front end that clients connect to has a section of the file, a default address and a door.
    ///
    /// Planted break: the doors of iSCSI are not read, red.
    #[test]
    fn every_front_end_with_sockets_is_configured() {
        for (entry, _) in with_sockets() {
            let section = entry.section;
            let volume = "pool = \"p\"\nsize = \"1MiB\"\nmemory = true";
            let text = format!("[device.d]\n[pool.p]\ndevice = \"d\"\n[volume.v]\n{volume}\n{section} = {{}}\n");
            let defaults = Defaults::in_directory("/run/plimsoll".into());
            let configuration = parse(&text, Path::new("a.toml"), Path::new("/etc"), &defaults).unwrap();
            let volume = &configuration.volumes[0];
            assert_eq!(configuration.listens(section).len(), 1, "{section}");
            assert!(volume.door(section).is_some_and(|door| !door.name.is_empty()), "{section}");
            let others = front_ends().iter().filter(|other| other.section != section);
            for other in others {
                assert!(configuration.listens(other.section).is_empty(), "{}", other.section);
                assert!(volume.door(other.section).is_none(), "{}", other.section);
            }
        }
    }
}
