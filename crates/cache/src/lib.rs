//! A write-back cache of a fast device over a slow one, in units of 4 KiB. One half decides without a byte of data. The
//! other, [`store`], keeps the data on a device and finds it again after a crash.
//!
//! [`Cache`] is told each access and answers where the block is: in a unit, to be taken into one, or past the cache. A
//! [`CachePolicy`] knows in which order units leave and may refuse to take a block in. A *syncer* keeps units free
//! between two watermarks and names the dirty ones that must be written back first. Nothing here reads a clock or moves
//! data: the simulator, the replay of traces and a live volume do that.
//!
//! ```text
//!             taken in                     leaves the order         written back, or was clean
//!   empty --------------> in order (policy) ---------------> cleaning -----------------> free, still readable
//!     ^                       ^                                 |                         |  |
//!     |                       +---------------------------------+-------------------------+  +--> another block
//!     +---- trimmed                 read or written again
//! ```
//!
//! A unit takes 16 bytes, a twelfth of a cache line in the index (a tenth without a device behind it), and the policy's
//! memory. That is less than 24 bytes in all, from a million units on (`tests/memory.rs`).
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`cache`](mod@cache) | [`Cache`]: accesses, syncer, bounds |
//! | `access` | [`Access`]: one read or write of a block |
//! | [`config`] | what it is made from |
//! | `rules` | what it decides by: a policy and the partition's bounds |
//! | [`policy`], `registry` | the trait, and the policies that there are |
//! | [`lru`], [`s3_fifo`], [`selective`], [`credit`] | a policy each |
//! | [`aged_lists`] | what three of them share: lists in order of use, with the age of what is at their ends |
//! | [`ghosts`] | blocks that left a short while ago |
//! | [`duel`] | which way `credit` goes, as two small caches tell |
//! | [`miss_costs`], [`stays`] | what a miss costs; which classes are used |
//! | [`store`] | the other half: what is kept on the fast device, in which order, and how it is found again |
//! | [`index`] | from a block to its unit |
//! | `cache/audit` | whether everything that is noted twice is noted the same: for tests |
//! | `cache/listing`, `threads` | a start that puts all units into their lists at once, on all processors |
//! | [`units`] | what is known of each unit, in 16 bytes; lists through them |
//! | `cache/placement` | what [`store`] asks of [`Cache`] beyond accesses |
//! | [`partition`] | classes and pools with a bound, and which of them is at its bound |

mod access;
pub mod aged_lists;
mod announced;
pub mod cache;
pub mod config;
pub mod credit;
pub mod duel;
pub mod ghosts;
pub mod index;
pub mod lru;
mod memory;
pub mod miss_costs;
pub mod partition;
pub mod policy;
mod registry;
mod rules;
pub mod s3_fifo;
pub mod selective;
pub mod stays;
pub mod store;
mod threads;
pub mod units;

pub use access::Access;
pub use announced::ANNOUNCED_AHEAD;
pub use cache::{Cache, CleanJob, Outcome};
pub use config::{CacheConfig, ConfigError};
pub use policy::{CachePolicy, PolicyConfig, PolicyEntry};
pub use registry::policies;
pub use units::{Pool, UnitId};
