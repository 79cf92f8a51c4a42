//! What the freezer's law is told, and what it orders: which gates are closed, and what moves all the same.
//!
//! A gate of writes is the account's word. A gate of reads is closed while a read of the account went to the disk too
//! early: while it has to pay for that.

use crate::calls::Calls;
use crate::freezer::groups::FreezeOrders;
use crate::freezer::law::{FreezeLaw, HeldClass};
use crate::members::Members;
use plimsoll_core::{AccountId, Time};
use plimsoll_engine::HeldReads;
use std::collections::BTreeMap;

/// An account that can be frozen.
struct Freezable {
    bit: u32,
    law: FreezeLaw,
    /// Its reads that had come when they were last counted.
    arrived: u64,
}

/// The laws of all accounts that can be frozen.
pub(super) struct Freezing {
    orders: FreezeOrders,
    laws: BTreeMap<AccountId, Freezable>,
}

impl Freezing {
    pub(super) fn new(orders: FreezeOrders) -> Freezing {
        Freezing { orders, laws: BTreeMap::new() }
    }

    /// An account was seen to write. O(log accounts).
    pub(super) fn wrote(&mut self, account: AccountId, at: Time) {
        if let Some(account) = self.laws.get_mut(&account) {
            account.law.moved(at, HeldClass::Writes);
        }
    }

    /// Looks at the gates of writes and gives orders. Answers with when to look again. O(accounts that can be frozen).
    pub(super) fn mind(&mut self, now: Time, members: &Members, calls: &Calls) -> Option<Time> {
        let mut held = self.orders.held();
        let mut at = None;
        while held != 0 {
            let bit = held.trailing_zeros();
            held &= held - 1;
            let Some(account) = members.account(bit) else { continue };
            let new = || Freezable { bit, law: FreezeLaw::default(), arrived: 0 };
            let Freezable { law, .. } = self.laws.entry(account).or_insert_with(new);
            if self.orders.take_overruled(bit) {
                law.overruled(now);
            }
            law.gate(now, HeldClass::Writes, calls.is_closed(account));
            order(&self.orders, bit, law, now);
            at = at.into_iter().chain(law.at(now)).min();
        }
        at
    }

    /// Looks at the gates of reads and gives orders. O(accounts that can be frozen).
    pub(super) fn reads_held(&mut self, now: Time, reads: &HeldReads) {
        for (&account, Freezable { bit, law, arrived }) in &mut self.laws {
            let its = reads.of(account);
            law.gate(now, HeldClass::Reads, its.early > 0);
            if its.arrived > std::mem::replace(arrived, its.arrived) {
                law.moved(now, HeldClass::Reads);
            }
            order(&self.orders, *bit, law, now);
        }
    }

    /// The account has left.
    pub(super) fn leave(&mut self, account: AccountId, bit: u32) {
        self.laws.remove(&account);
        self.orders.set(bit, false);
    }
}

fn order(orders: &FreezeOrders, bit: u32, law: &mut FreezeLaw, now: Time) {
    law.decide(now);
    // Each time: the freezer's thread takes an order back when another program overrules it.
    orders.set(bit, law.is_frozen());
}
