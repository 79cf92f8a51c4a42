//! `nbd://` addresses, as libnbd, qemu and nbdinfo have them: `nbd://host:port/export`,
//! `nbd+unix:///export?socket=/path`.
//!
//! After the NBD URI specification (`doc/uri.md` of the reference implementation), without TLS, vsock and user names,
//! which are said to be missing.

use crate::connection::Address;
use percent_encoding::percent_decode_str;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// The port where no other is named (IANA).
const PORT_DEFAULT: u16 = 10809;
const TCP: &str = "nbd://";
const UNIX: &str = "nbd+unix://";

/// An export and where it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where.
    pub address: Address,
    /// Empty for the default one.
    pub export_name: String,
}

/// A text that is no such address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NbdUriError {
    /// Neither form.
    #[error("got {got:?}, allowed nbd://HOST:PORT/EXPORT and nbd+unix:///EXPORT?socket=/PATH")]
    Form {
        /// The text.
        got: String,
    },
    /// No address is known for the host.
    #[error("got {got:?}: host {host:?} is not known")]
    Host {
        /// The text.
        got: String,
        /// Of it, the host.
        host: String,
    },
}

impl FromStr for NbdUri {
    type Err = NbdUriError;

    fn from_str(text: &str) -> Result<NbdUri, NbdUriError> {
        let form = || NbdUriError::Form { got: text.to_owned() };
        if let Some(rest) = text.strip_prefix(UNIX) {
            let (path, query) = rest.split_once('?').ok_or_else(form)?;
            let export_name = path.strip_prefix('/').and_then(decoded).ok_or_else(form)?;
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket=")).and_then(decoded);
            let socket = socket.filter(|socket| socket.starts_with('/')).ok_or_else(form)?;
            return Ok(NbdUri { address: Address::Unix(PathBuf::from(socket)), export_name });
        }
        let rest = text.strip_prefix(TCP).ok_or_else(form)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let export_name = decoded(path).ok_or_else(form)?;
        let (host, port) = host_and_port(authority).ok_or_else(form)?;
        let unknown = || NbdUriError::Host { got: text.to_owned(), host: host.to_owned() };
        let mut found = (host, port).to_socket_addrs().map_err(|_| unknown())?;
        Ok(NbdUri { address: Address::Tcp(found.next().ok_or_else(unknown)?), export_name })
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// `host`, `host:port`, `[::1]:port`.
fn host_and_port(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(PORT_DEFAULT), |port| port.parse().ok())?;
    (!host.is_empty() && !authority.contains('@')).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_with_what_is_escaped() {
        let unix = |path: &str, name: &str| NbdUri { address: Address::Unix(path.into()), export_name: name.into() };
        let tcp =
            |at: &str, name: &str| NbdUri { address: Address::Tcp(at.parse().unwrap()), export_name: name.into() };
        for (text, expected) in [
            ("nbd+unix:///db?socket=/run/nbd.sock", unix("/run/nbd.sock", "db")),
            ("nbd+unix:///?socket=/run/a%20b.sock", unix("/run/a b.sock", "")),
            ("nbd+unix:///db/loader%231?x=y&socket=/s", unix("/s", "db/loader#1")),
            ("nbd://127.0.0.1:10810/db", tcp("127.0.0.1:10810", "db")),
            ("nbd://127.0.0.1", tcp("127.0.0.1:10809", "")),
            ("nbd://[::1]:7/a%2Fb", tcp("[::1]:7", "a/b")),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "db",
            "nbd:",
            "nbd://",
            "nbd://:1/db",
            "nbd://127.0.0.1:port/db",
            "nbd://127.0.0.1:70000",
            "nbd://[::1",
            "nbd://me@127.0.0.1/db",
            "nbds://127.0.0.1/db",
            "nbd+unix:///db",
            "nbd+unix:///db?socket=relative",
            "nbd+unix://host?socket=/s",
            "nbd+unix:///%ff?socket=/s",
        ] {
            assert_eq!(text.parse::<NbdUri>(), Err(NbdUriError::Form { got: text.to_owned() }), "{text}");
        }
    }
}
