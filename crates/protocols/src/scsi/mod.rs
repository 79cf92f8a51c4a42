//! SCSI: what the commands of a disk mean, without the transport that brings them.
//!
//! ```text
//!   CDB --> ScsiCommand --> LogicalUnit: attentions, reservations, limits --> an answer
//!                                                                     --> parameters to wait for
//!                                                                     --> a Job: steps on the volume
//! ```
//!
//! Nothing here does I/O: [`unit`] is asked, [`job`] says what is next. Both are fed by the iSCSI front end, by
//! property tests and by a fuzzer.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`command`] | commands, decoded |
//! | [`unit`] | the logical unit that all sessions share |
//! | `blocks` | commands on blocks against the volume's size and limits |
//! | [`geometry`] | what a volume is like |
//! | [`outcome`] | what comes of a command |
//! | [`job`] | the steps of a command on the volume |
//! | [`inquiry`] | what the unit says of itself |
//! | `mode` | mode pages |
//! | `opcodes` | what commands there are |
//! | [`reservation`] | RESERVE(6) and persistent reservations |
//! | [`extents`] | places that are being changed, or were given back |
//! | [`sense`] | how a command ends |
//!
//! Facts are those of the standards SAM-5, SPC-4 and SBC-3, with what SBC-4 says of groups.

mod blocks;
pub mod command;
pub mod extents;
pub mod geometry;
pub mod inquiry;
pub mod job;
mod mode;
mod opcodes;
pub mod outcome;
pub mod reservation;
pub mod sense;
pub mod unit;

pub use command::{CDB_BYTES, ScsiCommand};
pub use geometry::Geometry;
pub use inquiry::Identity;
pub use job::{Job, JobProgress, Place, Step, Work};
pub use outcome::Outcome;
pub use reservation::PortName;
pub use sense::{Answer, Sense, Status};
pub use unit::{LogicalUnit, NexusId};
