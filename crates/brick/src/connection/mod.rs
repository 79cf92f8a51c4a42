//! What connections over sockets share, whatever they speak: where a server listens, how a socket is accepted and prepared, and how
//! answers go out on the ring.
//!
//! | module | what it is |
//! | --- | --- |
//! | `prepare` | a socket before its first operation on the ring |
//! | `send` | one send of bytes that lie in several places |

mod prepare;
mod send;

pub(crate) use prepare::prepare;
pub(crate) use send::{GatheredSend, Part};
