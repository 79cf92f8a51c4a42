//! The engine: one thread with a device, its scheduler, its volumes and their front ends.
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
//! requests, and one send carries many replies. Other threads send commands through an [`EngineHandle`].
//!
//! | module | what it is |
//! | --- | --- |
//! | [`front_end`] | the contract with NBD connections and FUSE mounts |
//! | `submission` | a request on its way in and back, and where its bytes are |
//! | `port`, `seat` | what a front end can do; what the engine knows of it and of volumes |
//! | `buffer`, `buffer_memory` | a front end's buffers; the memory of all |
//! | `turn` | the thread's loop; front ends come and go |
//! | `path` | the way of a request: stages with state of their own, and the conductor |
//! | `doubts` | which sessions have heard that a device could not flush |
//! | [`upper_levels`] | the contract with what sees system calls and the page cache |
//! | `block_tags` | the contract with what knows the causes of a block |
//! | `volume_cache` | a cache before a volume: what it asks of the volume and of its own device |
//! | `observed` | the requests of an observed disk: seen, not ordered |
//! | `meter`, [`status`] | what each account got |
//! | `emulation` | a device model in real time |
//! | `work` | service threads, for steps that take a processor's time |
//! | `basket` | what they tell, taken without waiting for any of them |
//! | `tap` | what a device is asked to do, for traces |
//! | `engine_handle`, `config` | how other threads talk to it, through a [`mailbox`](plimsoll_linux::mailbox) |
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
//! | `store_identity` | what a volume's file or device is known by |
//! | [`content`], `occupied` | what a device holds; which other programs use it |
//! | [`measure`] | how fast a device is |
//! | [`loop_control`] | the loop driver |

mod alarm;
pub mod backend;
mod basket;
mod block_tags;
mod buffer;
mod buffer_memory;
mod by_volume;
pub mod cache;
mod clock;
mod config;
pub mod content;
mod doubts;
mod emulation;
mod engine_handle;
mod error;
pub mod front_end;
mod held_reads;
pub mod loop_control;
pub mod measure;
mod meter;
pub mod notes;
mod observed;
mod occupied;
mod path;
mod port;
pub mod read_ahead;
mod ring;
mod scratch;
mod seat;
mod slab;
pub mod status;
mod store_identity;
mod submission;
mod tap;
mod turn;
pub mod upper_levels;
mod urgency;
mod volume_cache;
mod work;

pub use block_tags::{BlockTag, BlockTags, TAG_BLOCK_BYTES, session_of};
pub use buffer::{Buffer, BufferClass};
pub use buffer_memory::{BUFFER_BYTES_MIN, BufferMemory, HEADROOM_BYTES};
pub use config::{AttachmentId, EngineConfig, GRACE_DEFAULT, LATENESS_BOUND_DEFAULT, SessionConfig};
pub use engine_handle::{EngineHandle, RECORDER_EVENTS_DEFAULT, Recording, spawn};
pub use error::EngineError;
pub use front_end::FrontEnd;
pub use held_reads::{AccountReads, HeldReads};
pub use occupied::kernel_user_of;
pub use path::early_reads;
pub use port::Port;
pub use status::{
    AccountStatus, CacheClassStatus, CacheStatus, EmulationStatus, EngineStatus, LatencyStatus, ReadAheadStatus,
    VolumeStatus,
};
pub use submission::{CacheBlock, Finished, PAYLOAD_BYTES_MAX, Payload, Submission, VolumeBytes};
pub use tap::RecordedRequest;
pub use upper_levels::{Below, UpperLevels};
pub use urgency::before_normal_threads;
pub use work::ServiceRequest;
