//! What tenants speak with a volume, as bytes and state machines: no socket, no file, no clock, no thread.
//!
//! The same code is fed by a ring, by a blocking socket, by a property test one byte at a time, and by a fuzzer. Every
//! parser takes whatever bytes a peer sends and answers with a value or an error; none panics.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`nbd`] | network block device: handshake, requests, replies |
//! | [`scsi`] | what the commands of a disk mean, whatever brings them |
//! | [`iscsi`] | how SCSI commands travel: PDUs, login, CHAP |
//! | [`fuse`] | requests of the kernel at `/dev/fuse`, and their replies |

#![forbid(unsafe_code)]

pub mod fuse;
pub mod iscsi;
pub mod nbd;
pub mod scsi;
