//! Plimsoll's schedulers, one file each, and the registry that names them.
//!
//! A scheduler is written against [`plimsoll_core::Scheduler`], and gets a line in [`registry`] and a page in
//! `docs/schedulers/`. The conformance suite then holds it to the laws that its line promises. The small files beside
//! the schedulers are parts that they share, each with a slow and obvious oracle in its tests.

#![forbid(unsafe_code)]

pub mod advances;
pub mod afq;
pub mod anticipation;
mod assumed;
pub mod at_device;
pub mod balance;
pub mod block_deadline;
pub mod call_batch;
pub mod cfq;
pub mod cost_model;
pub mod deadline_book;
pub mod deadline_calls;
pub mod device_window;
pub mod dirty_files;
pub mod dirty_ledger;
pub mod flush_queue;
mod growth;
pub mod joined_calls;
pub mod keyed_slab;
pub mod location_queues;
pub mod mean_deviation;
pub mod mean_positioning;
pub mod min_tree;
pub mod noop;
pub mod promises;
pub mod refusals;
mod registry;
pub mod request_queues;
pub mod scs_token;
pub mod second_commit;
pub mod split_deadline;
pub mod split_token;
pub mod static_throttle;
pub mod stride;
#[cfg(test)]
mod testing;
pub mod token_bucket;
pub mod waiting_line;
pub mod water_level;
pub mod wdt;
pub mod zygaria;

pub use assumed::with_assumed_rates;
pub use promises::{Kept, Level, Promise, Promised, Reach, Target};
pub use refusals::{NotKept, not_kept, refused_target};
pub use registry::{Entry, build, registry};
