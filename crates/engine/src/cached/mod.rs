//! A cache between a volume's requests and its backing.
//!
//! ```text
//!   front end -> submit -> waiting -> cut into blocks -> CacheStore --+--> fast device: an operation on the ring
//!                                                            ^        +--> store: a request of the volume, as any other:
//!                                                            |             pieces -> scheduler -> backend, device model
//!                                                            +--- completed <---------------------+
//! ```
//!
//! **The rule.** The scheduler orders what the slow device is asked to do. So it sees misses, writes past the cache and
//! the syncer's copies, and never a hit. A miss is a request of the session that missed: its class, its causes. A read
//! of which the cache has and wants nothing is not cut into blocks: it goes on as if there were no cache. What the
//! syncer does is the volume's, in a session of its own. Where tags name the causes of a block, they name those of its
//! copy too.
//!
//! **The complication.** The cache has a fixed number of places for blocks under way, and one that waits for the
//! scheduler keeps its place. So a tenant that is held back could take all of them, and no other tenant would have
//! hits. Each session may have as many places as are free, so a newcomer finds some. These are dynamic thresholds
//! (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A session that finds none, or waits for its
//! turn because more is written than the slow device takes, stands in a line (`waiting`).

mod administration;
#[cfg(test)]
mod doubt_tests;
mod emulated;
mod on_store;
mod pools;
mod request;
mod shares;
mod submission;
mod waiting;

use super::core::Core;
use super::doubts::Doubts;
use super::emulation::Emulation;
use super::error::EngineError;
use super::ring::Owner;
use super::slab::Slab;
use super::submission::{Finished, Submission};
use crate::cache::{CacheDevice, CacheSettings, FoundCache};
use plimsoll_cache::store::{Action, BLOCK_BYTES, CacheStore, Operation, Target};
use plimsoll_core::{AccountId, Time};
use pools::BoundedPools;
use request::{CachedRequest, Places};
use rustix::io::Errno;
use shares::Shares;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::mpsc::Sender;
use waiting::{Got, Waiting};

/// Whether requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not until the volume has done what it was asked before it had a cache.
    Beginning,
    /// They do.
    Working,
    /// No new ones until everything is clean; then the cache ends.
    Emptying,
    /// No new ones; the cache writes its snapshot.
    Closing,
    /// The cache has nothing left to do, and knows of nothing that the store lacks.
    Closed,
}

/// A flush that waits until what is dirty now is on the store.
struct FlushWaiter {
    passes: u64,
    answer: Sender<Result<(), EngineError>>,
}

/// A cache at work.
pub(super) struct VolumeCache {
    settings: CacheSettings,
    machine: Box<CacheStore>,
    device: CacheDevice,
    /// How long the device takes, if it is emulated.
    emulation: Option<Emulation>,
    /// The session of the syncer's requests.
    session: AccountId,
    phase: Phase,
    requests: Slab<CachedRequest>,
    places: Places,
    doubts: Doubts,
    /// Requests of which not every block was submitted.
    waiting: Waiting,
    /// Requests that go past the cache.
    past: Vec<u32>,
    /// Lines that were looked at in this round, and what each got.
    looked: Vec<(u32, Got)>,
    shares: Shares,
    pools: BoundedPools,
    /// Requests that may be done.
    done: Vec<u32>,
    /// Numbers of the orphans that have no more blocks in the cache.
    ended_orphans: Vec<u64>,
    /// Operations on the store that ended.
    ended: Vec<(u32, Result<(), Errno>)>,
    /// Requests of the store that it has given up and the scheduler still has, and for each block the request it was
    /// for.
    dropped: BTreeMap<u32, Vec<u32>>,
    /// Operations on the fast device, by number, and how many are under way.
    operations: Vec<Option<Operation>>,
    operations_under_way: u32,
    /// It stands among those that have something to do.
    is_listed: bool,
    /// When its machine wants to hear that time has passed.
    wake_at: Option<Time>,
    flush_waiters: Vec<FlushWaiter>,
    /// How often everything is to have been looked at, to be cleaned.
    clean_until: u64,
    /// All that is dirty is being cleaned, and no session writes any more.
    is_last_cleaning: bool,
    /// What cannot be cleaned may be lost, when it is emptied.
    may_lose: bool,
    /// It is not emptied any more, and no command waits until it is clean: the engine is to end.
    stays: bool,
    /// The command that waits for the phase that is under way to be over.
    phase_waiter: Option<Sender<Result<(), EngineError>>>,
}

