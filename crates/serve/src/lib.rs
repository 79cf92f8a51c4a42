//! The front ends: how tenants reach the volumes of an engine.
//!
//! ```text
//!   clients --- listener --- handshake, login ---> connection --+
//!                                                               +-- FrontEnd on the engine's thread
//!   ext4, XFS on a loop device --- FUSE file ------> /dev/fuse -+
//! ```
//!
//! Listeners, handshakes and mounts run on control threads. Then a connection, or an open `/dev/fuse`, becomes a
//! [`FrontEnd`](plimsoll_engine::FrontEnd) and lives on the engine's thread. What the protocols say is in
//! [`plimsoll_protocols`].
//!
//! | module | what it is |
//! | --- | --- |
//! | [`registry`] | every front end, a line each |
//! | [`sockets`] | what a front end that clients connect to says of itself |
//! | [`doors`] | the names under which clients reach volumes |
//! | [`connection`] | what NBD and iSCSI share: addresses, listeners, sockets, sends |
//! | [`nbd`], [`iscsi`], [`fuse`] | the front ends |
//! | [`attach`] | from a volume to a block device and a mounted file system, and back |

pub mod attach;
pub mod connection;
pub mod doors;
pub mod fuse;
pub mod iscsi;
pub mod nbd;
pub mod registry;
pub mod sockets;
