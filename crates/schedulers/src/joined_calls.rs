//! Counts the calls of each account that joined a commit, so that each account pays its part of it.
//!
//! **Intuition.** A commit writes what many calls have changed, in blocks that belong to them all. **Rule.** Calls are
//! counted for the transaction that runs. The first block that goes to the journal after a commit says that this one is
//! closed: calls from then on are the next one's. **Complication.** An account may be a cause of a commit without a
//! call in it, by what it changed before; it counts for one.
//!
//! All is O(1).

use plimsoll_core::{AccountId, BlockRequest, Class};

#[derive(Clone, Copy, Default)]
struct Joined {
    /// The transaction that `calls` are of.
    transaction: u64,
    calls: u64,
    /// Of the transaction before.
    calls_before: u64,
}

/// Whether a request is a part of a commit.
pub fn writes_journal(request: &BlockRequest) -> bool {
    request.class == Class::JOURNAL && request.operation.is_write()
}

/// See the module's text.
#[derive(Default)]
pub struct JoinedCalls {
    /// The transaction that runs.
    running: u64,
    /// The one before is being written.
    is_committing: bool,
    accounts: Vec<Joined>,
}

impl JoinedCalls {
    fn account(&mut self, account: AccountId) -> &mut Joined {
        if self.accounts.len() <= account.index() {
            self.accounts.resize(account.index() + 1, Joined::default());
        }
        let joined = &mut self.accounts[account.index()];
        if joined.transaction != self.running {
            let is_next = joined.transaction + 1 == self.running;
            let calls_before = if is_next { joined.calls } else { 0 };
            *joined = Joined { transaction: self.running, calls: 0, calls_before };
        }
        joined
    }

    /// A call that changes files begins.
    pub fn joins(&mut self, account: AccountId) {
        self.account(account).calls += 1;
    }

    /// A request came. A forced write to the journal ends a commit.
    pub fn request_added(&mut self, request: &BlockRequest) {
        if writes_journal(request) {
            self.running += u64::from(!self.is_committing);
            self.is_committing = !request.is_forced;
        }
    }

    /// Parts of a request's cost for the account: of a commit one for each call that joined it, otherwise one.
    pub fn parts(&mut self, account: AccountId, request: &BlockRequest) -> u64 {
        if writes_journal(request) { self.account(account).calls_before.max(1) } else { 1 }
    }

    /// An account is gone.
    pub fn forget(&mut self, account: AccountId) {
        *self.account(account) = Joined::default();
    }
}

#[cfg(test)]
mod tests {
    //! Planted: calls that come while a commit is written count for it; calls of two transactions ago count; other
    //! requests are divided by calls too.

    use super::*;
    use plimsoll_core::{Operation, RequestId, Time};

    const ONE: AccountId = AccountId(0);
    const OTHER: AccountId = AccountId(1);

    fn journal_write(is_forced: bool) -> BlockRequest {
        let request = BlockRequest::new(RequestId(0), ONE, Operation::Write, 0, 4096, Time::ZERO);
        BlockRequest { class: Class::JOURNAL, is_forced, ..request }
    }

    /// The parts of both accounts of a write that comes now.
    fn write(joined: &mut JoinedCalls, request: BlockRequest) -> (u64, u64) {
        joined.request_added(&request);
        (joined.parts(ONE, &request), joined.parts(OTHER, &request))
    }

    #[test]
    fn calls_count_for_the_transaction_that_ran_when_they_came() {
        let mut joined = JoinedCalls::default();
        (0..3).for_each(|_| joined.joins(ONE));
        joined.joins(OTHER);
        let data = BlockRequest { class: Class::UNCLASSIFIED, ..journal_write(false) };
        assert_eq!(write(&mut joined, journal_write(false)), (3, 1));
        assert_eq!(write(&mut joined, data), (1, 1), "not the journal's");
        (0..5).for_each(|_| joined.joins(OTHER));
        assert_eq!(write(&mut joined, journal_write(false)), (3, 1));
        assert_eq!(write(&mut joined, journal_write(true)), (3, 1));
        assert_eq!(write(&mut joined, journal_write(false)), (1, 5));
        assert_eq!(write(&mut joined, journal_write(true)), (1, 5));
        (0..2).for_each(|_| joined.joins(ONE));
        assert_eq!(write(&mut joined, journal_write(true)), (2, 1), "a commit of one block");
        assert_eq!(write(&mut joined, journal_write(true)), (1, 1), "an empty one");
        (0..2).for_each(|_| joined.joins(ONE));
        joined.request_added(&journal_write(true));
        assert_eq!(write(&mut joined, journal_write(true)), (1, 1), "two commits ago");
        (0..2).for_each(|_| joined.joins(ONE));
        joined.forget(ONE);
        assert_eq!(write(&mut joined, journal_write(true)), (1, 1));
    }
}
