//! Listeners from other processes: an OCI runtime for a container, or [`Launch`](crate::Launch) for a command.
//!
//! The protocol is that of `listenerPath` in the OCI runtime specification (1.0.2, config-linux.md, "Seccomp";
//! runtime.md, "The Container Process State"). A client connects and sends one JSON object, with the listener by
//! SCM_RIGHTS at its first bytes, and no more. We answer `ok` when the listener is taken over, which a runtime does not
//! read and a `Launch` waits for.
//!
//! A process that can reach the socket can hand anything over, so it all is untrusted: sizes, numbers and time are
//! bounded.

mod socket;
mod state;

pub use socket::{Answer, Arrival, OciSocket};
pub use state::{ContainerState, OciError, SeccompState};

pub(crate) use socket::TAKEN_OVER;
pub(crate) use state::SECCOMP_DESCRIPTOR;