impl VolumeCache {
    fn new(found: FoundCache, session: AccountId, begun: Sender<Result<(), EngineError>>) -> VolumeCache {
        let FoundCache { settings, mut machine, device, emulation, .. } = found;
        machine.set_write_back(settings.write_back(machine.superblock().layout.units));
        let operations = machine.operations_max() as usize;
        VolumeCache {
            pools: BoundedPools::new(&settings),
            settings,
            device,
            emulation,
            session,
            phase: Phase::Beginning,
            requests: Slab::with_capacity(operations),
            places: Places::new(crate::cache::DEPTH.requests),
            doubts: Doubts::default(),
            waiting: Waiting::default(),
            past: Vec::new(),
            looked: Vec::new(),
            shares: Shares::default(),
            done: Vec::with_capacity(operations),
            ended_orphans: Vec::new(),
            ended: Vec::with_capacity(operations),
            dropped: BTreeMap::new(),
            operations: vec![None; operations],
            operations_under_way: 0,
            is_listed: false,
            wake_at: None,
            flush_waiters: Vec::new(),
            clean_until: 0,
            is_last_cleaning: false,
            may_lose: false,
            stays: false,
            phase_waiter: Some(begun),
            machine,
        }
    }

    /// A new account has a number.
    pub(super) fn account_opened(&mut self, account: AccountId) {
        self.pools.forget(account);
        self.doubts.opened(account);
    }

    /// Changes under way: their front end and its name for them; first byte and length.
    pub(super) fn changes(&self) -> impl Iterator<Item = ((u32, u64), u64, u32)> {
        let changes = self.requests.iter().filter(|(_, request)| request.operation.is_write());
        changes.map(|(_, request)| ((request.front_end, request.token), request.offset, request.length))
    }

    /// No request and no command waits for an answer of it.
    fn is_idle(&self) -> bool {
        self.requests.len() == self.waiting.len() && self.operations_under_way == 0
    }
}

impl Core {
    /// Takes a request for a volume that has a cache.
    pub(super) fn submit_to_cache(&mut self, volume: u32, seat: (u32, AccountId), submission: Submission) {
        let now = self.now;
        let Some(cache) = self.volumes[volume].cache.as_deref_mut() else { return };
        let (session, operation) = (seat.1, submission.operation);
        cache.machine.asked(now);
        cache.machine.announce(submission.offset / BLOCK_BYTES as u64);
        let index = cache.requests.insert(CachedRequest::new(seat, submission, now));
        cache.waiting.push(session, operation, index);
        self.cache_has_work(volume);
    }

    /// Remembers that a volume's cache may go on.
    pub(super) fn cache_has_work(&mut self, volume: u32) {
        if let Some(cache) = self.volumes[volume].cache.as_deref_mut()
            && !std::mem::replace(&mut cache.is_listed, true)
        {
            self.caches_with_work.push(volume);
        }
    }

    /// Whether a cache may go on.
    pub(super) fn has_cache_work(&self) -> bool {
        !self.caches_with_work.is_empty()
    }

    /// Lets every cache go on that can.
    pub(super) fn drive_caches(&mut self) {
        while let Some(volume) = self.caches_with_work.pop() {
            let driven = self.with_cache(volume, |core, cache| {
                cache.is_listed = false;
                cache.wake_at = cache.machine.tick(core.now);
                while core.drive_cache(volume, cache) {}
            });
            if driven.is_some() {
                self.look_at_phase(volume);
            }
        }
    }

    /// Lets caches go on that wait for a time, if it has come. O(caches that write back by time).
    pub(super) fn wake_caches(&mut self) {
        for at in 0..self.emulated_caches.len() {
            let (volume, now) = (self.emulated_caches[at], self.now);
            let cache = self.volumes.get(volume).and_then(|seat| seat.cache.as_deref());
            if cache.and_then(|cache| cache.wake_at).is_some_and(|wake_at| wake_at <= now) {
                self.cache_has_work(volume);
            }
        }
    }

    /// When the next of them wants to go on.
    pub(super) fn timed_caches_wake_at(&self) -> Option<Time> {
        let caches = self.emulated_caches.iter().filter_map(|&volume| self.volumes.get(volume)?.cache.as_deref());
        caches.filter_map(|cache| cache.wake_at).min()
    }

    /// Calls with a volume's cache, if it has one, out of its seat, so that it can make requests of its volume.
    fn with_cache<T>(&mut self, volume: u32, call: impl FnOnce(&mut Core, &mut VolumeCache) -> T) -> Option<T> {
        // Whatever panics, its buffers are not freed: the kernel may still write to them (`Engine::run`).
        let mut cache = ManuallyDrop::new(self.volumes[volume].cache.take()?);
        let answer = call(self, &mut cache);
        self.volumes[volume].cache = Some(ManuallyDrop::into_inner(cache));
        Some(answer)
    }

