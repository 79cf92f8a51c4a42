//! Accounts with reads that wait at their gates, because those below wait too long already.
//!
//! A scheduler decides about a read at the disk: too late to let it wait without keeping a place that others need
//! ([`plimsoll_engine::HeldReads`]). So its account's *next* reads wait at the word:
//!
//! ```text
//!   many wait below, or one was read too early  -> the word closes
//!   the early ones are paid, few wait below     -> a few more are admitted, and no more than a few
//!   no reader waits at the word                 -> it opens
//! ```
//!
//! Opening it to all would be a herd: five hundred threads would have a read each below before the word could close
//! again. An admitted reader needs some time until its read arrives. Until then it counts as arrived, for at most
//! [`ADMITTED_LAST`].
//!
//! **The complication: strangers.** The file of words is readable by every process, and that is enough to wait at a
//! word. A stranger that does, and waits again at once after each wake-up, takes the places of the account's own
//! readers among the few admitted. As it never leaves, they never enter. The kernel does not name the waiters at a
//! word. But a stranger's read does not arrive. So **for each admitted waiter that has not come in time, one more is
//! admitted the next time**. Where there are only strangers that doubles with each time, whatever they do. Once there
//! seem to be more than [`STRANGERS_MAX`], the word opens whenever it would admit a reader. Then there may be a herd,
//! on a machine with a stranger. A reader that comes late was no stranger, and is taken back. Half of the strangers are
//! forgotten every [`STRANGERS_HALVED`], since some readers never come. Another read brought their data, it is on
//! another disk, or their read was merged.
//!
//! So strangers, however many, delay a reader without debts by at most five times [`ADMITTED_LAST`]. Sixteen are
//! admitted, then 32, and so on, until more than [`STRANGERS_MAX`] have not come. It is nine times if so many accounts'
//! words are closed that each has one place below. As long as they stay it is once [`ADMITTED_LAST`] in
//! [`STRANGERS_HALVED`] from then on. They gain a victim without a gate of reads. Its early reads are charged, and the
//! device's places are kept for others, as with any reader that bypasses its gate.
//!
//! Strangers that move waiters to another word (`FUTEX_REQUEUE`) leave none to be woken. The word opens, and a moved
//! reader sees that when its lease runs out.

use crate::account_words::AccountWords;
use crate::members::Members;
use plimsoll_core::{AccountId, Span, Time};
use plimsoll_engine::{AccountReads, HeldReads};
use plimsoll_gates::GateClass;
use std::collections::{BTreeMap, VecDeque};

/// Reads of one account below beyond which its next ones wait.
const WAITING_MAX: u32 = 32;
/// Reads of all accounts below, beyond which accounts with more than one wait: half of the loop device's places.
const WAITING_OF_ALL_MAX: u32 = 64;
/// Most reads below of an account with a closed word: enough for a disk to choose from.
const ADMITTED_MAX: u32 = 16;
/// Time for an admitted reader to arrive: longer than a thread waits for a processor on a busy machine.
const ADMITTED_LAST: Span = Span::from_millis(100);
/// Strangers at a word beyond which it opens: five admissions after which no read comes.
const STRANGERS_MAX: u32 = 256;
/// How often half of the strangers are forgotten. Of a few hundred readers a second one in ten may not come, and they
/// are no more than [`STRANGERS_MAX`] for that.
const STRANGERS_HALVED: Span = Span::from_secs(2);

/// The gates of reads.
pub trait ReadGates {
    /// An account's reads wait from now on.
    fn close(&self, account: AccountId);
    /// They wait no more.
    fn open(&self, account: AccountId);
    /// As many waiters go on; says how many did. Fewer: none waits any more.
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
struct Admitted {
    /// When they were let in, and how many of them have not come; the oldest first.
    groups: VecDeque<(Time, u32)>,
    /// All of them.
    count: u32,
    /// Waiters that are not waited for any longer and have been taken for strangers.
    missing: u32,
    /// The account's reads that had come when they were counted.
    arrived: u64,
}

impl Admitted {
    fn none(arrived: u64) -> Admitted {
        Admitted { groups: VecDeque::new(), count: 0, missing: 0, arrived }
    }

