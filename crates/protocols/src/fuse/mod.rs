//! FUSE for one file: what the kernel asks at `/dev/fuse`, and what it is answered.
//!
//! The protocol is spoken directly and not through a library. For one file it is small. The module [`wire`] reads
//! requests, [`reply`] makes answers.

pub mod error;
pub mod limits;
pub mod offer;
pub mod reply;
pub mod wire;
