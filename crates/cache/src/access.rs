//! One access to the cache.

use crate::units::Pool;
use plimsoll_core::Class;

/// A read or a write of one unit's worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The block of the store, below 2^36.
    pub block: u64,
    /// What it is.
    pub class: Class,
    /// The pool that it belongs to.
    pub pool: Pool,
    /// Whether it is written.
    pub is_write: bool,
}
