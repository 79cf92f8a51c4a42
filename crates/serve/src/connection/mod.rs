//! Shared by connections over sockets of any protocol: addresses, accepting and preparing a socket, and answers on the
//! ring.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`address`] | where a server listens |
//! | [`listener`] | sockets, threads and deadlines around a handshake |
//! | `handshakes` | those under way, and which must go when there are too many |
//! | `socket` | waiting for a socket, with an end to the waiting |
//! | `phase` | how far a connection has come |
//! | `prepare` | a socket before its first operation on the ring |
//! | [`Peer`] | the peer at the other end |
//! | `silence` | whether the other machine is still there |
//! | `send` | one send of bytes that lie in several places |

pub mod address;
mod handshakes;
pub mod listener;
mod peer;
mod phase;
mod prepare;
mod send;
mod silence;
mod socket;

pub use address::Address;
pub use listener::{ListenError, Listener, ListenerOptions, Serving};
pub use peer::Peer;
pub(crate) use phase::Phase;
pub(crate) use prepare::prepare;
pub(crate) use send::{GatheredSend, Part};
pub(crate) use silence::Silence;
pub(crate) use socket::{Patience, now, try_send};
