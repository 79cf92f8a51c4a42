//! Plimsoll's machine in virtual time: processes, page cache, file systems, a scheduler and a device, without any
//! hardware.
//!
//! ```text
//!   process ([`process`])          async fn: file.append(4.kib()).await; file.fsync().await
//!      | system calls ([`calls`])   gate: the scheduler admits or holds
//!   page cache ([`cache`])         dirty pages with their causes   <- writeback ([`writeback`]): flusher, throttling
//!   file system ([`fs`])           places, journal
//!      | bios
//!   block layer ([`block`])        merging, nr_requests, the scheduler's queue
//!   device model (`plimsoll_devices`)
//! ```
//!
//! Everything runs on one thread in virtual time ([`executor`]) and follows from the programs and one seed. So a run is
//! the same on every machine, and has a hash ([`Simulation::trace_hash`]). At the end of every run the layers are
//! balanced: what came in went out or is inside, and Little's law holds to the nanosecond.
//!
//! Every modelling decision stands with its source in `docs/simulator.md`.

#![forbid(unsafe_code)]

pub mod block;
pub mod cache;
pub mod cached_volume;
pub mod calls;
pub mod cluster;
pub mod config;
pub mod executor;
pub mod filer;
pub mod fs;
pub mod guest;
pub mod machine;
pub mod network;
pub mod numa;
pub mod process;
pub mod simulation;
pub mod statistics;
pub mod trace;
pub mod workload;
pub mod writeback;

pub use calls::file::File;
pub use config::MachineConfig;
pub use machine::Machine;
pub use process::{Bytes, Process};
pub use simulation::Simulation;