    /// One round; says whether another may bear fruit.
    fn drive_cache(&mut self, volume: u32, cache: &mut VolumeCache) -> bool {
        let mut has_moved = false;
        let mut ended = std::mem::take(&mut cache.ended);
        for (id, result) in ended.drain(..) {
            cache.operation_ended(id, result);
            has_moved = true;
        }
        cache.ended = ended;
        has_moved |= self.submit_blocks(volume, cache);
        for index in cache.past.drain(..) {
            let request = cache.requests.remove(index).expect("it was not begun");
            let index = self.requests.insert(request.uncached(volume));
            self.add_pieces(index);
        }
        let mut run = None;
        while let Some(operation) = cache.machine.next_operation() {
            cache.operations_under_way += 1;
            cache.operations[operation.id as usize] = Some(operation);
            match operation.target {
                Target::Cache => self.begin_on_cache(volume, cache, &operation),
                Target::Store => run = Some(self.add_to_run(volume, cache, run, &operation)),
            }
            has_moved = true;
        }
        if let Some(run) = run {
            self.begin_on_store(volume, cache, &run);
        }
        has_moved |= cache.take_answers();
        for orphan in cache.ended_orphans.drain(..) {
            self.orphan_ended_in_cache(volume, orphan);
        }
        self.finish_done(volume, cache);
        has_moved
    }

    /// Gives an operation to the fast device.
    fn begin_on_cache(&mut self, volume: u32, cache: &mut VolumeCache, operation: &Operation) {
        if cache.begin_emulated(self.now, operation) {
            return;
        }
        let data = match operation.action {
            Action::Read | Action::Write => cache.machine.buffer(operation).as_mut_ptr(),
            Action::Flush | Action::Trim => std::ptr::null_mut(),
        };
        let entry = cache.device.entry(operation, data);
        // SAFETY: the buffer is the machine's, which keeps it for this operation until it has ended; the machine and the open
        // device are dropped only when nothing is under way (`look_at_phase`, `caches_are_closed`).
        unsafe { self.ring.push(entry, Owner::Cache(volume, operation.id)) }
    }

    /// The ring has done an operation on a cache's device.
    pub(super) fn cache_operation_completed(&mut self, volume: u32, id: u32, result: Result<u32, Errno>) {
        let Some(cache) = self.volumes[volume].cache.as_deref_mut() else { return };
        let operation = cache.operations[id as usize].expect("what ends was begun");
        let is_transfer = matches!(operation.action, Action::Read | Action::Write);
        if matches!(result, Err(Errno::INTR | Errno::AGAIN)) {
            self.with_cache(volume, |core, cache| core.begin_on_cache(volume, cache, &operation));
            return;
        }
        let result = match result {
            Ok(bytes) if is_transfer && bytes != operation.length_bytes => Err(Errno::IO),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = result {
            let (cache, offset) = (&cache.settings.name, operation.offset_bytes);
            tracing::error!(cache, action = ?operation.action, offset, error = %errno, "the cache's device failed");
        }
        cache.ended.push((id, result));
        self.cache_has_work(volume);
    }

    /// Answers the requests that are done.
    fn finish_done(&mut self, volume: u32, cache: &mut VolumeCache) {
        while let Some(index) = cache.done.pop() {
            let request = cache.requests.remove(index).expect("a request is done once");
            let CachedRequest { front_end, token, operation, offset, length, payload, error, metered, .. } = request;
            let latency = self.now.since(request.arrived);
            self.meters.request_completed(metered, operation, latency, error.is_none());
            let result = error.map_or(Ok(()), Err);
            self.finished.push((front_end, Finished { token, operation, length, result, payload }));
            if operation.is_write() {
                self.change_ended(volume, (front_end, token), offset, length);
            }
        }
    }

    /// Requests under way that count as `session`'s, before all caches: the store may have nothing of them. O(requests under way).
    pub(super) fn cached_requests_of(&self, session: AccountId) -> usize {
        let caches = self.volumes.iter().filter_map(|(_, seat)| seat.cache.as_deref());
        caches.flat_map(|cache| cache.requests.iter()).filter(|(_, request)| request.metered == session).count()
    }

    /// Marks requests as abandoned, by their front end and its name for them, and takes back what the store was to do
    /// for them. O(requests under way).
    pub(super) fn abandon_in_caches(&mut self, is_meant: impl Fn(u32, u64) -> bool) {
        for volume in 0..self.volumes.places() as u32 {
            let Some(cache) = self.volumes.get_mut(volume).and_then(|seat| seat.cache.as_deref_mut()) else { continue };
            for index in 0..cache.requests.places() as u32 {
                let Some(request) = cache.requests.get_mut(index) else { continue };
                if !is_meant(request.front_end, request.token) {
                    continue;
                }
                request.is_abandoned = true;
                let has_begun = request.operation.is_write() && request.blocks > 0;
                if has_begun && request.orphan.is_none() {
                    request.orphan = Some(self.orphans.began_in_cache(volume));
                }
            }
            self.cache_has_work(volume);
        }
        self.drop_on_store();
    }
}
