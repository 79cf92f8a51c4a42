//! Reads that the scheduler keeps back, counted by account.
//!
//! A read of a mounted volume that waits in the scheduler keeps its place in the loop device, which has 128. A tenant
//! with as many threads, held at its limit, would keep them all. No other request of that file system would come
//! through, not even the journal's. So held reads have to wait at their gates, where they keep no place. After each
//! turn the levels above hear which accounts have reads that wait ([`HeldReads`]), and let no more than a few in. A
//! read that passes by the gates goes to the device early ([`early_reads`](super::early_reads)).
//!
//! Counting is O(1) a request.

use plimsoll_core::AccountId;

/// Reads of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountReads {
    /// Requests that wait for the scheduler.
    pub waiting: u32,
    /// Pieces, or observed requests, that reached the device before the scheduler let them go.
    pub early: u32,
    /// Requests that came so far.
    pub arrived: u64,
}

/// Reads of all accounts.
#[derive(Debug, Default)]
pub struct HeldReads {
    accounts: Vec<AccountReads>,
    sum: AccountReads,
}

impl HeldReads {
    /// Those of an account.
    #[inline]
    pub fn of(&self, account: AccountId) -> AccountReads {
        self.accounts.get(account.index()).copied().unwrap_or_default()
    }

    /// Those of all accounts.
    #[inline]
    pub fn sum(&self) -> AccountReads {
        self.sum
    }

    /// The account with most of them waiting. O(accounts).
    pub(super) fn longest(&self) -> Option<AccountId> {
        let numbered = (0..).map(AccountId).zip(&self.accounts);
        numbered
            .filter(|(_, reads)| reads.waiting > 0)
            .max_by_key(|(_, reads)| reads.waiting)
            .map(|(account, _)| account)
    }

    /// A read of the account has come.
    #[inline]
    pub fn arrived(&mut self, account: AccountId) {
        self.change(account, |reads| reads.arrived += 1);
    }

    /// It waits for the scheduler.
    #[inline]
    pub fn began_to_wait(&mut self, account: AccountId) {
        self.change(account, |reads| reads.waiting += 1);
    }

    /// It went to the device, let go or early.
    #[inline]
    pub fn waits_no_more(&mut self, account: AccountId) {
        self.change(account, |reads| reads.waiting -= 1);
    }

    /// The device had something of the account before the scheduler let it go.
    pub fn was_early(&mut self, account: AccountId) {
        self.change(account, |reads| reads.early += 1);
    }

    /// The scheduler has let that go.
    pub fn is_early_no_more(&mut self, account: AccountId) {
        self.change(account, |reads| reads.early -= 1);
    }

    #[inline]
    fn change(&mut self, account: AccountId, change: impl Fn(&mut AccountReads)) {
        if self.accounts.len() <= account.index() {
            self.accounts.resize(account.index() + 1, AccountReads::default());
        }
        change(&mut self.accounts[account.index()]);
        change(&mut self.sum);
    }
}