    fn add(&mut self, now: Time, count: u32) {
        if count > 0 {
            self.groups.push_back((now, count));
            self.count += count;
        }
    }

    /// Removes admitted readers that have come, and counts those that are overdue as strangers.
    fn age(&mut self, now: Time, reads: AccountReads, strangers: &mut Strangers) {
        let mut came = u32::try_from(reads.arrived - self.arrived).unwrap_or(u32::MAX);
        self.arrived = reads.arrived;
        while let Some((since, waited_for)) = self.groups.front_mut() {
            let these = came.min(*waited_for);
            (came, *waited_for, self.count) = (came - these, *waited_for - these, self.count - these);
            if *waited_for > 0 {
                if now.since(*since) < ADMITTED_LAST {
                    break;
                }
                self.count -= *waited_for;
                self.missing += *waited_for;
                strangers.count += *waited_for;
            }
            self.groups.pop_front();
        }
        // More may come that passed before the word closed: none of those was taken for a stranger.
        let late = came.min(self.missing);
        self.missing -= late;
        strangers.count = strangers.count.saturating_sub(late);
    }
}

/// Estimated number of waiters at an account's word that are not its readers.
#[derive(Clone, Copy)]
struct Strangers {
    count: u32,
    halved: Time,
}

impl Strangers {
    fn forget_some(&mut self, now: Time) {
        let times = now.since(self.halved).as_nanos() / STRANGERS_HALVED.as_nanos();
        self.count = self.count.checked_shr(u32::try_from(times).unwrap_or(u32::MAX)).unwrap_or(0);
        self.halved += STRANGERS_HALVED * times;
    }
}

/// The accounts with reads that wait at their words.
#[derive(Default)]
pub struct Readers {
    held: BTreeMap<AccountId, Admitted>,
    /// Of accounts with words that were ever closed.
    strangers: BTreeMap<AccountId, Strangers>,
}

impl Readers {
    /// Closes and opens what must be, and admits readers that may go on. O(1) while no read waits, O(accounts) else.
    pub fn mind(&mut self, now: Time, reads: &HeldReads, members: &Members, gates: &dyn ReadGates) {
        let sum = reads.sum();
        if sum.waiting > WAITING_MAX || sum.early > 0 {
            for account in members.accounts() {
                let AccountReads { waiting, early, arrived } = reads.of(account);
                let is_many = waiting > WAITING_MAX || (sum.waiting > WAITING_OF_ALL_MAX && waiting > 1);
                if (early > 0 || is_many) && !self.held.contains_key(&account) {
                    gates.close(account);
                    self.held.insert(account, Admitted::none(arrived));
                }
            }
        }
        if self.held.is_empty() {
            return;
        }
        let share = (WAITING_OF_ALL_MAX / self.held.len() as u32).clamp(1, ADMITTED_MAX);
        let strangers = &mut self.strangers;
        self.held.retain(|&account, admitted| {
            let strangers = strangers.entry(account).or_insert(Strangers { count: 0, halved: now });
            strangers.forget_some(now);
            let its = reads.of(account);
            admitted.age(now, its, strangers);
            if its.early > 0 || its.waiting >= share {
                return true;
            }
            let room = (share - its.waiting + strangers.count).saturating_sub(admitted.count);
            let is_too_many = strangers.count > STRANGERS_MAX;
            if room == 0 && !is_too_many {
                return true;
            }
            let went = if is_too_many { 0 } else { gates.admit(account, room) };
            admitted.add(now, went);
            let stays = went == room && !is_too_many;
            if !stays {
                gates.open(account);
            }
            stays
        });
    }

    /// Whether the reads of some account wait at its word.
    pub fn are_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// When an admitted reader will have been waited for long enough.
    pub fn admitted_until(&self) -> Option<Time> {
        let firsts = self.held.values().filter_map(|admitted| admitted.groups.front());
        firsts.map(|&(since, _)| since + ADMITTED_LAST).min()
    }

    /// An account has no tenant any more: all waiters go on.
    pub fn leave(&mut self, account: AccountId, gates: &dyn ReadGates) {
        self.held.remove(&account);
        self.strangers.remove(&account);
        gates.open(account);
    }
}

#[cfg(test)]
mod tests;
