//! iSCSI without I/O: protocol data units, login, CHAP.
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
//!
//! Facts are those of RFC 7143. One connection a session; initiators that want more paths open more sessions. Error
//! recovery level 0: whatever arrives damaged ends the session, and the initiator begins a new one.

pub mod chap;
pub mod error;
pub mod login;
pub mod names;
pub mod parameters;
pub mod pdu;
pub mod text;

pub use chap::{Chap, Credentials};
pub use login::LoggedIn;
