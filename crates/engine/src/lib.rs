//! The engine: one thread that owns a device, its scheduler, its volumes and the front ends attached to them.
//!
//! ```text
//!            other threads                                    the engine's thread
//!   EngineHandle --- closures, eventfd ---> turn: +--------------------------------------------------+
//!                                                 | ring --> front ends --> scheduler --> backends   |
//!                                                 |  ^  receive, send           |         model      |
//!                                                 |  +---- one system call <----+ not before, due at |
//!                                                 +--------------------------------------------------+
//! ```
//!
//! Because one thread owns all, a request meets no lock and no atomic on its way. Because that thread has one ring for
//! sockets and files, a turn takes one system call however many requests it moves. Under load one receive brings many
//! requests, and one send carries many replies. Whatever other threads want is asked through an [`EngineHandle`].
//!
//! | module | what it is |
//! | --- | --- |
//! | [`front_end`] | the contract with NBD connections and FUSE mounts |
//! | `port` | what a front end can do |
//! | `buffer`, `buffer_memory` | a front end's buffers; the memory of all |
//! | `turn` | the thread's loop; front ends come and go |
//! | `core` | the way of a request: scheduler, backends, device model |
//! | `request` | requests and the pieces that they are cut into |
//! | `doubts` | which sessions have heard that a device could not flush |
//! | `orphans` | requests that no front end waits for any more |
//! | `administration` | pools, volumes, switching the scheduler |
//! | [`upper_levels`] | the contracts with what sees system calls, the page cache and the causes of a block |
//! | `cached` | a cache before a volume: what it asks of the volume and of its own device |
//! | `read_ahead_requests` | what sequential streams want next, read before they ask |
//! | `observed` | the requests of a disk that is not ours: seen, not ordered |
//! | `meter`, [`status`] | what each account got |
//! | `emulation` | a device model in real time |
//! | `work` | service threads, for steps that take a processor's time |
//! | `basket` | what they tell, taken without waiting for any of them |
//! | `recorder` | what a device is asked to do, for traces |
//! | `handle`, `commands` | how other threads talk to it; what they send, taken without waiting for them |
//! | `ring`, `slab`, `clock` | io_uring, a table, the time |
//!
//! What stands beside the loop, and is used by control threads too:
//!
//! | module | what it is |
//! | --- | --- |
//! | [`backend`] | volumes and what holds their bytes: memory, a file, a block device |
//! | [`cache`] | making a cache on its fast device, and finding it there |
//! | [`read_ahead`] | sequential streams and their next blocks, without I/O |
//! | [`notes`] | notes about volumes, in files that outlive the daemon |
//! | [`content`], `occupied` | what a device holds; which other programs use it |
//! | [`measure`] | how fast a device is |
//! | [`descriptors`] | sockets that take none |
//! | [`loop_control`] | the loop driver |
//! | [`peer_log`] | lines in the log that a peer can cause as often as it likes |

mod administration;
mod alarm;
pub mod backend;
mod basket;
mod buffer;
mod buffer_memory;
pub mod cache;
mod cached;
mod claims;
mod clock;
mod commands;
pub mod content;
mod core;
pub mod descriptors;
mod doubts;
pub mod early_reads;
mod emulation;
mod error;
pub mod front_end;
mod handle;
mod held_reads;
pub mod loop_control;
pub mod measure;
mod meter;
pub mod notes;
mod observed;
mod occupied;
mod orphans;
pub mod peer_log;
mod port;
pub mod read_ahead;
mod read_ahead_requests;
mod recorder;
mod request;
mod ring;
mod scratch;
mod slab;
pub mod status;
mod turn;
pub mod upper_levels;
mod urgency;
mod work;

pub use buffer::{Buffer, BufferClass, HEADROOM_BYTES};
pub use buffer_memory::{BUFFER_BYTES_MIN, BufferMemory};
pub use error::EngineError;
pub use front_end::{CacheBlock, Finished, FrontEnd, PAYLOAD_BYTES_MAX, Payload, Submission, VolumeBytes};
pub use handle::{
    AttachmentId, EngineConfig, EngineHandle, GRACE_DEFAULT, LATENESS_BOUND_DEFAULT, SessionConfig, spawn,
};
pub use held_reads::{AccountReads, HeldReads};
pub use occupied::kernel_user_of;
pub use port::Port;
pub use recorder::{RECORDER_EVENTS_DEFAULT, RecordedRequest, Recording};
pub use status::{
    AccountStatus, CacheClassStatus, CacheStatus, EmulationStatus, EngineStatus, LatencyStatus, ReadAheadStatus,
    VolumeStatus,
};
pub use upper_levels::{Below, BlockTag, BlockTags, TAG_BLOCK_BYTES, UpperLevels, session_of};
pub use work::ServiceRequest;
