//! iSCSI: the front end of hypervisors and operating systems. It carries a class with every command.
//!
//! ```text
//!   initiator                    portal (control plane)                 device's thread (data path)
//!     | connect ------------------> accept
//!     | <-- login, CHAP, texts ---> Login ---- socket, Negotiated ----> IscsiConnection --> scsi::LogicalUnit --> engine
//! ```
//!
//! A volume is a target with one logical unit, number 0. The GROUP NUMBER of a command is the class of its requests
//! (Differentiated Storage Services, section 3). What commands mean is
//! [`plimsoll_protocols::scsi`]'s, what PDUs and logins say [`plimsoll_protocols::iscsi`]'s; here is how they travel.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`target`] | targets, and which sessions they have |
//! | [`portal`] | the listener, login threads, discovery |
//! | `doors` | targets as [doors](crate::doors) |
//! | `section` | what the registry and the configuration have of it |
//! | [`iscsi_connection`] | a session on the ring of its device |
//!
//! Facts are those of RFC 7143. One connection a session; initiators that want more paths open more sessions. Error
//! recovery level 0: whatever arrives damaged ends the session, and the initiator begins a new one.

mod doors;
pub mod iscsi_connection;
pub mod portal;
mod section;
pub mod target;

pub use iscsi_connection::{COMMANDS_MAX, IscsiConnection};
pub use portal::{Session, serve};
pub(crate) use section::SOCKETS;
pub use target::{Target, Targets};
