//! Who has been told that the slow device may have lost something.
//!
//! **The rule.** A device that cannot flush says so once, and whatever the cache asks of it next may succeed; what was written past the cache and
//! acknowledged is perhaps gone by then ([`CacheStore::doubts`](plimsoll_cache::store::CacheStore::doubts)). So the next flush of each session that
//! has not been told fails, once, as the kernel does it for each open file (`errseq_t`). A flush that fails anyway has told it, too.
//!
//! **Who comes later** begins with what anybody has been told of, and hears of a doubt that nobody was told of: who wrote what is lost may be
//! the same client, come back.

use plimsoll_core::AccountId;

/// What each session has been told of.
#[derive(Default)]
pub(super) struct Doubts {
    told: Vec<u64>,
    /// The most that anybody has been told of.
    told_to_anybody: u64,
}

impl Doubts {
    /// Somebody new has a number. One that is never named here was there before the cache, which began without doubts.
    pub fn opened(&mut self, account: AccountId) {
        let told = self.told_to_anybody;
        *self.of(account) = told;
    }

    /// A flush of `session` is answered, and there were so many doubts so far. Says whether it has to fail.
    pub fn tell(&mut self, session: AccountId, doubts: u64) -> bool {
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
    use super::super::VolumeCache;
    use super::super::request::{CachedRequest, token_of};
    use super::*;
    use crate::backend::{Backing, Volume, VolumeConfig};
    use crate::cache::{CacheSettings, FoundCache};
    use crate::engine::front_end::{Payload, Submission};
    use plimsoll_cache::policies;
    use plimsoll_cache::store::{Action, Request, RequestKind, Target};
    use plimsoll_core::class::Scheme;
    use plimsoll_core::{Class, Operation, Time};
    use rustix::io::Errno;

    /// Planted breaks that were seen red: who was told is told again; who comes later is told of everything, or of nothing.
    #[test]
    fn each_session_is_told_once_and_who_comes_later_of_what_nobody_was_told() {
        let (mut doubts, [one, other, later]) = (Doubts::default(), [1, 2, 3].map(AccountId));
        assert!(!doubts.tell(one, 0));
        assert_eq!([one, one, other, other].map(|session| doubts.tell(session, 1)), [true, false, true, false]);
        doubts.opened(later);
        assert!(!doubts.tell(later, 1), "what others were told before it came");
        doubts.opened(later);
        assert!(doubts.tell(later, 2), "nobody was told of the second one");
        assert_eq!([one, other].map(|session| doubts.tell(session, 2)), [true, true]);
        // Who has another one's number has heard what that one had not, if anybody has.
        doubts.opened(other);
        assert_eq!([other, other].map(|session| doubts.tell(session, 3)), [true, false]);
    }

    /// A cache whose devices do what they are asked in this test's hands.
    fn cache(directory: &std::path::Path) -> VolumeCache {
        let backing = Backing::Memory { size_bytes: 1 << 20 };
        let (name, pool) = ("v".to_owned(), "pool".to_owned());
        let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
        let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
        let usual = CacheSettings::new("fast", directory.join("fast"), policy, Scheme::default());
        let settings = CacheSettings { size_bytes: Some(crate::cache::CACHE_BYTES_MIN), ..usual };
        VolumeCache::new(FoundCache::find(settings, &volume).unwrap(), AccountId(9), std::sync::mpsc::channel().0)
    }

    /// Asks, does all that the cache wants, and gives the answer. A write is of a part of a block, and so goes past the cache.
    fn ask(
        cache: &mut VolumeCache,
        session: AccountId,
        operation: Operation,
        is_flushed: bool,
        is_abandoned: bool,
    ) -> Option<Errno> {
        let (length, kind) =
            if operation == Operation::Write { (512, RequestKind::Write) } else { (0, RequestKind::Flush) };
        let (class, payload) = (Class::UNCLASSIFIED, Payload::None);
        let submission = Submission { token: 0, operation, offset: 0, length, is_forced: false, class, payload };
        let mut request = CachedRequest::new((0, session), submission, Time::ZERO);
        (request.is_begun, request.submitted, request.blocks, request.is_abandoned) = (true, length, 1, is_abandoned);
        let index = cache.requests.insert(request);
        cache.places.take(session);
        let (token, pool, to) = (token_of(index, 0), plimsoll_cache::Pool::default(), length as u16);
        let block = Request { token, kind, block: 0, from: 0, to, class, pool };
        assert!(cache.machine.submit(&block, &vec![7; length as usize]));
        while let Some(operation) = cache.machine.next_operation() {
            let is_flush_of_store = (operation.target, operation.action) == (Target::Store, Action::Flush);
            cache.machine.completed(operation.id, is_flushed || !is_flush_of_store);
        }
        assert!(cache.take_answers());
        assert_eq!(cache.done.pop(), Some(index));
        cache.requests.remove(index).expect("it is there").error
    }

    /// The slow device cannot be flushed once while something that went past the cache is not durable. Outcome: each session's next flush
    /// fails, and no other request.
    ///
    /// Planted breaks that were seen red: nobody is told but whose flush it was; a write is; who is gone has been told; the flush that
    /// failed has not.
    #[test]
    fn a_flush_that_the_slow_device_refused_fails_the_next_flush_of_every_session_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = cache(directory.path());
        let [one, other, third, later] = [1, 2, 3, 4].map(AccountId);
        let (write, flush) = (Operation::Write, Operation::Flush);
        assert_eq!(ask(&mut cache, one, write, true, false), None);
        assert_eq!(ask(&mut cache, one, flush, false, false), Some(Errno::IO));
        assert_eq!(cache.machine.doubts(), 1);
        for operation in [flush, write, flush] {
            assert_eq!(ask(&mut cache, one, operation, true, false), None, "{operation:?}: it was told");
        }
        assert_eq!(ask(&mut cache, other, write, true, false), None);
        assert_eq!(ask(&mut cache, other, flush, true, true), None, "nobody heard it");
        assert_eq!(ask(&mut cache, other, flush, true, false), Some(Errno::IO));
        assert_eq!(ask(&mut cache, other, flush, true, false), None);
        cache.account_opened(later);
        assert_eq!(ask(&mut cache, later, flush, true, false), None, "it came after somebody was told");
        assert_eq!(ask(&mut cache, third, flush, true, false), Some(Errno::IO));
        // Nothing is lost of what is durable.
        assert_eq!(ask(&mut cache, one, write, true, false), None);
        assert_eq!(ask(&mut cache, one, flush, true, false), None);
    }
}
