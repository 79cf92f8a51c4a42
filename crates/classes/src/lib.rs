//! How an application says what class its files are.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let index = std::fs::File::open("/mnt/db/orders.index")?;
//! let client = plimsoll_classes::Client::from_environment();
//! client.classify(&index, 25.try_into()?)?;
//! assert_eq!(client.class_of(&index)?.number(), 25);
//! # Ok(())
//! # }
//! ```
//!
//! **The rule.** A file of a volume that is mounted with tenants has one class at a time: what was said of it last, or, as
//! long as nobody said anything, what the file system's tags say. What was said holds for all its blocks that are read or
//! written from the answer on, by whomever, until class 0 is said, the file is deleted or the volume is unmounted. Its owner
//! and root may say it.
//!
//! **How it travels.** The client tells the daemon's socket the file's device and inode ([`message`]); the daemon knows of
//! each block whose inode it is. No descriptor is passed: what others hand over may lead to a file system that never answers.
//!
//! `c/plimsoll_classes.h` has the same two calls for C; the preload shim (`gates`) has O_CLASSIFIED over them.

pub mod client;
pub mod message;

pub use client::{Client, ClientError};
pub use plimsoll_core::Class;

/// Where the daemon listens, if the environment does not say ([`SOCKET_VARIABLE`]).
pub const SOCKET_DEFAULT: &str = "/run/plimsoll/classes.sock";
/// The variable of the environment that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "PLIMSOLL_CLASSES";
