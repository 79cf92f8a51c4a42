//! `[iscsi]`: where iSCSI initiators connect.

use super::listen::{self, Listen};
use plimsoll_settings::key::{Absent, Key, KeyTable, Texts};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// The port of the protocol (RFC 7143, 4.2.7.1).
pub(super) const PORT: u16 = 3260;

const LISTEN: Key<Texts> = Key {
    name: "listen",
    form: Texts { allowed: "a list such as [\"tcp:127.0.0.1:3260\", \"unix:/run/plimsoll/iscsi.sock\"]" },
    absent: Absent::Words("`[\"tcp:127.0.0.1:3260\"]` if a volume is a target"),
    help: "at most 64 of `\"unix:PATH\"`, `\"tcp:ADDRESS:PORT\"` and `\"ADDRESS:PORT\"` (the same as with `tcp:`). \
           Refused where no volume is a target",
};

pub(super) const TABLE: KeyTable = KeyTable { path: "iscsi", keys: &[&LISTEN] };

/// A later check, when the targets are known, says which sockets other machines may reach.
pub(super) fn read(section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    listen::addresses(section, &LISTEN, directory, true, problems)
}
