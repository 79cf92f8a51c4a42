//! Split-level scheduling on a running system: what `sim` does with modelled processes, with real ones.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`calls`] | system calls at gates, as a scheduler sees them |
//! | [`files`] | files by the number of their inode |
//! | [`members`] | who the bits of a cause mask are |
//! | [`observed`] | the block level of a disk that is not ours: requests are seen, not ordered |
//! | [`writeback`] | starting writeback of a file in slices |

pub mod calls;
pub mod files;
pub mod members;
pub mod observed;
pub mod writeback;
