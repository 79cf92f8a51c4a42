//! What clients of a volume with a cache hear of a slow device that cannot flush.

use super::VolumeCache;
use super::request::{CachedRequest, token_of};
use crate::backend::{Backing, Volume, VolumeConfig};
use crate::cache::{CacheSettings, FoundCache};
use crate::doubts::Doubts;
use crate::submission::{Payload, Submission};
use plimsoll_cache::policies;
use plimsoll_cache::store::{Action, Request, RequestKind, Target};
use plimsoll_core::class::Scheme;
use plimsoll_core::{AccountId, Class, Operation, Time};
use rustix::io::Errno;

/// A cache with devices that do in this test's hands what they are asked.
fn cache(directory: &std::path::Path) -> VolumeCache {
    let backing = Backing::Memory { size_bytes: 1 << 20 };
    let (name, pool) = ("v".to_owned(), "pool".to_owned());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
    let usual = CacheSettings::new("fast", directory.join("fast"), policy, Scheme::default());
    let settings = CacheSettings { size_bytes: Some(crate::cache::CACHE_BYTES_MIN), ..usual };
    VolumeCache::new(
        FoundCache::find(settings, &volume).unwrap(),
        AccountId(9),
        Doubts::default(),
        std::sync::mpsc::channel().0,
    )
}

/// Asks, does all that the cache wants, and gives the answer. A write is of a part of a block, and so goes past the
/// cache.
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

/// The slow device cannot be flushed once while something that went past the cache is not durable. Outcome: each
/// session's next flush fails, and no other request.
///
/// Planted breaks that were seen red: only the session that flushed is told; a write is told; a session that is gone
/// has been told; the flush that failed has not.
/// Promise: store-failed-flush.
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
    assert_eq!(ask(&mut cache, other, flush, true, true), None, "no client heard it");
    assert_eq!(ask(&mut cache, other, flush, true, false), Some(Errno::IO));
    assert_eq!(ask(&mut cache, other, flush, true, false), None);
    cache.account_opened(later);
    assert_eq!(ask(&mut cache, later, flush, true, false), None, "it came after a client was told");
    assert_eq!(ask(&mut cache, third, flush, true, false), Some(Errno::IO));
    // Nothing is lost of what is durable.
    assert_eq!(ask(&mut cache, one, write, true, false), None);
    assert_eq!(ask(&mut cache, one, flush, true, false), None);
}

/// A forced write is answered when the store has been flushed behind it. Meanwhile another session's flush failed,
/// which the store says once: its own succeeds. Planted breaks: what went past is not remembered; what was doubtful
/// before counts, too.
#[test]
fn a_forced_write_fails_where_the_store_was_not_flushed_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let mut cache = cache(directory.path());
    let [one, other] = [1, 2].map(AccountId);
    let class = Class::UNCLASSIFIED;
    for fails_meanwhile in [true, false] {
        let (operation, payload) = (Operation::Write, Payload::None);
        let submission = Submission { token: 0, operation, offset: 0, length: 512, is_forced: true, class, payload };
        let mut request = CachedRequest::new((0, one), submission, Time::ZERO);
        (request.is_begun, request.submitted, request.blocks) = (true, 512, 1);
        request.loose_since = Some(cache.machine.doubts());
        let index = cache.requests.insert(request);
        cache.places.take(one);
        if fails_meanwhile {
            assert_eq!(ask(&mut cache, other, operation, true, false), None);
            assert_eq!(ask(&mut cache, other, Operation::Flush, false, false), Some(Errno::IO));
        }
        let (token, pool) = (token_of(index, 0), plimsoll_cache::Pool::default());
        let block = Request { token, kind: RequestKind::Write, block: 0, from: 0, to: 512, class, pool };
        assert!(cache.machine.submit(&block, &[7; 512]));
        while cache.done.is_empty() {
            while let Some(operation) = cache.machine.next_operation() {
                cache.machine.completed(operation.id, true);
            }
            assert!(cache.take_answers());
        }
        assert_eq!(cache.done.pop(), Some(index));
        let error = cache.requests.remove(index).expect("it is there").error;
        assert_eq!(error, fails_meanwhile.then_some(Errno::IO), "fails meanwhile: {fails_meanwhile}");
    }
}
