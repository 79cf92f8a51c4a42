//! What several of Plimsoll's crates need of the Linux kernel, each idea once.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`boot`] | the identity of a start of the kernel |
//! | [`descriptors`] | sockets that take no descriptors from their clients |
//! | [`durable`] | files that are replaced durably, whole or not at all |
//! | [`files`] | opening regular files and block devices, and nothing that makes the opener wait |
//! | [`mailbox`] | a queue from many threads to one that waits for none of them |
//! | [`mounts`] | the kernel's table of mounts |
//! | [`peer_log`] | lines in the log that a peer can cause as often as it likes |
//! | [`wake`] | an event by which one thread wakes another that polls |

pub mod boot;
pub mod descriptors;
pub mod durable;
pub mod files;
pub mod mailbox;
pub mod mounts;
pub mod peer_log;
pub mod wake;

pub use boot::boot_id;
pub use mounts::{MOUNT_TABLE, Mount, MountTable};
pub use peer_log::PeerLog;
pub use wake::WakeEvent;
