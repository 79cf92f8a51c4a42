//! Network block device (NBD) without I/O: the protocol that virtual machines, `qemu-img`, fio and libnbd speak.
//!
//! A connection has two phases. In the *handshake* the client asks for an export by name and both sides agree on what
//! they can do. In *transmission* 28-byte requests come in and replies go out in any order.
//!
//! The protocol is *sans-io*: [`wire`], [`option`], [`handshake`] and [`replies`] turn bytes into values and values
//! into bytes and never touch a socket. So a ring, a blocking socket, a property test with one byte at a time, and a
//! fuzzer all feed the same code.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`error`] | what closes a connection, and what a reply can say |
//! | [`export`] | what a client is told about a volume |
//! | [`wire`] | requests and replies of the transmission phase |
//! | [`option`] | options and their replies of the handshake |
//! | [`handshake`] | the server's half of the handshake, a state machine |
//! | [`replies`] | the client's half of transmission, a state machine |
//!
//! Facts are those of the NBD protocol specification (`doc/proto.md` of the reference implementation), which its
//! authors put into the public domain. Not offered are TLS, block status and extended headers. To a request for one of
//! them the server answers "unsupported" and continues.

pub mod error;
pub mod export;
pub mod handshake;
pub mod limits;
pub mod option;
pub mod replies;
pub mod wire;

pub use error::{Errno, NbdError};
pub use export::{ExportInfo, SharedExports};
pub use handshake::{Handshake, Negotiated};
pub use wire::{Command, CommandFlags, Request};
