//! Which accounts the bits of a cause mask are.
//!
//! Below, an account is one of 62 bits, given out again when its owner has gone. In a scheduler it is a number in a
//! tree of pools and sessions. [`Members`] translates. The thread that opens and closes accounts changes it, the
//! engine's thread reads it for each block: one relaxed load a bit, no lock. The bit of an account that is being closed
//! stands for no account from then on.

use plimsoll_core::{AccountId, CauseSet};
use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of a mask of causes.
pub const BITS: u32 = 62;
/// No account has this number.
const NOBODY: u32 = u32::MAX;

/// The accounts of the bits. Clones are the same.
#[derive(Clone)]
pub struct Members {
    accounts: Arc<[AtomicU32; BITS as usize]>,
}

impl Default for Members {
    fn default() -> Members {
        Members { accounts: Arc::new(array::from_fn(|_| AtomicU32::new(NOBODY))) }
    }
}

impl Members {
    /// From now on a bit stands for an account; `None`: for none.
    ///
    /// # Panics
    /// If there is no such bit: [`BITS`].
    pub fn set(&self, bit: u32, account: Option<AccountId>) {
        self.accounts[bit as usize].store(account.map_or(NOBODY, |account| account.0), Ordering::Relaxed);
    }

    /// The account that a bit stands for.
    pub fn account(&self, bit: u32) -> Option<AccountId> {
        let number = self.accounts.get(bit as usize)?.load(Ordering::Relaxed);
        (number != NOBODY).then_some(AccountId(number))
    }

    /// The bit of an account. O([`BITS`]).
    pub fn bit(&self, account: AccountId) -> Option<u32> {
        (0..BITS).find(|&bit| self.account(bit) == Some(account))
    }

    /// All accounts. O([`BITS`]).
    pub fn accounts(&self) -> impl Iterator<Item = AccountId> + '_ {
        (0..BITS).filter_map(|bit| self.account(bit))
    }

    /// The accounts of a mask. O(bits that are set).
    pub fn causes(&self, mask: u64) -> CauseSet {
        let mut rest = mask & ((1 << BITS) - 1);
        let mut causes = CauseSet::EMPTY;
        while rest != 0 {
            if let Some(account) = self.account(rest.trailing_zeros()) {
                causes.insert(account);
            }
            rest &= rest - 1;
        }
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_mask_is_the_accounts_of_its_bits(
            members in prop::collection::btree_map(0..BITS, 0..1000u32, 0..62),
            closed in prop::collection::btree_set(0..BITS, 0..10),
            mask in any::<u64>(),
        ) {
            let translated = Members::default();
            members.iter().for_each(|(&bit, &account)| translated.set(bit, Some(AccountId(account))));
            closed.iter().for_each(|&bit| translated.clone().set(bit, None));
            let is_meant = |bit: u32| mask >> bit & 1 == 1 && !closed.contains(&bit);
            let expected: CauseSet =
                members.iter().filter(|(bit, _)| is_meant(**bit)).map(|(_, &account)| AccountId(account)).collect();
            prop_assert_eq!(translated.causes(mask), expected);
            for bit in 0..BITS {
                let account = members.get(&bit).filter(|_| !closed.contains(&bit)).map(|&account| AccountId(account));
                prop_assert_eq!(translated.account(bit), account);
                if let Some(account) = account {
                    prop_assert_eq!(translated.bit(account).and_then(|bit| translated.account(bit)), Some(account));
                }
            }
        }
    }
}
