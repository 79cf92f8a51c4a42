//! The notified calls of a tenant: a seccomp filter, for commands of `plimsoll run` and for containers of an OCI
//! runtime.
//!
//! A filter is for ever, for the process that installs it and for all that it starts. It notifies calls by class and
//! lets everything else pass, which the kernel remembers per call number, so that it costs nothing.
//!
//! - Reads and writes through the descriptors 0 to 2 are notified only on request: usually they lead to a terminal or a
//!   log. [`Launch`](crate::Launch) asks for it where one of them is a file.
//! - A process that installs a filter of its own is notified whatever its classes, unless its shim has stood aside
//!   before. Otherwise a closed gate might make system calls that the process forbids itself.
//! - `io_uring_setup` and its kin do not exist behind the gate (ENOSYS): a ring's calls are never seen by a filter.
//!   Programs that use rings fall back, as on an old kernel. A tenant that is held by a freezer may have rings
//!   ([`Filter::with_rings`]).
//! - System calls of another architecture, 32-bit ones on x86-64, would have other numbers: a process that makes one is
//!   killed.

mod merge;
#[cfg(test)]
mod merge_tests;
mod profile;
mod program;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::class::{GateClass, GateClasses};
pub use merge::Merged;
use table::{GATED, GatedCall, Place, REFUSED};

/// The last of stdin, stdout and stderr.
const STANDARD_DESCRIPTOR_MAX: u32 = 2;

/// What to notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    classes: GateClasses,
    standard_descriptors: bool,
    has_rings: bool,
}

impl Default for Filter {
    /// Sync and metadata calls: [`GateClasses::ENTANGLING`].
    fn default() -> Filter {
        Filter::new(GateClasses::ENTANGLING)
    }
}

impl Filter {
    /// Notifies the calls of `classes`.
    pub const fn new(classes: GateClasses) -> Filter {
        Filter { classes, standard_descriptors: false, has_rings: false }
    }

    /// Also notifies reads and writes through the descriptors 0 to 2, if their classes are notified.
    #[must_use]
    pub const fn with_standard_descriptors(self) -> Filter {
        Filter { standard_descriptors: true, ..self }
    }

    /// Lets the calls of io_uring pass: for a tenant that another instrument holds.
    #[must_use]
    pub const fn with_rings(self) -> Filter {
        Filter { has_rings: true, ..self }
    }

    /// The calls that do not exist behind it.
    fn refused(self) -> &'static [(i64, &'static str)] {
        if self.has_rings { &[] } else { &REFUSED }
    }

    /// The numbers of the calls that it notifies.
    pub fn call_numbers(self) -> impl Iterator<Item = u32> {
        self.calls().map(|call| call.number as u32)
    }

    fn calls(self) -> impl Iterator<Item = &'static GatedCall> {
        GATED.iter().filter(move |call| self.classes.contains(call.class))
    }

    /// The argument that must be a descriptor above the standard ones.
    fn descriptor_above_standard(self, call: &GatedCall) -> Option<usize> {
        match (call.class, call.place) {
            (GateClass::Read | GateClass::Write, Place::Descriptor(argument)) if !self.standard_descriptors => {
                Some(argument)
            }
            _ => None,
        }
    }
}
