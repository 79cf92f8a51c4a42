//! Network block device (NBD): the front end that virtual machines, `qemu-img`, fio and libnbd speak.
//!
//! A connection has two phases. In the *handshake* the client asks for an export by name and both sides agree on what
//! they can do. It is rare, and runs on a short-lived thread. In *transmission* 28-byte requests come in and replies go
//! out in any order. It is all there is afterwards, and runs on the ring of the device's thread.
//!
//! ```text
//!   client                     Listener (control plane)                 device's thread (data path)
//!     | connect ---------------> accept
//!     | <-- greeting, options -> Handshake ----- OwnedFd, Negotiated ----> requests and replies
//! ```
//!
//! The protocol itself is *sans-io* ([`plimsoll_protocols::nbd`]); here are the sockets.
//!
//! | module | what it is |
//! | --- | --- |
//! | `listener` | the handshake over a socket; the rest of a listener is in [`connection`](crate::connection) |
//! | `doors` | exports as [doors](crate::doors) |
//! | `section` | what the registry and the configuration have of it |
//! | [`nbd_connection`] | the server's half of transmission, on the ring of a device |
//! | [`client`] | a blocking client with pipelining |
//! | [`uri`] | `nbd://` addresses |

pub mod client;
mod doors;
mod listener;
pub mod nbd_connection;
mod section;
pub mod uri;

pub use crate::connection::{Address, Listener, Peer};
pub use client::Client;
pub use listener::serve;
pub use nbd_connection::{NbdConnection, REQUESTS_MAX, export_info};
pub(crate) use section::SOCKETS;
pub use uri::{NbdUri, NbdUriError};
