//! The vocabulary of Plimsoll: what every scheduler, simulator and live host speaks.
//!
//! One idea carries the project: **a scheduler is a pure state machine**. It is handed events with the time in them and
//! answers with decisions. It never reads a clock, starts a thread, takes a shared lock or touches a file. So the same
//! scheduler runs in the simulator and in production, and any run can be replayed from its events.
//!
//! | module | what it names |
//! | --- | --- |
//! | [`time`] | [`Time`], [`Span`]: nanoseconds on the host's clock |
//! | [`units`] | [`Rate`] and byte sizes, parsed from and printed as people write them |
//! | [`account`] | the tree of pools and sessions and what each was promised ([`Allocation`]) |
//! | [`device`] | [`DeviceProfile`]: what a scheduler may know of its device |
//! | [`cause`] | [`CauseSet`]: the accounts that really caused an I/O |
//! | [`class`] | [`Class`] and the schemes that give classes their names and priorities |
//! | [`request`] | [`BlockRequest`], what reaches a device |
//! | [`call`] | [`Call`], what a process asked the kernel for |
//! | [`crc32c`] | the checksum of blocks, and of iSCSI's digests |
//! | [`prefetch`](fn@prefetch) | a hint to the processor, without effect on any result |
//! | [`shown`](fn@shown) | text that another party chose, in a line of ours |
//! | [`scheduler`] | the [`Scheduler`] trait with its handlers at three levels |

pub mod account;
pub mod call;
pub mod cause;
mod checksum;
pub mod class;
pub mod device;
mod number;
mod prefetch;
pub mod request;
pub mod scheduler;
mod shown;
pub mod time;
pub mod units;

pub use account::{Account, AccountId, AccountKind, AccountTree, Allocation, Deadlines, Priority};
pub use call::{Call, CallId, CallKind, FileId, ThreadId};
pub use cause::CauseSet;
pub use checksum::{crc32c, crc32c_append};
pub use class::Class;
pub use device::DeviceProfile;
pub use prefetch::prefetch;
pub use request::{BlockRequest, Completion, Operation, RequestId};
pub use scheduler::{CallDecision, Dispatch, PageEvent, Scheduler, Wish};
pub use shown::{shown, shown_lines};
pub use time::{Span, Time};
pub use units::{ByteCount, Rate};
