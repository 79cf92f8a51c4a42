//! Where clients connect: the addresses in `listen` of each front end, which are written alike, and as `up` prints
//! them.

use super::paths::socket;
use super::quoted;
use plimsoll_serve::connection::Address;
use plimsoll_settings::key::{Key, Texts};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// Addresses of one protocol at the most.
const ADDRESSES_MAX: usize = 64;

/// The forms of an address, as messages say them.
const FORMS: &str = "\"unix:PATH\", \"tcp:ADDRESS:PORT\" or \"ADDRESS:PORT\"";
const LOOPBACK: &str = "with a loopback address such as 127.0.0.1 or [::1]";

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A Unix socket, or an address and a port; port 0 lets the kernel choose.
    pub address: Address,
    /// Its line; 0 if it is the default.
    pub line: usize,
}

/// An address in one of its three forms, or what is allowed instead. A relative path of a socket starts from
/// `directory`. Where clients have no login, TCP addresses are loopback ones.
fn address(text: &str, directory: &Path, has_login: bool) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.starts_with('@') {
            return Err("a path: an abstract socket has neither an owner nor a mode".into());
        }
        return socket(path, directory).map(Address::Unix);
    }
    let allowed = || if has_login { FORMS.to_owned() } else { format!("{FORMS} {LOOPBACK}") };
    match text.parse() {
        Ok(Address::Tcp(address)) if has_login || address.ip().is_loopback() => Ok(Address::Tcp(address)),
        _ => Err(allowed()),
    }
}

/// The addresses in `key` of a front end, with or without a login.
pub(super) fn addresses(
    mut section: Section<'_>,
    key: &Key<Texts>,
    directory: &Path,
    has_login: bool,
    problems: &mut Vec<Problem>,
) -> Option<Vec<Listen>> {
    let texts = key.read(&mut section, problems);
    let mut listen: Vec<Listen> = Vec::new();
    for (line, text) in texts.iter().flatten().copied() {
        let refuse = |got: String, allowed: String| Problem { line, ..section.place().problem(key.name, got, allowed) };
        match address(text, directory, has_login) {
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
    let is_there = texts.is_some();
    section.finish(problems);
    is_there.then_some(listen)
}

fn is_any_port(address: &Address) -> bool {
    matches!(address, Address::Tcp(address) if address.port() == 0)
}
