//! Classes of calls: what a gate can tell apart.

use std::fmt;

/// What a call does to the disk, as far as a gate tells calls apart. Each has a word of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GateClass {
    /// write and its kin: makes pages dirty.
    Write = 0,
    /// fsync and its kin: makes them durable, and commits what they are entangled with.
    Sync = 1,
    /// creat, mkdir, rename, unlink, truncate, fallocate: joins the journal's transaction.
    Metadata = 2,
    /// read and its kin.
    Read = 3,
}

impl GateClass {
    /// All of them, in the order of their words.
    pub const ALL: [GateClass; 4] = [GateClass::Write, GateClass::Sync, GateClass::Metadata, GateClass::Read];
}

impl fmt::Display for GateClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateClass::Write => "write",
            GateClass::Sync => "sync",
            GateClass::Metadata => "metadata",
            GateClass::Read => "read",
        })
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateClasses(u8);

impl GateClasses {
    /// Classes that are notified by default: calls that entangle, and are few (live.md: PostgreSQL at full speed).
    pub const ENTANGLING: GateClasses = GateClasses(1 << GateClass::Sync as u8 | 1 << GateClass::Metadata as u8);
    /// All four.
    pub const ALL: GateClasses = GateClasses(0b1111);

    /// This set and `class`.
    #[must_use]
    pub const fn with(self, class: GateClass) -> GateClasses {
        GateClasses(self.0 | 1 << class as u8)
    }

    /// Whether `class` is in it.
    pub const fn contains(self, class: GateClass) -> bool {
        self.0 >> class as u8 & 1 == 1
    }
}
