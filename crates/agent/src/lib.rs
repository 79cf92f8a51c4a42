//! Split-level scheduling on a running system: what `sim` does with modelled processes, with real ones.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`account_words`] | the words of shims, by the accounts of a scheduler |
//! | [`block_tags`] | the causes of a volume's blocks, for its engine |
//! | [`classified`] | what applications say of their files: their classes |
//! | [`calls`] | system calls at gates, as a scheduler sees them |
//! | `disk_lock` | one agent a disk |
//! | `doorman` | the thread that hears of new tenants and sees which have gone |
//! | [`files`] | files by the number of their inode |
//! | [`limits`] | shares by weight from the kernel's own limits: WDT above `blkio.throttle` or `io.max` |
//! | [`freezer`] | freezing tenants that pass by their gates, whatever program they run |
//! | [`levels`] | gates and pages, and where they are only seen requests, put before a scheduler in turns |
//! | `losses` | telling the log what the tags have lost |
//! | [`members`] | which accounts the bits of a cause mask are |
//! | [`memory`] | how much memory there is, and how much may be dirty |
//! | [`metadata`] | what a container asks for |
//! | [`mounts`] | which disk a mounted file system is on |
//! | `notified` | calls that came from listeners, by both of their numbers |
//! | [`readers`] | accounts with reads that wait at their gates, because those below wait too long already |
//! | [`station`] | a mounted file system with everything above its disk, which is a volume or not ours |
//! | `tenant` | how a tenant joins and leaves, at the engine and at the levels |
//! | [`writeback`] | the thread that opens files, starts their writeback in slices, and closes them |

pub mod account_words;
pub mod block_tags;
pub mod calls;
pub mod classified;
mod commands;
mod container_rules;
mod descent;
mod disk_lock;
mod doorman;
mod error;
pub mod files;
pub mod freezer;
pub mod levels;
pub mod limits;
mod losses;
pub mod members;
pub mod memory;
pub mod metadata;
pub mod mounts;
mod notified;
pub mod readers;
mod returns;
pub mod station;
mod tenant;
pub mod writeback;

pub use classified::{ClassServer, ClassifiedMount, FileClasses};
pub use commands::{Enrollee, Joined, LevelsHandle};
pub use container_rules::ContainerRules;
pub use disk_lock::{DiskLock, DiskLockError, DiskUse};
pub use error::AgentError;
pub use plimsoll_tags::{Coverage, Losses, TagsError};
pub use station::{Disk, Entrance, Holding, Station, StationConfig, TenantState};
pub use tenant::Tenant;
