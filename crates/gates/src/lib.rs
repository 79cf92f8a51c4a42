//! Gates: the place where a scheduler delays a process's system calls, at their entry, before the file system's journal
//! entangles them with everybody else's (split-level paper, section 3.1), on a stock kernel and from user space.
//!
//! ```text
//!   tenant                                            agent
//!   fsync() -> shim, preloaded: word closed? wait <---- GateWords: one word per account and class
//!        |
//!        v  system call
//! ```
//!
//! A gate **fails open**: the words count only as long as their lease is renewed.

pub mod class;
pub mod clock;
pub mod error;
pub mod launch;
mod mapping;
pub mod shim;
pub mod words;

pub use class::{GateClass, GateClasses};
pub use error::GateError;
pub use launch::Preload;
pub use shim::Shim;
pub use words::GateWords;
