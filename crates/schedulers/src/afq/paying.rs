//! Who pays what: requests when they are dispatched, dirty pages in advance, and what was paid too much.

use super::{Afq, METADATA};
use plimsoll_core::{AccountId, BlockRequest, CauseSet, Operation, PageEvent, Time};

/// Of the mean of what positioning costs, the part that is the last one.
const MEAN_PART: f64 = 1.0 / 16.0;
/// The class of a journal's blocks (Differentiated Storage Services, table 2).
const JOURNAL_CLASS: u8 = 7;

impl Afq {
    /// Charges what the account has not left as a deposit.
    pub(super) fn pay(&mut self, account: AccountId, cost: u64) {
        let member = self.member(account);
        let from_deposit = cost.min(member.deposit);
        member.deposit -= from_deposit;
        self.stride.charge(account, cost - from_deposit);
    }

    /// What a request costs. A drive serves writes in its own order, so whose of them makes it move far is chance: each
    /// that needs a positioning pays the mean.
    fn cost(&mut self, request: &BlockRequest) -> u64 {
        let mut cost = self.model.cost(request);
        let is_data = request.file.is_some_and(|file| file != METADATA);
        if is_data && request.operation == Operation::Write && cost.positioning > 0 {
            self.positioning += (cost.positioning as f64 - self.positioning) * MEAN_PART;
            cost.positioning = self.positioning as u64;
        }
        cost.transfer + cost.positioning
    }

    /// A request goes to the device: its causes pay. A commit is shared by the calls that joined it.
    pub(super) fn charge(&mut self, request: &BlockRequest) {
        let cost = self.cost(request);
        if request.causes.is_empty() {
            return self.pay(request.session, cost);
        }
        let is_journal = request.class.number() == JOURNAL_CLASS;
        let mut parts = |account| if is_journal { self.member(account).joined.max(1) } else { 1 };
        let total: u64 = request.causes.iter().map(&mut parts).sum();
        for cause in request.causes.iter() {
            let parts = if is_journal { self.member(cause).joined.max(1) } else { 1 };
            self.pay(cause, cost * parts / total);
            if is_journal && request.is_forced {
                self.member(cause).joined = 0;
            }
        }
    }

    /// A write goes to the device: its pages leave the books, and the debts for them are settled.
    pub(super) fn charge_write(&mut self, request: &BlockRequest) {
        self.change_books(&request.causes, |afq| afq.ledger.request_added(request));
        self.charge(request);
    }

    /// Who makes clean pages dirty is charged now what writing them will probably cost.
    pub(super) fn charge_dirty(&mut self, now: Time, event: &PageEvent) {
        if event.file == METADATA {
            // Only what was clean: a file's times change with every write, and the disk is not asked for more.
            if event.previous.is_empty() {
                event.causes.iter().for_each(|cause| self.member(cause).wrote = now);
            }
            return;
        }
        self.ledger.pages_dirtied(event);
        if !event.previous.is_empty() || event.causes.is_empty() {
            return;
        }
        let cost = self.dirty_model.charge(event.file, event.offset, event.length) / event.causes.len() as u64;
        for cause in event.causes.iter() {
            let member = self.member(cause);
            member.owed += cost;
            member.wrote = now;
            self.pay(cause, cost);
            self.place(now, cause);
        }
    }

    /// Pages that are never written are never paid.
    pub(super) fn forgive_freed(&mut self, event: &PageEvent) {
        if event.file != METADATA {
            self.change_books(&event.causes, |afq| afq.ledger.pages_freed(event));
        }
    }

    /// Takes back what was charged for dirty pages of these accounts that `change` takes out of the books.
    fn change_books(&mut self, causes: &CauseSet, change: impl FnOnce(&mut Afq)) {
        let mut before = std::mem::take(&mut self.books_before);
        before.extend(causes.iter().map(|cause| (cause, self.ledger.account_bytes(cause))));
        change(self);
        for (account, before) in before.drain(..) {
            let after = self.ledger.account_bytes(account);
            if before > after {
                let member = self.member(account);
                let settled = u128::from(member.owed) * u128::from(before - after) / u128::from(before);
                member.owed -= settled as u64;
                self.stride.refund(account, settled as u64);
            }
        }
        self.books_before = before;
    }
}
