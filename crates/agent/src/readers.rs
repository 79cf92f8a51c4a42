//! Whose reads wait at their gates, because those below wait too long already.
//!
//! A scheduler decides about a read when it has come to the disk: too late to let it wait without keeping a place that others
//! need ([`plimsoll_brick::engine::HeldReads`]). So its account's *next* reads wait at the word:
//!
//! ```text
//!   many wait below, or one was read too early  -> the word closes
//!   the early ones are paid, few wait below     -> a few more are admitted, and no more than a few
//!   nobody waits at the word                    -> it opens
//! ```
//!
//! Opening it to all would be a herd: five hundred threads would have a read each below before the word could close again.
//! Who was admitted needs some time until its read has come; until then it counts as if it had, or, if it never comes, for
//! [`ADMITTED_LAST`].

use crate::account_words::AccountWords;
use crate::members::Members;
use plimsoll_brick::engine::{AccountReads, HeldReads};
use plimsoll_core::{AccountId, Span, Time};
use plimsoll_gates::GateClass;
use std::collections::BTreeMap;

/// Reads of one account below beyond which its next ones wait.
const WAITING_MAX: u32 = 32;
/// Reads of all accounts below beyond which those who have more than one wait: half of the loop device's places.
const WAITING_OF_ALL_MAX: u32 = 64;
/// Reads that an account whose word is closed may have below: enough for a disk to choose from.
const ADMITTED_MAX: u32 = 16;
/// How long somebody who was admitted is waited for: longer than a thread waits for a processor on a busy machine.
const ADMITTED_LAST: Span = Span::from_millis(100);

/// The gates of reads.
pub trait ReadGates {
    /// An account's reads wait from now on.
    fn close(&self, account: AccountId);
    /// They wait no more.
    fn open(&self, account: AccountId);
    /// As many of those who wait go on; says how many did. Fewer: nobody waits any more.
    fn admit(&self, account: AccountId, count_max: u32) -> u32;
}

impl ReadGates for AccountWords<'_> {
    fn close(&self, account: AccountId) {
        self.close(account, GateClass::Read);
    }

    fn open(&self, account: AccountId) {
        self.open(account, GateClass::Read);
    }

    fn admit(&self, account: AccountId, count_max: u32) -> u32 {
        self.admit(account, GateClass::Read, count_max)
    }
}

/// Those that were let in at a closed word and have not come below yet.
#[derive(Clone, Copy)]
struct Admitted {
    count: u32,
    /// The account's reads that had come when they were counted.
    arrived: u64,
    since: Time,
}

impl Admitted {
    /// Leaves out those that have come, and all if it was too long ago.
    fn age(&mut self, now: Time, reads: AccountReads) {
        let came = u32::try_from(reads.arrived - self.arrived).unwrap_or(u32::MAX);
        self.arrived = reads.arrived;
        let is_over = now.since(self.since) >= ADMITTED_LAST;
        self.count = if is_over { 0 } else { self.count.saturating_sub(came) };
    }
}

/// The accounts whose reads wait at their words.
#[derive(Default)]
pub struct Readers {
    held: BTreeMap<AccountId, Admitted>,
}

impl Readers {
    /// Closes and opens what must be, and admits who may go on. O(1) while no read waits, O(accounts) else.
    pub fn mind(&mut self, now: Time, reads: &HeldReads, members: &Members, gates: &dyn ReadGates) {
        let sum = reads.sum();
        if sum.waiting > WAITING_MAX || sum.early > 0 {
            for account in members.accounts() {
                let AccountReads { waiting, early, arrived } = reads.of(account);
                let is_many = waiting > WAITING_MAX || (sum.waiting > WAITING_OF_ALL_MAX && waiting > 1);
                if (early > 0 || is_many) && !self.held.contains_key(&account) {
                    gates.close(account);
                    self.held.insert(account, Admitted { count: 0, arrived, since: now });
                }
            }
        }
        if self.held.is_empty() {
            return;
        }
        let share = (WAITING_OF_ALL_MAX / self.held.len() as u32).clamp(1, ADMITTED_MAX);
        self.held.retain(|&account, admitted| {
            let its = reads.of(account);
            admitted.age(now, its);
            if its.early > 0 {
                return true;
            }
            let room = share.saturating_sub(its.waiting + admitted.count);
            if room == 0 {
                return true;
            }
            let went = gates.admit(account, room);
            (admitted.count, admitted.since) = (admitted.count + went, now);
            if went < room {
                gates.open(account);
            }
            went == room
        });
    }

    /// An account is nobody's any more: whoever waits goes on.
    pub fn leave(&mut self, account: AccountId, gates: &dyn ReadGates) {
        self.held.remove(&account);
        gates.open(account);
    }
}

#[cfg(test)]
mod tests;
