//! Where clients connect: `nbd.listen` and `iscsi.listen`, which are written alike, and as `up` prints them.

use super::model::Listen;
use super::paths::socket;
use super::quoted;
use plimsoll_serve::nbd::Address;
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// Addresses of one protocol at the most.
const ADDRESSES_MAX: usize = 64;

/// Without encryption, an export is for this machine only.
pub(super) fn nbd(section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    const LIST: &str = "a list such as [\"unix:/run/plimsoll/nbd.sock\", \"tcp:127.0.0.1:10809\"]";
    const ALLOWED: &str =
        "\"unix:PATH\", \"tcp:ADDRESS:PORT\" or \"ADDRESS:PORT\" with a loopback address such as 127.0.0.1 or [::1]";
    let read = |text: &str| match address(text, directory, ALLOWED)? {
        Address::Tcp(address) if !address.ip().is_loopback() => Err(ALLOWED.to_owned()),
        address => Ok(address),
    };
    addresses(section, LIST, read, problems)
}

/// A later check, when the targets are known, says which sockets other machines may reach.
pub(super) fn iscsi(section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Vec<Listen>> {
    const LIST: &str = "a list such as [\"tcp:127.0.0.1:3260\", \"tcp:[::1]:3260\"]";
    const ALLOWED: &str =
        "\"tcp:ADDRESS:PORT\" or \"ADDRESS:PORT\" such as \"tcp:127.0.0.1:3260\": initiators connect over TCP only";
    let read = |text: &str| match address(text, Path::new("/"), ALLOWED) {
        Ok(Address::Tcp(address)) => Ok(Address::Tcp(address)),
        _ => Err(ALLOWED.to_owned()),
    };
    addresses(section, LIST, read, problems)
}

/// An address in one of its three forms. A relative path of a socket starts from `directory`.
fn address(text: &str, directory: &Path, allowed: &str) -> Result<Address, String> {
    match text.strip_prefix("unix:") {
        Some(path) => socket(path, directory).map(Address::Unix),
        None => text.parse().map_err(|_| allowed.to_owned()),
    }
}

/// The addresses in `listen`, each read by `read`, which says what is allowed instead.
fn addresses(
    mut section: Section<'_>,
    allowed: &'static str,
    read: impl Fn(&str) -> Result<Address, String>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<Listen>> {
    let texts = section.texts("listen", allowed, problems);
    let mut listen: Vec<Listen> = Vec::new();
    for (line, text) in texts.iter().flatten().copied() {
        let refuse = |got: String, allowed: String| Problem { line, ..section.place().problem("listen", got, allowed) };
        match read(text) {
            Err(allowed) => problems.push(refuse(quoted(text), allowed)),
            Ok(address) if listen.iter().any(|other| other.address == address && !is_any_port(&address)) => {
                problems.push(refuse(format!("{text:?} twice"), "each address once".into()));
            }
            Ok(_) if listen.len() == ADDRESSES_MAX => {
                problems.push(refuse("more addresses".into(), format!("at most {ADDRESSES_MAX}")));
                break;
            }
            Ok(address) => listen.push(Listen { address, line }),
        }
    }
    if texts.as_ref().is_some_and(Vec::is_empty) {
        problems.push(section.place().problem("listen", "an empty list", allowed));
    }
    section.finish(problems);
    texts.is_some().then_some(listen)
}

fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}
