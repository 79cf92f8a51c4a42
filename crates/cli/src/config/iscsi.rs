//! The sections of iSCSI: what a target is called, and what it asks of initiators.

use super::model::*;
use plimsoll_protocols::iscsi::chap::SECRET_BYTES;
use plimsoll_protocols::iscsi::{Chap, Credentials, names};
use plimsoll_settings::{Problem, Section};

/// The port of the protocol (RFC 7143, 4.2.7.1).
pub(super) const PORT: u16 = 3260;
/// What the name of a target begins with that has none.
const NAME_PREFIX: &str = "iqn.2026-01.local.plimsoll:";
/// Longest name of a CHAP user (RFC 7143, 12.1.3). Bytes.
const USER_BYTES_MAX: usize = 255;

/// A volume as a target.
pub(super) fn target(volume: &str, mut section: Section<'_>, problems: &mut Vec<Problem>) -> IscsiTarget {
    const ALLOWED: &str = "an iSCSI name such as \"iqn.2026-01.org.example:disk\", at most 223 bytes";
    let name = section.read("name", ALLOWED, problems, |text| match names::is_strict(text) {
        true => Ok(text.to_owned()),
        false => Err(ALLOWED.to_owned()),
    });
    let name = name.unwrap_or_else(|| format!("{NAME_PREFIX}{}", volume.to_lowercase().replace('_', "-")));
    let chap = section.section("chap", problems).and_then(|section| chap(section, problems));
    if chap.is_none() && section.place().has("chap") {
        section.not_understood("chap");
    }
    IscsiTarget { name, chap, place: section.finish(problems) }
}

fn chap(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Chap> {
    let before = problems.len();
    section.require("user", "the name of an initiator's user", problems);
    section.require("secret", "a secret of 12 to 255 bytes", problems);
    let initiator = credentials(&mut section, "user", "secret", problems);
    let target = credentials(&mut section, "target_user", "target_secret", problems);
    let place = section.finish(problems);
    if place.has("target_user") != place.has("target_secret") {
        let (one, other) =
            if place.has("target_user") { ("target_user", "target_secret") } else { ("target_secret", "target_user") };
        problems.push(place.problem(one, format!("no {other}"), "both of them or neither"));
    }
    if let (Some(initiator), Some(target)) = (&initiator, &target)
        && initiator.secret == target.secret
    {
        let got = "the secret of the initiator";
        problems.push(place.problem("target_secret", got, "one of its own: whoever knows one must not know the other"));
    }
    (problems.len() == before).then_some(Chap { initiator: initiator?, target })
}

/// A user and a secret. What a secret is, no message says.
fn credentials(
    section: &mut Section<'_>,
    user: &'static str,
    secret: &'static str,
    problems: &mut Vec<Problem>,
) -> Option<Credentials> {
    const USER: &str = "1 to 255 bytes without control characters";
    let name = section.read(user, USER, problems, |text| {
        let is_fine = (1..=USER_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(USER.to_owned()) }
    });
    let value = section.text(secret, "a secret of 12 to 255 bytes", problems);
    if let Some(value) = value.filter(|value| !SECRET_BYTES.contains(&value.len())) {
        let got = format!("{} bytes", value.len());
        problems.push(section.place().problem(secret, got, "12 to 255 bytes: a shorter one can be guessed"));
    }
    Some(Credentials { user: name?, secret: value?.to_owned() })
}
