//! iSCSI: the front end that hypervisors and operating systems speak, and which carries a class with every command.
//!
//! ```text
//!   initiator                    portal (control plane)                 device's thread (data path)
//!     | connect ------------------> accept
//!     | <-- login, CHAP, texts ---> Login ---- socket, Negotiated ----> IscsiConnection --> scsi::LogicalUnit --> engine
//! ```
//!
//! A volume is a target with one logical unit, number 0. The GROUP NUMBER of a command is the class of its requests
//! (Differentiated Storage Services, section 3). What commands mean is [`crate::scsi`]'s; here is how they travel.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`error`] | what closes a connection, and what refuses a login |
//! | [`pdu`] | protocol data units as bytes, with their digests |
//! | [`text`] | `key=value` |
//! | [`parameters`] | what both sides agree on |
//! | [`chap`] | proving a secret |
//! | [`login`] | the target's half of a login, a state machine |
//! | [`names`] | what initiators and targets may be called |
//! | [`target`] | targets, and which sessions they have |
//! | [`portal`] | the listener, login threads, discovery |
//! | [`connection`] | a session on the ring of its device |
//!
//! Facts are those of RFC 7143. One connection a session; initiators that want more paths open more sessions. Error
//! recovery level 0: whatever arrives damaged ends the session, and the initiator begins a new one.

pub mod chap;
pub mod connection;
pub mod error;
pub mod login;
pub mod names;
pub mod parameters;
pub mod pdu;
pub mod portal;
pub mod target;
pub mod text;

pub use chap::{Chap, Credentials};
pub use connection::IscsiConnection;
pub use login::Negotiated;
pub use portal::{Session, serve};
pub use target::{Target, Targets};
