//! The one refusal of a promise that a scheduler does not keep.
//!
//! **Rule.** Everything that takes a promise asks [`not_kept`] before it changes anything.

use crate::promises::{Promise, Promised, Target};
use crate::registry::{Entry, registry};
use plimsoll_core::Allocation;
use std::fmt;

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

/// Every promise of `allocation` that the scheduler called `name` does not keep to `account`; all of them if there is
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

/// The schedulers that keep a promise, in words.
fn keepers(promise: Promise, account: &Promised<'_>) -> String {
    let names: Vec<&str> =
        registry().iter().filter(|entry| entry.keeps(promise, account)).map(|entry| entry.name).collect();
    match &names[..] {
        [] => "none: no scheduler keeps it there".to_owned(),
        names => format!("with the scheduler {}", names.join(" or ")),
    }
}

/// Why the scheduler called `name` does not take accounts of `target` with the promises `allocations`, and which
/// schedulers do; `None` if it does. The answer is for `got ..., allowed ...`.
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
    use plimsoll_core::{Deadlines, Rate, Span};

    fn volume(is_top: bool) -> Promised<'static> {
        Promised { targets: &[Target::Volumes], is_top }
    }

    fn limited() -> Allocation {
        Allocation { limit: Some(Rate::BytesPerSecond(5e6)), ..Allocation::default() }
    }

    /// Promise: schedulers-refused-promise.
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
    /// Promise: schedulers-refused-promise.
    #[test]
    fn what_is_not_kept_is_refused_in_a_line_that_names_schedulers_that_keep_it() {
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

    /// Until reads and writes of other levels inherit (issue 45). Planted break: the registry refuses no target.
    /// Promise: zygaria-no-tenants.
    #[test]
    fn zygaria_takes_no_tenants_and_says_which_schedulers_do() {
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
