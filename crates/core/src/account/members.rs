//! Sums over the direct members of a pool, so that opening one more costs the same among ten and a million.

use super::AccountId;
use std::collections::BTreeMap;

/// A run per second is so many of the units in which reserves are added up: 2^64. Doubles of 2^-11 runs per second and
/// more are whole numbers of them, so what was added can be taken away again without a rest.
const UNITS_PER_RUN_PER_SECOND: f64 = 18_446_744_073_709_551_616.0;

/// The members of one pool, by name, and the sum of their reserves.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    by_name: BTreeMap<Box<str>, AccountId>,
    promised_units: i128,
}

fn units(runs_per_second: f64) -> i128 {
    (runs_per_second * UNITS_PER_RUN_PER_SECOND) as i128
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The member of that name. O(log members).
    pub(super) fn named(&self, name: &str) -> Option<AccountId> {
        self.by_name.get(name).copied()
    }

    /// All of them, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = AccountId> {
        self.by_name.values().copied()
    }

    /// Takes in an account with a name that no other member has.
    pub(super) fn join(&mut self, name: &str, id: AccountId, runs_per_second: f64) {
        self.by_name.insert(name.into(), id);
        self.promised_units += units(runs_per_second);
    }

    pub(super) fn leave(&mut self, name: &str, runs_per_second: f64) {
        self.by_name.remove(name);
        self.promised_units -= units(runs_per_second);
    }

    /// A member's reserve is another one now.
    pub(super) fn change(&mut self, before_runs_per_second: f64, runs_per_second: f64) {
        self.promised_units += units(runs_per_second) - units(before_runs_per_second);
    }

    /// Runs per second that the members were promised, leaving out one that was promised `except`. O(1).
    pub(super) fn promised(&self, except_runs_per_second: f64) -> f64 {
        (self.promised_units - units(except_runs_per_second)) as f64 / UNITS_PER_RUN_PER_SECOND
    }
}
