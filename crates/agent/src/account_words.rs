//! The words of shims, by the accounts of a scheduler instead of bits.

use crate::members::Members;
use plimsoll_core::AccountId;
use plimsoll_gates::{GateClass, GateWords};

/// Words, and their accounts. An account without a bit has none: nothing happens to it.
pub struct AccountWords<'levels> {
    /// The words, by bit.
    pub words: &'levels GateWords,
    /// Which accounts the bits are.
    pub members: &'levels Members,
}

impl AccountWords<'_> {
    fn bit(&self, account: AccountId) -> Option<AccountId> {
        self.members.bit(account).map(AccountId)
    }

    /// Calls of this account and class wait from now on.
    pub fn close(&self, account: AccountId, class: GateClass) {
        self.bit(account).into_iter().for_each(|bit| self.words.close(bit, class));
    }

    /// They wait no more.
    pub fn open(&self, account: AccountId, class: GateClass) {
        self.bit(account).into_iter().for_each(|bit| self.words.open(bit, class));
    }

    /// As many waiters go on; says how many did. Fewer: none waits any more.
    pub fn admit(&self, account: AccountId, class: GateClass, count_max: u32) -> u32 {
        self.bit(account).map_or(0, |bit| self.words.admit(bit, class, count_max))
    }
}
