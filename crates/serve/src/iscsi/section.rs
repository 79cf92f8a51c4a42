//! iSCSI for the registry and for the configuration. `[iscsi]` says where initiators connect. `[volume.NAME.iscsi]` is
//! a volume as a target: its name, and what it asks of initiators.

use super::doors::TargetDoors;
use crate::connection::Address;
use crate::sockets::{DoorSection, Sockets, Tables, Words};
use plimsoll_protocols::iscsi::chap::SECRET_BYTES;
use plimsoll_protocols::iscsi::{Chap, Credentials, names};
use plimsoll_settings::key::{Absent, Key, KeyTable, SubTable, Text, Texts};
use plimsoll_settings::{Problem, Section};
use std::net::Ipv4Addr;

/// The port of the protocol (RFC 7143, 4.2.7.1).
const PORT: u16 = 3260;
/// What the name of a target begins with that has none.
const NAME_PREFIX: &str = "iqn.2026-01.local.plimsoll:";
/// Longest name of a CHAP user (RFC 7143, 12.1.3). Bytes.
const USER_BYTES_MAX: usize = 255;
const NAME_ALLOWED: &str = "an iSCSI name such as \"iqn.2026-01.org.example:disk\", at most 223 bytes";
const USER_ALLOWED: &str = "1 to 255 bytes without control characters";
const SECRET_ALLOWED: &str = "a secret of 12 to 255 bytes";

const LISTEN: Key<Texts> = Key {
    name: "listen",
    form: Texts { allowed: "a list such as [\"tcp:127.0.0.1:3260\", \"unix:/run/plimsoll/iscsi.sock\"]" },
    absent: Absent::Words("`[\"tcp:127.0.0.1:3260\"]` if a volume is a target"),
    help: "at most 64 of `\"unix:PATH\"`, `\"tcp:ADDRESS:PORT\"` and `\"ADDRESS:PORT\"` (the same as with `tcp:`). \
           Refused where no volume is a target",
};
const OWN_TABLE: KeyTable = KeyTable { path: "iscsi", keys: &[&LISTEN] };

const NAME: Key<Text> = Key {
    name: "name",
    form: Text::new("text", NAME_ALLOWED),
    absent: Absent::Words("`iqn.2026-01.local.plimsoll:` and the volume's name in lower case"),
    help: "the iSCSI name of the target, each once: `iqn.`, `eui.` or `naa.` and more, lower-case letters, digits, `-`, \
           `.`, `:`",
};
const CHAP: Key<SubTable> = Key {
    name: "chap",
    form: SubTable { table: &CHAP_TABLE },
    absent: Absent::Words("every initiator is let in"),
    help: "initiators prove that they know a secret",
};

const VOLUME_TABLE: KeyTable = KeyTable { path: "volume.NAME.iscsi", keys: &[&NAME, &CHAP] };

const USER: Key<Text> = Key {
    name: "user",
    form: Text::new("text", USER_ALLOWED),
    absent: Absent::Required("the name of an initiator's user"),
    help: "the name that initiators give",
};
const SECRET: Key<Text> = Key {
    name: "secret",
    form: Text::new("text", SECRET_ALLOWED),
    absent: Absent::Required(SECRET_ALLOWED),
    help: "the secret that initiators prove to know",
};
const TARGET_USER: Key<Text> = Key {
    name: "target_user",
    form: Text::new("text", USER_ALLOWED),
    absent: Absent::Words("the target proves nothing"),
    help: "the name that the target gives to initiators that ask; together with `target_secret`",
};
const TARGET_SECRET: Key<Text> = Key {
    name: "target_secret",
    form: Text::new("text", SECRET_ALLOWED),
    absent: Absent::Words("the target proves nothing"),
    help: "the secret that the target proves to know; another one than `secret`",
};
const CHAP_TABLE: KeyTable =
    KeyTable { path: "volume.NAME.iscsi.chap", keys: &[&USER, &SECRET, &TARGET_USER, &TARGET_SECRET] };

/// iSCSI.
pub(crate) const SOCKETS: Sockets = Sockets {
    words: Words { door: "target", a_door: "an iSCSI target", the_name: "the target", served: "served over iSCSI" },
    tables: Tables {
        own: Key {
            name: "iscsi",
            form: SubTable { table: &OWN_TABLE },
            absent: Absent::Words("its defaults"),
            help: "where iSCSI initiators connect",
        },
        listen: LISTEN,
        default_address: |_| Address::Tcp((Ipv4Addr::LOCALHOST, PORT).into()),
        of_volume: Key {
            name: "iscsi",
            form: SubTable { table: &VOLUME_TABLE },
            absent: Absent::Words("no target"),
            help: "it is a target; `iscsi = {}` is enough. What is offered: [iscsi.md](iscsi.md)",
        },
        name: NAME.name,
        read,
    },
    login: Some(CHAP.name),
    has_reservations: true,
    doors: || Box::<TargetDoors>::default(),
};

fn read(volume: &str, mut section: Section<'_>, problems: &mut Vec<Problem>) -> DoorSection {
    let name = NAME.read(&mut section, problems, |text| match names::is_strict(text) {
        true => Ok(text.to_owned()),
        false => Err(NAME_ALLOWED.to_owned()),
    });
    let name = name.unwrap_or_else(|| format!("{NAME_PREFIX}{}", volume.to_lowercase().replace('_', "-")));
    let chap = CHAP.read(&mut section, problems).and_then(|section| chap(section, problems));
    if chap.is_none() && section.place().has(CHAP.name) {
        section.not_understood(CHAP.name);
    }
    DoorSection { name, login: chap, place: section.finish(problems) }
}

fn chap(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Chap> {
    let before = problems.len();
    USER.require(&mut section, problems);
    SECRET.require(&mut section, problems);
    let initiator = credentials(&mut section, &USER, &SECRET, problems);
    let target = credentials(&mut section, &TARGET_USER, &TARGET_SECRET, problems);
    let place = section.finish(problems);
    let (user, secret) = (TARGET_USER.name, TARGET_SECRET.name);
    if place.has(user) != place.has(secret) {
        let (one, other) = if place.has(user) { (user, secret) } else { (secret, user) };
        problems.push(place.problem(one, format!("no {other}"), "both of them or neither"));
    }
    if let (Some(initiator), Some(target)) = (&initiator, &target)
        && initiator.secret == target.secret
    {
        let got = "the secret of the initiator";
        problems.push(place.problem(
            TARGET_SECRET.name,
            got,
            "one of its own: a peer that knows one must not know the other",
        ));
    }
    (problems.len() == before).then_some(Chap { initiator: initiator?, target })
}

/// A user and a secret. What a secret is, no message says.
fn credentials(
    section: &mut Section<'_>,
    user: &Key<Text>,
    secret: &Key<Text>,
    problems: &mut Vec<Problem>,
) -> Option<Credentials> {
    let name = user.read(section, problems, |text| {
        let is_fine = (1..=USER_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(USER_ALLOWED.to_owned()) }
    });
    let value = secret.text(section, problems);
    if let Some(value) = value.filter(|value| !SECRET_BYTES.contains(&value.len())) {
        let got = format!("{} bytes", value.len());
        problems.push(section.place().problem(secret.name, got, "12 to 255 bytes: a shorter one can be guessed"));
    }
    Some(Credentials { user: name?, secret: value?.to_owned() })
}
