//! Workloads: what tenants do to their files, from one line of text and a seed.
//!
//! A workload is written once (`write random 4KiB in db 10GiB, fsync`), and two hosts run it. In the simulator a thread
//! is an asynchronous process in virtual time; on the live host it is a thread on a real file system. Their shared part
//! is here, and it is pure. Text and seed become files to prepare and threads, and each thread is an iterator of
//! [`Step`]s. Nothing here reads a clock or touches a file.
//!
//! ```
//! use plimsoll_workloads::{Action, Step, Workload};
//!
//! let workload: Workload = "append 4KiB, fsync, think 10ms".parse().unwrap();
//! let plan = workload.plan(7);
//! assert_eq!(plan.file(plan.threads().next().unwrap().files[0]).path, "log.0");
//! let calls = plan.thread(0).filter_map(|step| match step {
//!     Step::Call(action) => Some(action),
//!     _ => None,
//! });
//! assert!(matches!(calls.take(3).last(), Some(Action::Fsync { .. })));
//! ```
//!
//! Three rules make both hosts do the same:
//!
//! 1. **Equal seeds, equal steps.** Each thread draws from a stream of its own, so a thread more changes no other's
//!    steps.
//! 2. **Threads share nothing but counters.** If threads must know of each other (a checkpoint begins when enough is
//!    dirty), they use a counter of the host: [`Step::Post`], [`Step::Take`]. How many were taken is the only thing
//!    that a generator ever learns from its host.
//! 3. **Time is the thread's own**: all times in steps are spans since the workload's start.
//!
//! The complication: natural logarithms (arrivals, dirty pages) come from the platform's mathematics library, so two
//! *platforms* may differ in the last bit of a time. On one platform everything is reproduced exactly.
//!
//! `docs/workloads.md` has the grammar, each workload, and the source of each number.

#![forbid(unsafe_code)]

mod design;
mod file;
mod generators;
mod pace;
mod plan;
mod random;
mod script;
mod step;
mod text;
mod thread;

/// I/Os per second of a unit of an SPC-1-like load.
pub const SPC1_IOPS_PER_UNIT: f64 = generators::spc1::Spc1::IOPS_PER_UNIT;
/// The smallest capacity of an SPC-1-like load, bytes.
pub const SPC1_BYTES_MIN: u64 = generators::spc1::Spc1::CAPACITY_MIN;

pub use file::{Before, FileSpec};
pub use plan::{Plan, Thread};
pub use step::{Action, Counter, DEPTH_UNLIMITED, DirectoryIndex, FileIndex, Step};
pub use text::{Workload, WorkloadError};
pub use thread::{THREADS_MAX, ThreadSpec};
