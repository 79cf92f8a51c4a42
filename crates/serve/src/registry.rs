//! Every front end by name.
//!
//! The daemon loops over this table to bind addresses, to open doors and to say what serves a volume. The conformance
//! suite (`crates/serve/tests/conformance`) holds each entry to the same laws.

use crate::sockets::Sockets;
use crate::{iscsi, nbd};
use plimsoll_settings::key::Described;

/// One line of the registry.
pub struct Entry {
    /// The kind that `plimsoll status` shows, and the first part of its sessions' names.
    pub name: &'static str,
    /// The protocol, as messages write it.
    pub title: &'static str,
    /// What it serves, a line.
    pub serves: &'static str,
    /// The key of a volume's table in the configuration. Where clients connect to addresses, the file's own table of
    /// that name has them in `listen`.
    pub section: &'static str,
    /// The same with an article, as a part of a message.
    pub a_section: &'static str,
    /// Its page, from the root of the repository.
    pub page: &'static str,
    /// A way to a volume in words, from the name that clients ask for and the address. The address is empty before the
    /// volume is served.
    pub shown: fn(name: &str, address: &str) -> String,
    /// How clients reach it.
    pub reach: Reach,
}

/// How clients reach a front end.
pub enum Reach {
    /// They connect to an address and name a door.
    Sockets(&'static Sockets),
    /// The kernel of this machine is the client.
    Kernel,
}

impl Entry {
    /// How clients connect to it, if they do.
    pub fn sockets(&self) -> Option<&'static Sockets> {
        match self.reach {
            Reach::Sockets(sockets) => Some(sockets),
            Reach::Kernel => None,
        }
    }
}

const FRONT_ENDS: &[Entry] = &[
    Entry {
        name: "nbd",
        title: "NBD",
        serves: "a volume as an export, to virtual machines, nbd-client, qemu-img, fio and libnbd",
        section: "nbd",
        a_section: "an nbd",
        page: "docs/configuration.md",
        shown: |name, address| format!("NBD export {name:?}{}", on(address)),
        reach: Reach::Sockets(&nbd::SOCKETS),
    },
    Entry {
        name: "iscsi",
        title: "iSCSI",
        serves: "a volume as a target with one logical unit, to hypervisors and operating systems",
        section: "iscsi",
        a_section: "an iscsi",
        page: "docs/iscsi.md",
        shown: |name, address| format!("iSCSI target {name}{}", on(address)),
        reach: Reach::Sockets(&iscsi::SOCKETS),
    },
    Entry {
        name: "mount",
        title: "FUSE",
        serves: "a volume as a block device of this machine, and as the file system that is mounted from it",
        section: "mount",
        a_section: "a mount",
        page: "docs/configuration.md",
        shown: |name, address| match name == address {
            true => address.to_owned(),
            false => format!("{name}{}", on(address)),
        },
        reach: Reach::Kernel,
    },
];

fn on(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" on {address}") }
}

/// Every front end, in the order in which messages name them.
pub fn front_ends() -> &'static [Entry] {
    FRONT_ENDS
}

/// The front ends that clients connect to, in the same order.
pub fn with_sockets() -> impl Iterator<Item = (&'static Entry, &'static Sockets)> {
    front_ends().iter().filter_map(|entry| Some((entry, entry.sockets()?)))
}

/// How many front ends clients connect to.
pub const WITH_SOCKETS: usize = {
    let (mut count, mut at) = (0, 0);
    while at < FRONT_ENDS.len() {
        count += matches!(FRONT_ENDS[at].reach, Reach::Sockets(_)) as usize;
        at += 1;
    }
    count
};

/// Their own tables, as keys of the file.
pub const OWN_TABLES: [&dyn Described; WITH_SOCKETS] = tables(false);
/// Their tables in a volume, as keys of `[volume.NAME]`.
pub const VOLUME_TABLES: [&dyn Described; WITH_SOCKETS] = tables(true);

const fn tables(are_of_volume: bool) -> [&'static dyn Described; WITH_SOCKETS] {
    // Each place is filled below.
    let mut tables: [&'static dyn Described; WITH_SOCKETS] = [&nbd::SOCKETS.tables.own; WITH_SOCKETS];
    let (mut count, mut at) = (0, 0);
    while at < FRONT_ENDS.len() {
        if let Reach::Sockets(sockets) = FRONT_ENDS[at].reach {
            tables[count] = if are_of_volume { &sockets.tables.of_volume } else { &sockets.tables.own };
            count += 1;
        }
        at += 1;
    }
    tables
}

/// The front end called `name`.
pub fn front_end(name: &str) -> Option<&'static Entry> {
    FRONT_ENDS.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: two entries have the section of one.
    #[test]
    fn no_two_front_ends_share_a_name_a_section_or_a_word_for_doors() {
        let is_once =
            |words: Vec<&str>| words.iter().all(|word| words.iter().filter(|other| *other == word).count() == 1);
        assert!(is_once(front_ends().iter().map(|entry| entry.name).collect()));
        assert!(is_once(front_ends().iter().map(|entry| entry.section).collect()));
        assert!(is_once(with_sockets().map(|(_, sockets)| sockets.words.door).collect()));
    }

    /// Planted break, seen red: the table of iSCSI in a volume is called `scsi`.
    #[test]
    fn the_tables_of_the_configuration_are_those_of_the_registry() {
        let sections: Vec<&str> = with_sockets().map(|(entry, _)| entry.section).collect();
        assert_eq!(OWN_TABLES.map(|table| table.name()).to_vec(), sections);
        assert_eq!(VOLUME_TABLES.map(|table| table.name()).to_vec(), sections);
        for (entry, sockets) in with_sockets() {
            assert_eq!(sockets.tables.own.form.table.path, entry.section);
            assert_eq!(sockets.tables.of_volume.form.table.path, format!("volume.NAME.{}", entry.section));
            assert!(sockets.tables.of_volume.form.table.keys.iter().any(|key| key.name() == sockets.tables.name));
            assert!(entry.a_section.ends_with(&format!(" {}", entry.section)));
        }
    }

    #[test]
    fn ways_to_a_volume_are_shown_with_and_without_an_address() {
        let shown = |kind: &str, name: &str, address: &str| (front_end(kind).unwrap().shown)(name, address);
        assert_eq!(shown("nbd", "scratch disk", "tcp:127.0.0.1:1"), "NBD export \"scratch disk\" on tcp:127.0.0.1:1");
        assert_eq!(shown("iscsi", "iqn.2026-01.a:b", ""), "iSCSI target iqn.2026-01.a:b");
        assert_eq!(shown("mount", "/mnt", "/dev/loop0"), "/mnt on /dev/loop0");
        assert_eq!(shown("mount", "/dev/loop0", "/dev/loop0"), "/dev/loop0");
        assert!(front_end("vhost").is_none());
    }
}
