//! `[iscsi]`: where iSCSI initiators connect.

use super::listen::{self, Listen};
use plimsoll_serve::nbd::Address;
use plimsoll_settings::key::{Absent, Key, KeyTable, Texts};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// The port of the protocol (RFC 7143, 4.2.7.1).
pub(super) const PORT: u16 = 3260;

const LISTEN: Key<Texts> = Key {
    name: "listen",
    form: Texts { allowed: "a list such as [\"tcp:127.0.0.1:3260\", \"tcp:[::1]:3260\"]" },
    absent: Absent::Words("`[\"tcp:127.0.0.1:3260\"]` if a volume is a target"),
    help: "at most 64 of `\"tcp:ADDRESS:PORT\"` and `\"ADDRESS:PORT\"`, which are the same: initiators connect over TCP \
           only. Refused where no volume is a target",
};

pub(super) const TABLE: KeyTable = KeyTable { path: "iscsi", keys: &[&LISTEN] };

/// A later check, when the targets are known, says which sockets other machines may reach.
pub(super) fn read(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    const ALLOWED: &str =
        "\"tcp:ADDRESS:PORT\" or \"ADDRESS:PORT\" such as \"tcp:127.0.0.1:3260\": initiators connect over TCP only";
    let read = |text: &str| match listen::address(text, Path::new("/"), ALLOWED) {
        Ok(Address::Tcp(address)) => Ok(Address::Tcp(address)),
        _ => Err(ALLOWED.to_owned()),
    };
    let listen = listen::addresses(&mut section, &LISTEN, read, problems);
    section.finish(problems);
    listen
}
