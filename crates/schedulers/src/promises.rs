//! Which promise a scheduler keeps, for whom and at which level; and the one refusal of a promise that is not kept.
//!
//! **Rule.** An entry of the registry lists what its scheduler keeps ([`Kept`]). Everything that takes a promise asks
//! [`not_kept`] before it changes anything. **Complication.** A default is no promise: an account of weight 100,
//! priority 4, without reserve, limit and deadlines was promised nothing ([`Promise::is_made`]).

use crate::registry::{Entry, registry};
use plimsoll_core::account::WEIGHT_DEFAULT;
use plimsoll_core::{Allocation, Priority, Rate};
use std::fmt;

/// One kind of promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A rate that the account gets however the others behave.
    Reserve,
    /// A rate that the account never exceeds.
    Limit,
    /// The account's part of what nobody reserved.
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
    fn told(self, allocation: &Allocation) -> String {
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
    /// Cgroups whose limits `plimsoll agent --wdt` sets.
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

    fn place(self) -> &'static str {
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
    /// To whom.
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

impl Entry {
    /// How it keeps `promise` to `target`, if it does.
    pub fn kept(&self, promise: Promise, target: Target) -> Option<&'static Kept> {
        self.keeps.iter().find(|kept| kept.promise == promise && kept.target == target)
    }

    /// Whether it keeps `promise` to an account with I/O of all `targets`.
    fn keeps(&self, promise: Promise, account: &Promised<'_>) -> bool {
        let is_kept = |target: &Target| {
            self.kept(promise, *target).is_some_and(|kept| kept.reach == Reach::All || account.is_top)
        };
        account.targets.iter().all(is_kept) && account.targets.iter().all(|target| self.refuses(*target).is_none())
    }

    /// Why it must not have accounts of `target`, if so.
    pub fn refuses(&self, target: Target) -> Option<&'static str> {
        self.refuses_tenants.filter(|_| matches!(target, Target::Tenants | Target::Observed))
    }
}

/// An account that is about to be promised something.
#[derive(Clone, Copy, Debug)]
pub struct Promised<'a> {
    /// What I/O the account has; a promise has to be kept to all of it.
    pub targets: &'a [Target],
    /// Whether it is a pool directly on the device.
    pub is_top: bool,
}

/// A promise that a scheduler does not keep. As text it is one line: what, where, and which schedulers keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// What was promised.
    pub promise: Promise,
    /// What was found, for `got ...`.
    pub got: String,
    /// What is allowed, for `allowed ...`.
    pub allowed: String,
}

impl fmt::Display for NotKept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "got {}, allowed {}", self.got, self.allowed)
    }
}

/// Every promise of `allocation` that the scheduler called `name` does not keep to `account`; all of them where there is
/// no such scheduler.
pub fn not_kept(name: &str, account: &Promised<'_>, allocation: &Allocation) -> Vec<NotKept> {
    let made = Promise::ALL.into_iter().filter(|promise| promise.is_made(allocation));
    let entry = registry().iter().find(|entry| entry.name == name);
    let broken = made.filter(|&promise| !entry.is_some_and(|entry| entry.keeps(promise, account)));
    broken
        .map(|promise| {
            let lacks = |target: &&Target| entry.is_none_or(|entry| entry.kept(promise, **target).is_none());
            let reason = match account.targets.iter().find(lacks) {
                Some(target) => format!("which {name} does not keep {}", target.place()),
                None => format!("which {name} keeps to pools directly on the device only"),
            };
            let got = format!("{}, {reason}", promise.told(allocation));
            NotKept { promise, got, allowed: keepers(promise, account) }
        })
        .collect()
}

/// Those who keep a promise, in words.
fn keepers(promise: Promise, account: &Promised<'_>) -> String {
    let names: Vec<&str> =
        registry().iter().filter(|entry| entry.keeps(promise, account)).map(|entry| entry.name).collect();
    match &names[..] {
        [] => "none: no scheduler keeps it there".to_owned(),
        names => format!("with the scheduler {}", names.join(" or ")),
    }
}

