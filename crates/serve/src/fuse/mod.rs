//! A volume as one file: a FUSE mount with a regular file as its root.
//!
//! A file system needs a block device, and a loop device makes one out of a file. So the engine serves one big file and
//! the kernel does the rest:
//!
//! ```text
//!   ext4, XFS -> /dev/loopN (direct I/O) -> FUSE, one file -> /dev/fuse -> engine thread -> scheduler -> backend
//! ```
//!
//! The protocol is spoken directly on `/dev/fuse`. For one file it is small
//! ([`wire`](plimsoll_protocols::fuse::wire)), and three things that decide the speed are in our hands. They are
//! `FUSE_ASYNC_DIO`, `FOPEN_PARALLEL_DIRECT_WRITES`, and the place of a write's payload. Without the first the loop
//! device's queue shrinks to one request; without the second writes queue up at the inode's lock.

mod device;
pub mod driver;

pub use driver::FuseConnection;
