//! Configuration of each front end of the registry (`plimsoll_serve::registry`) that clients connect to. A new one has
//! its section in a file of its own, and a line in each function here.

use super::configuration::Configuration;
use super::listen::Listen;
use super::volume::Volume;
use plimsoll_protocols::iscsi::Chap;

/// A volume's door over one front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorSection<'c> {
    /// What clients ask for.
    pub name: &'c str,
    /// What they must prove.
    pub login: Option<&'c Chap>,
}

/// Listening addresses of the front end with that section; empty if no volume has it.
pub fn listens<'c>(configuration: &'c Configuration, section: &str) -> &'c [Listen] {
    match section {
        "nbd" => &configuration.listen,
        "iscsi" => &configuration.iscsi_listen,
        _ => &[],
    }
}

/// The door of `volume` over the front end with that section, if it has one.
pub fn door<'c>(volume: &'c Volume, section: &str) -> Option<DoorSection<'c>> {
    match section {
        "nbd" => volume.export.as_ref().map(|export| DoorSection { name: &export.name, login: None }),
        "iscsi" => volume.iscsi.as_ref().map(|target| DoorSection { name: &target.name, login: target.chap.as_ref() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Defaults, parse};
    use plimsoll_serve::registry::front_ends;
    use std::path::Path;

    /// Outcome: every front end that clients connect to has a section of the file, a default address and a door.
    ///
    /// Planted break: `door` has no line for iSCSI, red.
    #[test]
    fn every_front_end_with_sockets_is_configured() {
        for entry in front_ends().iter().filter(|entry| entry.sockets().is_some()) {
            let section = entry.section;
            let volume = "pool = \"p\"\nsize = \"1MiB\"\nmemory = true";
            let text = format!("[device.d]\n[pool.p]\ndevice = \"d\"\n[volume.v]\n{volume}\n{section} = {{}}\n");
            let defaults = Defaults::in_directory("/run/plimsoll".into());
            let configuration = parse(&text, Path::new("a.toml"), Path::new("/etc"), &defaults).unwrap();
            assert_eq!(listens(&configuration, section).len(), 1, "{section}");
            assert!(door(&configuration.volumes[0], section).is_some_and(|door| !door.name.is_empty()), "{section}");
            let others = front_ends().iter().filter(|other| other.section != section);
            for other in others {
                assert!(listens(&configuration, other.section).is_empty(), "{}", other.section);
                assert!(door(&configuration.volumes[0], other.section).is_none(), "{}", other.section);
            }
        }
    }
}
