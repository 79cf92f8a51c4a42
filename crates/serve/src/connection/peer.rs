//! The peer at the other end of a connection, as far as the kernel tells.

use std::fmt;
use std::net::SocketAddr;

/// The peer at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, as it was when it connected (`SO_PEERCRED` of unix(7)).
    Process {
        /// Its number.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// An address.
    Socket(SocketAddr),
    /// The kernel would not say.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Process { pid, uid } => write!(out, "process {pid} of user {uid}"),
            Peer::Socket(address) => write!(out, "{address}"),
            Peer::Unknown => write!(out, "unknown peer"),
        }
    }
}
