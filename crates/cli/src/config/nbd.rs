//! `[nbd]`: where NBD clients connect.

use super::listen::{self, Listen};
use plimsoll_settings::key::{Absent, Key, KeyTable, Texts};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

const LISTEN: Key<Texts> = Key {
    name: "listen",
    form: Texts { allowed: "a list such as [\"unix:/run/plimsoll/nbd.sock\", \"tcp:127.0.0.1:10809\"]" },
    absent: Absent::Words("`[\"unix:STATE/nbd.sock\"]` if a volume is exported"),
    help: "at most 64 of `\"unix:PATH\"`, `\"tcp:ADDRESS:PORT\"` and `\"ADDRESS:PORT\"` (the same as with `tcp:`). \
           Refused where no volume has `nbd`",
};

pub(super) const TABLE: KeyTable = KeyTable { path: "nbd", keys: &[&LISTEN] };

/// Without encryption, an export is for this machine only.
pub(super) fn read(section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    listen::addresses(section, &LISTEN, directory, false, problems)
}
