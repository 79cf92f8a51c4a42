//! The data path: volumes on a device, served to tenants through a scheduler.
//!
//! ```text
//!   NBD connection --+                                        +-- memory
//!   iSCSI session ---+-- front ends -- scheduler -- backends --+-- file or block device (O_DIRECT)
//!   FUSE file, loop -+                    |                    +-- optionally held back by a device model
//!                                 accounts: pools, sessions
//! ```
//!
//! One thread a device owns all of it ([`engine`]): its ring, its scheduler, its volumes and its front ends. So nothing
//! on the way of a request needs a lock. Whatever other threads want is asked through an [`engine::EngineHandle`].

// What the tests in `tests/` share names this crate as other crates do.
#[cfg(test)]
extern crate self as plimsoll_brick;

pub mod attach;
pub mod backend;
pub mod cache;
pub mod connection;
pub mod engine;
pub mod fuse;
pub mod iscsi;
pub mod measure;
pub mod nbd;
pub mod notes;
mod occupied;
pub mod read_ahead;
pub mod scsi;
