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
//! **The rule.** A file of a volume that is mounted with tenants has one class at a time. It is the class that was said
//! last, or without one the class of the file system's tags. A said class holds for all the file's blocks that any
//! process reads or writes from the answer on. It ends when class 0 is said, the file is deleted or the volume is
//! unmounted. The file's owner and root may say it.
//!
//! **How it travels.** The client sends the daemon's socket the file's device and inode ([`message`]). The daemon knows
//! the inode of each block. No descriptor is passed: what others hand over may lead to a file system that never
//! answers.
//!
//! **For one call alone.** A call past the page cache can carry its class itself, in the hint of its I/O priority
//! ([`io_priority`]). It takes io_uring or libaio. It needs no daemon to listen, and goes before what was said of the
//! file.
//!
//! `c/plimsoll_classes.h` has the same for C; the preload shim (`gates`) has O_CLASSIFIED over them.

#![forbid(unsafe_code)]

pub mod client;
pub mod message;

pub use client::{Client, ClientError};
pub use plimsoll_core::Class;

/// Best effort of ioprio_set(2), its middle level, and where they and a hint stand (`linux/ioprio.h`).
const IO_CLASS_BEST_EFFORT: u16 = 2;
const IO_CLASS_SHIFT: u32 = 13;
const IO_LEVEL_NORMAL: u16 = 4;
const IO_HINT_SHIFT: u32 = 3;
/// Beyond the hints that the kernel knows, 1 to 7: this and a class.
const IO_HINT_OF_CLASS: u16 = 0x200;

/// The I/O priority of a call with direct I/O (O_DIRECT) that says the class of its blocks. It is best effort, in the
/// middle, with the class as a hint. It goes into `ioprio` of an io_uring submission or into `aio_reqprio` of libaio's,
/// from Linux 6.5 on. Earlier kernels refuse the call with EINVAL. With class 0 the call says nothing.
pub fn io_priority(class: Class) -> u16 {
    let hint = IO_HINT_OF_CLASS | u16::from(class.number());
    IO_CLASS_BEST_EFFORT << IO_CLASS_SHIFT | hint << IO_HINT_SHIFT | IO_LEVEL_NORMAL
}

/// Where the daemon listens, if the environment does not say ([`SOCKET_VARIABLE`]).
pub const SOCKET_DEFAULT: &str = "/run/plimsoll/classes.sock";
/// The variable of the environment that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "PLIMSOLL_CLASSES";
