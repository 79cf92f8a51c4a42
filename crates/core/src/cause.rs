//! The real causes of an I/O.
//!
//! A page is dirtied by one process, again by another, and written by a kernel thread that did neither. A journal block
//! carries the changes of every process that joined the transaction. So a request has a *set* of causes (split-level
//! paper, section 3.2), and a scheduler that charges it shares the cost among them.
//!
//! Accounts below 64 are bits of one word; in practice these are all that are active at once. Copying, union and test
//! cost one instruction and no memory. Accounts above spill into a sorted list on the heap.

use crate::account::AccountId;

const MASK_ACCOUNTS: u32 = u64::BITS;

/// A set of accounts. Cloning allocates only if it holds an account numbered 64 or higher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CauseSet {
    mask: u64,
    /// Sorted, without duplicates, none below 64; `None` where it would be empty, so that equality is structural.
    /// Boxed, because every request carries a set and nearly none has accounts here: one word instead of three.
    #[expect(clippy::box_collection)]
    above: Option<Box<Vec<u32>>>,
}

impl CauseSet {
    /// The set without members: no cause known.
    pub const EMPTY: CauseSet = CauseSet { mask: 0, above: None };

    /// The set with `account` as its only member.
    #[inline]
    pub fn of(account: AccountId) -> CauseSet {
        let mut set = CauseSet::EMPTY;
        set.insert(account);
        set
    }

    /// The set of the accounts 0 to 63 with their bits set in `mask`.
    #[inline]
    pub const fn from_mask(mask: u64) -> CauseSet {
        CauseSet { mask, above: None }
    }

    /// Bytes that the set takes beside itself: none without accounts numbered 64 or higher.
    pub fn heap_bytes(&self) -> usize {
        self.above.as_ref().map_or(0, |above| size_of::<Vec<u32>>() + above.capacity() * size_of::<u32>())
    }

    /// Adds `account`; O(1) below 64, otherwise O(members above).
    #[inline]
    pub fn insert(&mut self, account: AccountId) {
        if account.0 < MASK_ACCOUNTS {
            self.mask |= 1 << account.0;
            return;
        }
        let above = self.above.get_or_insert_default();
        if let Err(position) = above.binary_search(&account.0) {
            above.insert(position, account.0);
        }
    }

    /// Takes `account` out, if it is in.
    pub fn remove(&mut self, account: AccountId) {
        if account.0 < MASK_ACCOUNTS {
            self.mask &= !(1 << account.0);
        } else if let Some(above) = &mut self.above {
            above.retain(|&member| member != account.0);
            if above.is_empty() {
                self.above = None;
            }
        }
    }

    /// Adds every member of `other`.
    #[inline]
    pub fn union_with(&mut self, other: &CauseSet) {
        self.mask |= other.mask;
        for &member in other.above.iter().flat_map(|above| above.iter()) {
            self.insert(AccountId(member));
        }
    }

    /// Whether `account` is a member.
    #[inline]
    pub fn contains(&self, account: AccountId) -> bool {
        if account.0 < MASK_ACCOUNTS {
            self.mask & (1 << account.0) != 0
        } else {
            self.above.as_ref().is_some_and(|above| above.binary_search(&account.0).is_ok())
        }
    }

    /// Number of members: by how many a shared cost is divided.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask.count_ones() as usize + self.above.as_ref().map_or(0, |above| above.len())
    }

    /// Whether no cause is known.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.mask == 0 && self.above.is_none()
    }

    /// The member of a set that has one.
    #[inline]
    pub fn only(&self) -> Option<AccountId> {
        match (self.mask, self.above.as_deref().map(Vec::as_slice)) {
            (mask, None) if mask.is_power_of_two() => Some(AccountId(mask.trailing_zeros())),
            (0, Some(&[member])) => Some(AccountId(member)),
            _ => None,
        }
    }

    /// The members in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = AccountId> + '_ {
        let mut rest = self.mask;
        let low = std::iter::from_fn(move || {
            let lowest = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(AccountId(lowest))
        });
        low.chain(self.above.iter().flat_map(|above| above.iter().map(|&member| AccountId(member))))
    }
}

impl FromIterator<AccountId> for CauseSet {
    fn from_iter<I: IntoIterator<Item = AccountId>>(accounts: I) -> CauseSet {
        let mut set = CauseSet::EMPTY;
        accounts.into_iter().for_each(|account| set.insert(account));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        Union(Vec<u32>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let account = prop_oneof![0u32..66, 0u32..2000];
        prop_oneof![
            account.clone().prop_map(Step::Insert),
            account.clone().prop_map(Step::Remove),
            proptest::collection::vec(account, 0..5).prop_map(Step::Union),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_plain_set(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut set, mut oracle) = (CauseSet::EMPTY, BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(account) => { set.insert(AccountId(account)); oracle.insert(account); }
                    Step::Remove(account) => { set.remove(AccountId(account)); oracle.remove(&account); }
                    Step::Union(accounts) => {
                        set.union_with(&accounts.iter().map(|&a| AccountId(a)).collect());
                        oracle.extend(accounts);
                    }
                }
                prop_assert_eq!(set.iter().map(|a| a.0).collect::<Vec<_>>(), oracle.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), oracle.len());
                prop_assert_eq!(set.is_empty(), oracle.is_empty());
                let only = oracle.first().filter(|_| oracle.len() == 1);
                prop_assert_eq!(set.only(), only.copied().map(AccountId));
                prop_assert_eq!(&set, &oracle.iter().map(|&a| AccountId(a)).collect::<CauseSet>());
                for probe in [0, 63, 64, 65, 1999] {
                    prop_assert_eq!(set.contains(AccountId(probe)), oracle.contains(&probe));
                }
            }
        }
    }

    #[test]
    fn a_request_carries_it_in_two_words() {
        assert_eq!(size_of::<CauseSet>(), 16);
    }
}