/// Why the scheduler called `name` must not have accounts of `target` that are promised `allocations`, and which
/// schedulers may; `None` if it may. The answer is for `got ..., allowed ...`.
pub fn refused_target(name: &str, target: Target, allocations: &[Allocation]) -> Option<(String, String)> {
    let reason = registry().iter().find(|entry| entry.name == name)?.refuses(target)?;
    let asked: Vec<Promise> = Promise::ALL
        .into_iter()
        .filter(|promise| allocations.iter().any(|allocation| promise.is_made(allocation)))
        .collect();
    let account = Promised { targets: &[target], is_top: false };
    let others = registry().iter().filter(|entry| match &asked[..] {
        [] => entry.keeps.iter().any(|kept| kept.target == target) && entry.refuses(target).is_none(),
        asked => asked.iter().all(|&promise| entry.keeps(promise, &account)),
    });
    let told = |entry: &Entry| {
        let kept = entry.keeps.iter().filter(|kept| kept.target == target).map(|kept| kept.promise.name());
        format!("{} ({})", entry.name, kept.collect::<Vec<_>>().join(", "))
    };
    let others: Vec<String> = others.map(told).collect();
    let allowed = match &others[..] {
        [] => "none: no scheduler keeps all that is promised there".to_owned(),
        others => others.join(", "),
    };
    Some((format!("{name:?} {}: {reason}", target.place()), allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{Deadlines, Span};

    fn volume(is_top: bool) -> Promised<'static> {
        Promised { targets: &[Target::Volumes], is_top }
    }

    fn limited() -> Allocation {
        Allocation { limit: Some(Rate::BytesPerSecond(5e6)), ..Allocation::default() }
    }

    #[test]
    fn defaults_promise_nothing_and_are_never_refused() {
        for entry in registry() {
            for target in Target::ALL {
                let account = Promised { targets: &[target], is_top: false };
                assert_eq!(not_kept(entry.name, &account, &Allocation::default()), [], "{}", entry.name);
            }
        }
    }

    /// Planted break: a promise of one target counts for every target.
    #[test]
    fn what_is_not_kept_is_refused_in_a_line_that_names_those_who_keep_it() {
        let told = |name: &str, account, allocation| -> Vec<String> {
            not_kept(name, &account, &allocation).iter().map(NotKept::to_string).collect()
        };
        assert_eq!(
            told("wdt", volume(true), limited()),
            ["got limit 5 MB/s, which wdt does not keep on volumes, allowed with the scheduler zygaria"]
        );
        assert_eq!(
            told("split_token", volume(true), limited()),
            ["got limit 5 MB/s, which split_token does not keep on volumes, allowed with the scheduler zygaria"]
        );
        let both = Promised { targets: &[Target::Tenants, Target::Volumes], is_top: true };
        assert_eq!(
            told("split_token", both, limited()),
            ["got limit 5 MB/s, which split_token does not keep on volumes, allowed none: no scheduler keeps it there"]
        );
        let tenant = Promised { targets: &[Target::Tenants], is_top: false };
        assert_eq!(told("split_token", tenant, limited()), [""; 0]);
        assert_eq!(
            told("afq", tenant, limited()),
            ["got limit 5 MB/s, which afq does not keep for tenants of a mounted volume, allowed with the scheduler \
              scs_token or split_token"]
        );
    }

    #[test]
    fn a_weight_that_counts_for_pools_on_the_device_is_refused_further_down() {
        let weighted = Allocation { weight: 300, ..Allocation::default() };
        assert_eq!(not_kept("wdt", &volume(true), &weighted), []);
        let refused = not_kept("wdt", &volume(false), &weighted);
        assert_eq!(
            refused[0].to_string(),
            "got weight 300, which wdt keeps to pools directly on the device only, allowed with the scheduler zygaria"
        );
    }

    #[test]
    fn each_deadline_is_a_promise_of_its_own() {
        let all = Some(Span::from_millis(10));
        let deadlines = Deadlines { read: all, write: all, fsync: all };
        let promised = Allocation { deadlines, ..Allocation::default() };
        let broken = |name: &str, target| -> Vec<Promise> {
            let account = Promised { targets: &[target], is_top: false };
            not_kept(name, &account, &promised).into_iter().map(|broken| broken.promise).collect()
        };
        assert_eq!(broken("block_deadline", Target::Volumes), [Promise::FsyncDeadline]);
        assert_eq!(broken("split_deadline", Target::Tenants), [Promise::WriteDeadline]);
        assert_eq!(broken("split_deadline", Target::Volumes), [Promise::WriteDeadline, Promise::FsyncDeadline]);
    }

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

    /// Until reads and writes of other levels inherit (issue 45). Planted break: the registry refuses no target.
    #[test]
    fn zygaria_takes_no_tenants_and_says_who_does() {
        for target in [Target::Tenants, Target::Observed] {
            let (got, allowed) = refused_target("zygaria", target, &[limited()]).unwrap();
            assert!(got.starts_with("\"zygaria\" ") && got.contains("another tenant's limit"), "{got}");
            assert_eq!(allowed, "scs_token (limit), split_token (limit)");
            let (_, allowed) = refused_target("zygaria", target, &[]).unwrap();
            assert!(allowed.contains("split_token (limit), afq (priority)"), "{allowed}");
            assert_eq!(refused_target("split_token", target, &[limited()]), None);
        }
        assert_eq!(refused_target("zygaria", Target::Volumes, &[limited()]), None);
    }
}
