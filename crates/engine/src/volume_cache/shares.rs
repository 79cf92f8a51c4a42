//! What a block costs each session of those that wait: the inverse of its share.
//!
//! **Rule.** A session's share is its weight's part of those of its siblings that wait too. The result is multiplied by
//! its pool's part among the pool's siblings, and so on up. A session that does not wait counts nowhere, so what it
//! leaves is the others', by their weights. All that wait want something of one volume, so what is above it changes
//! nothing.

use plimsoll_core::{AccountId, AccountTree};

/// What a block costs a session that waits alone.
pub(super) const ALONE: u64 = 1 << 16;

/// Costs of a round. O(sessions that wait x depth) a round.
#[derive(Default)]
pub(super) struct Shares {
    /// By account: the round in which it or a member waits, and the weights of its waiting members.
    accounts: Vec<(u64, u64)>,
    round: u64,
}

impl Shares {
    /// The named sessions wait: counts each, and what is above it, once.
    pub fn begin(&mut self, tree: &AccountTree, waiting: impl Iterator<Item = AccountId>) {
        self.round += 1;
        for session in waiting {
            let mut is_new = self.enter(session);
            let mut member = tree.get(session);
            while let Some((account, parent)) = member.and_then(|account| Some((account, account.parent?)))
                && is_new
            {
                is_new = self.enter(parent);
                self.accounts[parent.index()].1 += u64::from(account.allocation.weight);
                member = tree.get(parent);
            }
        }
    }

    /// Says whether it is the first to enter the account in this round.
    fn enter(&mut self, account: AccountId) -> bool {
        if self.accounts.len() <= account.index() {
            self.accounts.resize(account.index() + 1, (0, 0));
        }
        let entry = &mut self.accounts[account.index()];
        let is_new = entry.0 != self.round;
        if is_new {
            *entry = (self.round, 0);
        }
        is_new
    }

    /// What a block costs a session that waits.
    pub fn cost(&self, tree: &AccountTree, session: AccountId) -> u64 {
        let mut cost = ALONE as f64;
        let mut member = tree.get(session);
        while let Some((account, parent)) = member.and_then(|account| Some((account, account.parent?))) {
            cost *= self.accounts[parent.index()].1 as f64 / f64::from(account.allocation.weight);
            member = tree.get(parent);
        }
        cost as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use plimsoll_core::{AccountKind, Allocation, DeviceProfile, Span};

    pub fn device() -> DeviceProfile {
        DeviceProfile {
            name: "device".into(),
            capacity_bytes: 1 << 30,
            worst_case_runs_per_second: 100.0,
            sequential_bytes_per_second: 1e8,
            sequential_write_bytes_per_second: 1e8,
            write_settle: Span::ZERO,
            is_rotational: false,
            outstanding_max: 1,
        }
    }

    /// Two tenants at 3 : 1; the first has two connections at 1 : 2. Planted breaks that were seen red: a pool's
    /// weight counts once for each of its connections; a session that does not wait counts.
    /// Promise: cache-weights.
    #[test]
    fn shares_are_by_weight_on_every_level_among_waiting_accounts() {
        let mut tree = AccountTree::new(device());
        let mut open = |parent, name: &str, kind, weight| {
            tree.open(parent, name, kind, Allocation { weight, ..Allocation::default() }).unwrap()
        };
        let volume = open(AccountId::ROOT, "volume", AccountKind::Pool, 7);
        let first = open(volume, "first", AccountKind::Pool, 300);
        let one = open(first, "one", AccountKind::Session, 10);
        let two = open(first, "two", AccountKind::Session, 20);
        let second = open(volume, "second", AccountKind::Session, 100);
        let mut shares = Shares::default();
        let mut parts = |waiting: &[AccountId]| {
            shares.begin(&tree, waiting.iter().copied());
            waiting.iter().map(|&session| ALONE as f64 / shares.cost(&tree, session) as f64).collect::<Vec<_>>()
        };
        let is_near = |parts: Vec<f64>, expected: &[f64]| {
            assert_eq!(parts.len(), expected.len());
            assert!(parts.iter().zip(expected).all(|(part, expected)| (part - expected).abs() < 1e-4), "{parts:?}");
        };
        // A session's two lines are one.
        is_near(parts(&[one, two, second, one]), &[0.25, 0.5, 0.25, 0.25]);
        is_near(parts(&[two, second]), &[0.75, 0.25]);
        is_near(parts(&[second]), &[1.0]);
        is_near(parts(&[one, two]), &[1.0 / 3.0, 2.0 / 3.0]);
    }
}
