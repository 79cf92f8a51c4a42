//! The ways to a volume, as the control socket says them.

use plimsoll_serve::registry::{front_end, with_sockets};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One way to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServedAs {
    /// The front end, by its name in the registry: `nbd`, `iscsi`, `mount`.
    pub kind: String,
    /// Name for clients: an export, a target, a mount point, or the block device of a mount without a file system.
    pub name: String,
    /// Address for clients: as in the configuration, with the port that the kernel picked, or a mount's block device.
    pub address: String,
}

/// The ways in words; those that differ in their addresses only are one.
pub fn in_words(ways: &[ServedAs]) -> String {
    let mut words: Vec<String> = Vec::new();
    for (index, way) in ways.iter().enumerate() {
        let is_same = |other: &&ServedAs| (&other.kind, &other.name) == (&way.kind, &way.name);
        if ways[..index].iter().any(|other| is_same(&other)) {
            continue;
        }
        let addresses: Vec<&str> = ways.iter().filter(is_same).map(|other| &*other.address).collect();
        let addresses = addresses.join(" and ");
        words.push(match front_end(&way.kind) {
            Some(entry) => (entry.shown)(&way.name, &addresses),
            // Of a daemon that is newer than this command.
            None => format!("{} {:?} on {addresses}", way.kind, way.name),
        });
    }
    words.join(", ")
}

/// A session that an application has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// Its path.
    pub path: String,
    /// What its clients ask for, by the front end's word for it: `{"export": NAME}` or `{"target": NAME}`.
    #[serde(flatten)]
    pub door: BTreeMap<String, String>,
}

impl SessionEntry {
    /// A session with the door called `name` of the front end that calls doors `word`.
    pub fn new(path: String, word: &str, name: String) -> SessionEntry {
        SessionEntry { path, door: BTreeMap::from([(word.to_owned(), name)]) }
    }

    /// The front end's word for the door, and the door's name; `None` without such a front end.
    pub fn door(&self) -> Option<(&'static str, &str)> {
        with_sockets()
            .map(|(_, sockets)| sockets.words.door)
            .find_map(|word| Some((word, self.door.get(word)?.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(kind: &str, name: &str, address: &str) -> ServedAs {
        ServedAs { kind: kind.into(), name: name.into(), address: address.into() }
    }

    /// Planted break: each address is a way of its own, red.
    #[test]
    fn ways_are_said_once_with_all_their_addresses() {
        let ways = [
            way("nbd", "db", "unix:/run/nbd.sock"),
            way("nbd", "db", "tcp:127.0.0.1:10809"),
            way("mount", "/mnt/db", "/dev/loop3"),
            way("vhost", "db", "unix:/run/vhost"),
        ];
        let expected = "NBD export \"db\" on unix:/run/nbd.sock and tcp:127.0.0.1:10809, /mnt/db on /dev/loop3, \
                        vhost \"db\" on unix:/run/vhost";
        assert_eq!(in_words(&ways), expected);
        assert_eq!(in_words(&[]), "");
    }

    #[test]
    fn a_session_is_written_with_its_front_ends_word_for_a_door() {
        for (word, name) in [("export", "db/a#1"), ("target", "iqn.2026-01.a:b.1")] {
            let entry = SessionEntry::new("web/db/a#1".into(), word, name.into());
            let written = serde_json::to_string(&entry).unwrap();
            assert_eq!(written, format!(r#"{{"path":"web/db/a#1","{word}":"{name}"}}"#));
            assert_eq!(serde_json::from_str::<SessionEntry>(&written).unwrap(), entry);
            assert_eq!(entry.door(), Some((word, name)));
        }
        assert_eq!(SessionEntry::new("p".into(), "window", "w".into()).door(), None);
    }
}
