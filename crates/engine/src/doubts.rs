//! Which sessions have been told that a device may have lost something.
//!
//! **The rule.** A device that cannot flush says so once, and whatever it is asked next may succeed. What was written
//! and acknowledged before is perhaps gone by then. The session that flushed hears it, and the others on that volume
//! have written, too. So the next flush of each session that has not been told fails, once, as the kernel does it for
//! each open file (`errseq_t`). A flush that fails anyway has told it, too.
//!
//! **Before a volume with a cache** the same is asked of what went past the cache
//! ([`CacheStore::doubts`](plimsoll_cache::store::CacheStore::doubts)): what is in it is copied again.
//!
//! **A later session** begins with what any session has been told of. It also hears of a doubt that no session was told
//! of: the client that wrote the lost data may have come back as this session.
//!
//! **A detached cache** takes with it what no session was told of: the log has it.

use plimsoll_core::AccountId;

/// What each session has been told of.
#[derive(Default)]
pub(super) struct Doubts {
    /// Flushes that failed so far, where there is no cache that counts them.
    failed: u64,
    told: Vec<u64>,
    /// The most that any session has been told of.
    told_to_anybody: u64,
}

impl Doubts {
    /// A new account has a number. One that is never named here was there before the first doubt.
    pub fn opened(&mut self, account: AccountId) {
        let told = self.told_to_anybody;
        *self.of(account) = told;
    }

    /// A flush or a forced write of the device failed.
    pub fn flush_failed(&mut self) {
        self.failed += 1;
    }

    /// A flush of `session` is answered. Says whether it has to fail, as of what [`flush_failed`](Self::flush_failed)
    /// was told.
    pub fn tell_failed(&mut self, session: AccountId) -> bool {
        self.tell(session, self.failed)
    }

    /// The same for a volume with a cache, which counts doubts itself: `doubts` since its start, earlier ones included.
    pub fn tell_since(&mut self, session: AccountId, doubts: u64) -> bool {
        self.tell(session, self.failed + doubts)
    }

    /// A flush of `session` is answered, and there were so many doubts so far. Says whether it has to fail.
    fn tell(&mut self, session: AccountId, doubts: u64) -> bool {
        self.told_to_anybody = self.told_to_anybody.max(doubts);
        std::mem::replace(self.of(session), doubts) < doubts
    }

    fn of(&mut self, account: AccountId) -> &mut u64 {
        if self.told.len() <= account.index() {
            self.told.resize(account.index() + 1, 0);
        }
        &mut self.told[account.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted breaks that were seen red: a session that was told is told again; a later session is told of everything,
    /// or of nothing.
    /// Promise: store-failed-flush.
    #[test]
    fn each_session_is_told_once_and_a_later_one_of_untold_doubts() {
        let (mut doubts, [one, other, later]) = (Doubts::default(), [1, 2, 3].map(AccountId));
        assert!(!doubts.tell(one, 0));
        assert_eq!([one, one, other, other].map(|session| doubts.tell(session, 1)), [true, false, true, false]);
        doubts.opened(later);
        assert!(!doubts.tell(later, 1), "what others were told before it came");
        doubts.opened(later);
        assert!(doubts.tell(later, 2), "no session was told of the second one");
        assert_eq!([one, other].map(|session| doubts.tell(session, 2)), [true, true]);
        // A session with another one's number has heard what that one had not, if any session has.
        doubts.opened(other);
        assert_eq!([other, other].map(|session| doubts.tell(session, 3)), [true, false]);
    }

    /// Planted break that was seen red: nothing is counted.
    /// Promise: volume-failed-flush.
    #[test]
    fn a_flush_that_failed_is_everybodys() {
        let (mut doubts, [one, other]) = (Doubts::default(), [1, 2].map(AccountId));
        assert!(!doubts.tell_failed(one));
        doubts.flush_failed();
        assert!(doubts.tell_failed(one), "the account that it belonged to");
        assert_eq!([one, other, other].map(|session| doubts.tell_failed(session)), [false, true, false]);
    }

    /// Planted break: what had failed before the cache began is told to no session.
    #[test]
    fn what_had_failed_before_a_cache_began_is_told_behind_it() {
        let (mut doubts, [one, other]) = (Doubts::default(), [1, 2].map(AccountId));
        doubts.flush_failed();
        assert!(doubts.tell_failed(one));
        assert_eq!([one, other, other].map(|session| doubts.tell_since(session, 0)), [false, true, false]);
        assert_eq!([one, other, other].map(|session| doubts.tell_since(session, 1)), [true, true, false]);
    }
}
