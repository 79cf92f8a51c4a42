//! Gates: the place where a scheduler delays a process's system calls, at their entry. There the file system's journal
//! has not entangled them with all others' yet (split-level paper, section 3.1). They need a stock kernel and run in
//! user space.
//!
//! ```text
//!   tenant                                            agent
//!   fsync() -> shim, preloaded: word closed? wait <---- GateWords: one word per account and class
//!        |
//!        v  system call
//!   seccomp filter: user notification ----------------> Listener -> HeldCall -> scheduler -> resume
//!                        ^                                 |
//!                        +---- keeper: answers when the agent does not
//! ```
//!
//! | gate | cost while open | what cannot pass by |
//! | --- | --- | --- |
//! | preload shim, at [`words`] | nanoseconds | programs that call through the C library and do not mean to pass by |
//! | [`filter`] and [`listener`]: seccomp user notification | microseconds a call | any process, with all it starts |
//! | [`oci`]: the same for containers, by the runtime | the same | any process in the container |
//!
//! A gate **fails open**. The words count only as long as their lease is renewed. Behind each listener stands a
//! [`keeper`], a process that lets every call continue when the agent is gone or does not renew the lease.
//! `docs/gates.md` has the outcome of each fault.

pub mod class;
pub mod clock;
pub mod directory;
pub mod error;
pub mod filter;
pub mod keeper;
mod kernel;
pub mod launch;
pub mod listener;
mod mapping;
pub mod oci;
pub mod passing;
pub mod programs;
pub mod thawer;
pub mod words;

pub use class::{GateClass, GateClasses};
pub use error::GateError;
pub use filter::Filter;
pub use keeper::{Guarded, KeeperStarter, Keepers, Registration};
pub use launch::Launch;
pub use listener::{HeldCall, Listener, ListenerId, Listeners, Received};
pub use oci::{OciSocket, SeccompState};
pub use programs::Programs;
pub use thawer::{FrozenNote, NoteEntry, Thawer};
pub use words::{GateWords, Lease};
