//! Where a server listens: `unix:/path`, `tcp:127.0.0.1:10809`, or `127.0.0.1:10809`, which is the same as the second.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Most bytes of a Unix socket's path (`sun_path` of unix(7), without its NUL).
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// A place to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// A text that is not an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// Neither kind.
    #[error("got {got:?}, expected \"unix:/path/of/socket\", \"tcp:127.0.0.1:10809\" or \"127.0.0.1:10809\"")]
    UnknownKind {
        /// The text.
        got: String,
    },
    /// The path is empty, relative, or too long for the kernel.
    #[error("got {got:?}, expected \"unix:\" and an absolute path of at most {UNIX_PATH_BYTES_MAX} bytes")]
    BadPath {
        /// The text.
        got: String,
    },
    /// The part behind `tcp:` is not an address and a port.
    #[error(
        "got {got:?}, expected \"tcp:\", a numeric address and a port, as in \"tcp:127.0.0.1:10809\" or \"tcp:[::1]:10809\""
    )]
    BadSocketAddress {
        /// The text.
        got: String,
    },
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let got = || text.to_owned();
        match text.split_once(':') {
            Some(("unix", path)) => {
                let is_usable = path.starts_with('/') && path.len() <= UNIX_PATH_BYTES_MAX && !path.contains('\0');
                is_usable.then(|| Address::Unix(path.into())).ok_or_else(|| AddressError::BadPath { got: got() })
            }
            Some(("tcp", address)) => {
                address.parse().map(Address::Tcp).map_err(|_| AddressError::BadSocketAddress { got: got() })
            }
            _ => text.parse().map(Address::Tcp).map_err(|_| AddressError::UnknownKind { got: got() }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
            Address::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

impl Address {
    /// Connects and waits until that has succeeded or failed. A TCP connection sends small messages at once.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_as_people_write_them() {
        for text in ["unix:/run/plimsoll/disk0.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (plain, printed) in [("127.0.0.1:0", "tcp:127.0.0.1:0"), ("[::1]:3260", "tcp:[::1]:3260")] {
            assert_eq!(plain.parse::<Address>().unwrap().to_string(), printed);
        }
        let error = |text: &str| text.parse::<Address>().unwrap_err();
        assert_eq!(
            error("/run/x.sock").to_string(),
            "got \"/run/x.sock\", expected \"unix:/path/of/socket\", \"tcp:127.0.0.1:10809\" or \"127.0.0.1:10809\""
        );
        for bad in ["unix:", "unix:relative", &format!("unix:/{}", "x".repeat(107))] {
            assert_eq!(error(bad), AddressError::BadPath { got: bad.into() });
        }
        for bad in ["tcp:", "tcp:localhost:1", "tcp:127.0.0.1", "tcp:127.0.0.1:65536", "tcp:::1:1x"] {
            assert_eq!(error(bad), AddressError::BadSocketAddress { got: bad.into() });
        }
    }
}
