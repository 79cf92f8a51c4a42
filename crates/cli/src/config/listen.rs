//! The addresses in `nbd.listen` and `iscsi.listen`, which have the same form, and as `up` prints them.

use super::paths::socket;
use super::quoted;
use plimsoll_serve::nbd::Address;
use plimsoll_settings::key::{Key, Texts};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// Addresses of one protocol at the most.
const ADDRESSES_MAX: usize = 64;

/// An address that NBD clients or iSCSI initiators connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A Unix socket for NBD, or an address and a port. Port 0 lets the kernel choose.
    pub address: Address,
    /// Its line; 0 if it is the default.
    pub line: usize,
}

/// An address in one of its three forms. A relative path of a socket starts from `directory`.
pub(super) fn address(text: &str, directory: &Path, allowed: &str) -> Result<Address, String> {
    match text.strip_prefix("unix:") {
        Some(path) => socket(path, directory).map(Address::Unix),
        None => text.parse().map_err(|_| allowed.to_owned()),
    }
}

/// The addresses in `key`, each read by `read`, which says what is allowed instead.
pub(super) fn addresses(
    section: &mut Section<'_>,
    key: &Key<Texts>,
    read: impl Fn(&str) -> Result<Address, String>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<Listen>> {
    let texts = key.read(section, problems);
    let mut listen: Vec<Listen> = Vec::new();
    for (line, text) in texts.iter().flatten().copied() {
        let refuse = |got: String, allowed: String| Problem { line, ..section.place().problem(key.name, got, allowed) };
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
        problems.push(section.place().problem(key.name, "an empty list", key.form.allowed));
    }
    texts.is_some().then_some(listen)
}

fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}
