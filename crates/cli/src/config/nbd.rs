//! `[nbd]`: where NBD clients connect.

use super::listen::{self, Listen};
use plimsoll_serve::nbd::Address;
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
pub(super) fn read(mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    const ALLOWED: &str =
        "\"unix:PATH\", \"tcp:ADDRESS:PORT\" or \"ADDRESS:PORT\" with a loopback address such as 127.0.0.1 or [::1]";
    let read = |text: &str| match listen::address(text, directory, ALLOWED)? {
        Address::Tcp(address) if !address.ip().is_loopback() => Err(ALLOWED.to_owned()),
        address => Ok(address),
    };
    let listen = listen::addresses(&mut section, &LISTEN, read, problems);
    section.finish(problems);
    listen
}
