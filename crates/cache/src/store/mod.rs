//! The half of the cache that keeps data on a device and finds it again.
//!
//! **The intuition.** The fast device holds units of data and says of each what is in it. Both must be right after a
//! crash at any moment. Every record must be true, and every write acknowledged as durable must have one.
//!
//! **The rule.** Data first, then a flush, then the *journal*, then a flush, then the acknowledgement. A unit that the
//! journal names is never overwritten. A rewritten block goes to an empty unit, and a unit gets another block only when
//! the journal has forgotten its content. From time to time a snapshot of the *map*, which says what is in each unit,
//! lets the journal begin anew.
//!
//! **The complication.** There are two devices, and each may lose what it was not told to flush. So a block is recorded
//! as clean only when the store is known to have it. A block is changed on the store only when the cache is known to
//! have forgotten it. `docs/cache-format.md` has the layout, the orders, and what each failure costs.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`layout`], [`superblock`], [`journal`], [`map`], [`bytes`] | the format on the device, without I/O |
//! | [`mod@format`], [`recovery`], `reading`, `replay` | making, giving up and finding a cache on its device |
//! | `opened` | a cache that was found: writing its map, rescuing what only it has |
//! | `blocks`, `report` | the device as they see it, and what they found |
//! | [`cache_store`] | [`CacheStore`]: the cache at work, told what happened and answering what to do |
//! | `operation` | what it is told and what it answers |
//! | `slots`, `outbox` | its requests under way; its operations that the host has not taken |
//! | `commit`, `snapshot`, `cleaner`, `store_side` | its parts: the journal, the map, copying, the store |
//! | `refused`, `write_back` | what the store does not take, what is written back before its unit is needed |
//! | `pace`, `turns` | how fast new blocks come in, so that neither units nor the journal run out |

mod blocks;
pub mod bytes;
pub mod cache_store;
mod cleaner;
mod commit;
mod contents;
pub mod error;
pub mod format;
pub mod journal;
pub mod layout;
mod loader;
mod locks;
pub mod map;
mod marks;
mod moved;
mod opened;
mod operation;
mod outbox;
mod pace;
mod pages;
mod reading;
pub mod recovery;
mod refused;
mod replay;
mod report;
mod slots;
mod snapshot;
mod store_side;
pub mod superblock;
mod turns;
mod write_back;

pub use blocks::Blocks;
pub use bytes::BLOCK_BYTES;
pub use cache_store::{CacheStore, ClassCounters, Counters, Depth};
pub use error::{DeviceError, FormatError, OpenError};
pub use format::{Identity, format, give_up};
pub use layout::Layout;
pub use moved::move_to_store;
pub use opened::{Opened, ReadOnly, Rescued};
pub use operation::{Action, Failure, Operation, Origin, Request, RequestKind, Semantics, Target};
pub use recovery::{open, probe};
pub use refused::NotCopied;
pub use report::Report;
pub use superblock::Superblock;
pub use write_back::WriteBack;
