//! Which promise a scheduler keeps, to which target and at which level.
//!
//! **Rule.** An entry of the registry lists what its scheduler keeps ([`Kept`]). **Complication.** A default is no
//! promise: an account of weight 100, priority 4, without reserve, limit and deadlines was promised nothing
//! ([`Promise::is_made`]).

use plimsoll_core::account::WEIGHT_DEFAULT;
use plimsoll_core::{Allocation, Priority, Rate};

/// One kind of promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A rate that the account gets however the others behave.
    Reserve,
    /// A rate that the account never exceeds.
    Limit,
    /// The account's part of what no account reserved.
    Weight,
    /// The account's place among the others: 0 to 7, or idle.
    Priority,
    /// How soon a block read is done.
    ReadDeadline,
    /// How soon a block write is done.
    WriteDeadline,
    /// How soon an fsync returns.
    FsyncDeadline,
}

impl Promise {
    /// Every kind, in the order of tables.
    pub const ALL: [Promise; 7] = [
        Promise::Reserve,
        Promise::Limit,
        Promise::Weight,
        Promise::Priority,
        Promise::ReadDeadline,
        Promise::WriteDeadline,
        Promise::FsyncDeadline,
    ];

    /// As tables and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Promise::Reserve => "reserve",
            Promise::Limit => "limit",
            Promise::Weight => "weight",
            Promise::Priority => "priority",
            Promise::ReadDeadline => "read deadline",
            Promise::WriteDeadline => "write deadline",
            Promise::FsyncDeadline => "fsync deadline",
        }
    }

    /// The key of a configuration that makes it.
    pub fn key(self) -> &'static str {
        match self {
            Promise::ReadDeadline | Promise::WriteDeadline | Promise::FsyncDeadline => "deadlines",
            other => other.name(),
        }
    }

    /// Whether `allocation` makes this promise.
    pub fn is_made(self, allocation: &Allocation) -> bool {
        match self {
            Promise::Reserve => allocation.reserve != Rate::ZERO,
            Promise::Limit => allocation.limit.is_some(),
            Promise::Weight => allocation.weight != WEIGHT_DEFAULT,
            Promise::Priority => allocation.priority != Priority::default(),
            Promise::ReadDeadline => allocation.deadlines.read.is_some(),
            Promise::WriteDeadline => allocation.deadlines.write.is_some(),
            Promise::FsyncDeadline => allocation.deadlines.fsync.is_some(),
        }
    }

    /// Takes this promise out of `allocation`.
    pub fn withdraw(self, allocation: &mut Allocation) {
        let nothing = Allocation::default();
        match self {
            Promise::Reserve => allocation.reserve = nothing.reserve,
            Promise::Limit => allocation.limit = nothing.limit,
            Promise::Weight => allocation.weight = nothing.weight,
            Promise::Priority => allocation.priority = nothing.priority,
            Promise::ReadDeadline => allocation.deadlines.read = None,
            Promise::WriteDeadline => allocation.deadlines.write = None,
            Promise::FsyncDeadline => allocation.deadlines.fsync = None,
        }
    }

    /// The promise with its value: `limit 10 MB/s`.
    pub(crate) fn told(self, allocation: &Allocation) -> String {
        let value = match self {
            Promise::Reserve => Some(allocation.reserve.to_string()),
            Promise::Limit => allocation.limit.map(|limit| limit.to_string()),
            Promise::Weight => Some(allocation.weight.to_string()),
            Promise::Priority => Some(allocation.priority.to_string()),
            Promise::ReadDeadline => allocation.deadlines.read.map(|span| span.to_string()),
            Promise::WriteDeadline => allocation.deadlines.write.map(|span| span.to_string()),
            Promise::FsyncDeadline => allocation.deadlines.fsync.map(|span| span.to_string()),
        };
        format!("{} {}", self.name(), value.unwrap_or_default())
    }
}

/// What an account's I/O comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Pools and sessions of volumes: NBD, iSCSI, and mounts without tenants.
    Volumes,
    /// Members of a mounted volume with `tenants = true`.
    Tenants,
    /// Members of an observed disk.
    Observed,
    /// Cgroups that `plimsoll agent --wdt` limits.
    Cgroups,
}

impl Target {
    /// Every target, in the order of tables.
    pub const ALL: [Target; 4] = [Target::Volumes, Target::Tenants, Target::Observed, Target::Cgroups];

    /// As tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Volumes => "volumes",
            Target::Tenants => "tenants",
            Target::Observed => "observed disks",
            Target::Cgroups => "cgroups",
        }
    }

    pub(crate) fn place(self) -> &'static str {
        match self {
            Target::Volumes => "on volumes",
            Target::Tenants => "for tenants of a mounted volume",
            Target::Observed => "on observed disks",
            Target::Cgroups => "for cgroups",
        }
    }
}

/// Where a scheduler sees and holds what it keeps a promise by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// System calls wait at their entry.
    Calls,
    /// Pages are charged when they become dirty.
    Pages,
    /// Block requests wait or are ordered.
    Blocks,
    /// The kernel holds what exceeds a cgroup's limit.
    Limits,
}

impl Level {
    /// As tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Calls => "calls",
            Level::Pages => "pages",
            Level::Blocks => "blocks",
            Level::Limits => "limits",
        }
    }
}

/// The accounts that a promise is kept to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every account that may be promised it.
    All,
    /// Pools directly on the device; what is in them shares in order of arrival.
    TopPools,
}

/// A promise that a scheduler keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What is promised.
    pub promise: Promise,
    /// The account that has the promise.
    pub target: Target,
    /// At which levels, the highest first.
    pub levels: &'static [Level],
    /// To which accounts.
    pub reach: Reach,
}

/// `promise`, kept to every account of `target` at `levels`.
pub(crate) const fn kept(promise: Promise, target: Target, levels: &'static [Level]) -> Kept {
    Kept { promise, target, levels, reach: Reach::All }
}

/// `promise`, kept to pools directly on a device of volumes.
pub(crate) const fn kept_to_top_pools(promise: Promise) -> Kept {
    Kept { promise, target: Target::Volumes, levels: &[Level::Blocks], reach: Reach::TopPools }
}

/// An account that is about to be promised something.
#[derive(Clone, Copy, Debug)]
pub struct Promised<'a> {
    /// What I/O the account has; a promise has to be kept to all of it.
    pub targets: &'a [Target],
    /// Whether it is a pool directly on the device.
    pub is_top: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{Deadlines, Span};

    #[test]
    fn what_is_withdrawn_is_made_no_more_and_the_rest_is() {
        let (span, rate) = (Some(Span::from_millis(10)), Rate::RunsPerSecond(5.0));
        let whole = Allocation {
            reserve: rate,
            limit: Some(rate),
            weight: 7,
            priority: Priority::Idle,
            deadlines: Deadlines { read: span, write: span, fsync: span },
        };
        for promise in Promise::ALL {
            let mut rest = whole;
            promise.withdraw(&mut rest);
            let made: Vec<_> = Promise::ALL.into_iter().filter(|other| other.is_made(&rest)).collect();
            assert_eq!(made.len(), Promise::ALL.len() - 1);
            assert!(!made.contains(&promise));
        }
    }
}
