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
//! is not cut into blocks if the cache has and wants none of it. It takes the way of a volume without a cache. What the
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

use super::block_tags::BlockTags;
use super::doubts::Doubts;
use super::emulation::Emulation;
use super::error::EngineError;
use super::ring::{Owner, Ring};
use super::slab::Slab;
use super::submission::{Finished, Submission};
use crate::cache::{CacheDevice, CacheSettings, FoundCache};
use crate::path::ground::Ground;
use crate::path::next::{Next, Orphan};
use crate::path::request::Request;
use crate::path::table::Table;
use plimsoll_cache::store::{Action, BLOCK_BYTES, CacheStore, Operation, Target};
use plimsoll_core::{AccountId, Time};
use pools::BoundedPools;
use request::{CachedRequest, Places};
use rustix::io::Errno;
use shares::Shares;
use std::collections::BTreeMap;
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

/// What a cache works with beside its own.
pub(crate) struct Surroundings<'engine> {
    /// The number of the volume before which it stands.
    pub(crate) volume: u32,
    pub(crate) ground: &'engine mut Ground,
    pub(crate) table: &'engine mut Table,
    pub(crate) ring: &'engine mut Ring,
    /// Tells causes and classes of the volume's blocks, if anything can.
    pub(crate) tags: Option<&'engine dyn BlockTags>,
}

/// A cache at work.
pub(crate) struct VolumeCache {
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
    /// Lines that had their turn in this round, and what each got.
    looked: Vec<(u32, Got)>,
    shares: Shares,
    pools: BoundedPools,
    /// Requests that may be done.
    done: Vec<u32>,
    /// Numbers of the orphans that have no more blocks in the cache.
    ended_orphans: Vec<u64>,
    /// Operations on the store that ended.
    ended: Vec<(u32, Result<(), Errno>)>,
    /// Requests of the store that were given up while the scheduler still has them, and for each block its request.
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
    /// Whether the engine is to end: the cache is emptied no more, and no command waits for it.
    stays: bool,
    /// The command that waits for the phase that is under way to be over.
    phase_waiter: Option<Sender<Result<(), EngineError>>>,
}

impl VolumeCache {
    pub(crate) fn new(
        found: FoundCache,
        session: AccountId,
        doubts: Doubts,
        begun: Sender<Result<(), EngineError>>,
    ) -> VolumeCache {
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
            doubts,
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

    /// Takes a request of a front end in that session.
    pub(crate) fn take_request(&mut self, now: Time, seat: (u32, AccountId), submission: Submission) {
        let (session, operation) = (seat.1, submission.operation);
        self.machine.asked(now);
        self.machine.announce(submission.offset / BLOCK_BYTES as u64);
        let index = self.requests.insert(CachedRequest::new(seat, submission, now));
        self.waiting.push(session, operation, index);
    }

    /// It stands among those that have something to do from now on. Says whether it did not before.
    pub(crate) fn is_newly_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// A new account has a number.
    pub(crate) fn account_opened(&mut self, account: AccountId) {
        self.pools.forget(account);
        self.doubts.opened(account);
    }

    /// Changes under way: their front end and its name for them; first byte and length.
    pub(crate) fn changes(&self) -> impl Iterator<Item = ((u32, u64), u64, u32)> {
        let changes = self.requests.iter().filter(|(_, request)| request.operation.is_write());
        changes.map(|(_, request)| ((request.front_end, request.token), request.offset, request.length))
    }

    /// No request and no command waits for an answer of it.
    fn is_idle(&self) -> bool {
        self.requests.len() == self.waiting.len() && self.operations_under_way == 0
    }

    /// Requests under way that count as `session`'s: the store may have nothing of them. O(requests under way).
    pub(crate) fn requests_of(&self, session: AccountId) -> usize {
        self.requests.iter().filter(|(_, request)| request.metered == session).count()
    }

    /// Goes on as far as it can; `name` is the volume's. Says whether there is more to do.
    pub(crate) fn drive(&mut self, around: &mut Surroundings<'_>, name: &str) -> bool {
        self.is_listed = false;
        self.wake_at = self.machine.tick(around.ground.now);
        while self.one_round(around) {}
        let volume = around.volume;
        let is_own = |(_, request): &(u32, &Request)| request.volume == volume && !request.asker.is_cache();
        self.look_at_phase(name, || around.table.requests.iter().any(|entry| is_own(&entry)))
    }

    /// One round; says whether another may bear fruit.
    fn one_round(&mut self, around: &mut Surroundings<'_>) -> bool {
        let mut has_moved = false;
        let mut ended = std::mem::take(&mut self.ended);
        for (id, result) in ended.drain(..) {
            self.operation_ended(id, result);
            has_moved = true;
        }
        self.ended = ended;
        has_moved |= self.submit_blocks(&around.ground.tree, around.tags);
        let Surroundings { volume, ground, table, ring, .. } = around;
        let volume = *volume;
        for index in self.past.drain(..) {
            let request = self.requests.remove(index).expect("it was not begun");
            ground.then(Next::Add(table.requests.insert(request.uncached(volume))));
        }
        let mut run = None;
        while let Some(operation) = self.machine.next_operation() {
            self.operations_under_way += 1;
            self.operations[operation.id as usize] = Some(operation);
            match operation.target {
                Target::Cache => self.begin_on_cache(ring, (volume, ground.now), &operation),
                Target::Store => run = Some(self.add_to_run(ground, table, volume, run, &operation)),
            }
            has_moved = true;
        }
        if let Some(run) = run {
            self.begin_on_store(ground, table, volume, &run);
        }
        has_moved |= self.take_answers();
        for number in self.ended_orphans.drain(..) {
            ground.then(Next::OrphanEnded(Orphan::InCache { volume, number }));
        }
        self.finish_done(ground, volume);
        has_moved
    }

    /// Gives an operation to the fast device.
    fn begin_on_cache(&mut self, ring: &mut Ring, (volume, now): (u32, Time), operation: &Operation) {
        if self.begin_emulated(now, operation) {
            return;
        }
        let data = match operation.action {
            Action::Read | Action::Write => self.machine.buffer(operation).as_mut_ptr(),
            Action::Flush | Action::Trim => std::ptr::null_mut(),
        };
        let entry = self.device.entry(operation, data);
        // SAFETY: the buffer is the machine's, which keeps it for this operation until it has ended; the machine and
        // the open device are dropped only when nothing is under way (`look_at_phase`, `caches_are_closed`).
        unsafe { ring.push(entry, Owner::Cache(volume, operation.id)) }
    }

    /// The ring has done an operation on the fast device of the cache of `volume`. Says whether it may go on.
    pub(crate) fn operation_completed(
        &mut self,
        ring: &mut Ring,
        (volume, now): (u32, Time),
        id: u32,
        result: Result<u32, Errno>,
    ) -> bool {
        let operation = self.operations[id as usize].expect("what ends was begun");
        let is_transfer = matches!(operation.action, Action::Read | Action::Write);
        if matches!(result, Err(Errno::INTR | Errno::AGAIN)) {
            self.begin_on_cache(ring, (volume, now), &operation);
            return false;
        }
        let result = match result {
            Ok(bytes) if is_transfer && bytes != operation.length_bytes => Err(Errno::IO),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = result {
            let (cache, offset) = (&self.settings.name, operation.offset_bytes);
            tracing::error!(cache, action = ?operation.action, offset, error = %errno, "the cache's device failed");
        }
        self.ended.push((id, result));
        true
    }

    /// Answers the requests that are done.
    fn finish_done(&mut self, ground: &mut Ground, volume: u32) {
        while let Some(index) = self.done.pop() {
            let request = self.requests.remove(index).expect("a request is done once");
            let CachedRequest { front_end, token, operation, offset, length, payload, error, metered, .. } = request;
            let latency = ground.now.since(request.arrived);
            ground.meters.request_completed(metered, operation, latency, error.is_none());
            let result = error.map_or(Ok(()), Err);
            ground.answers.push((front_end, Finished { token, operation, length, result, payload }));
            if operation.is_write() {
                ground.then(Next::ChangeEnded { volume, owner: (front_end, token), offset, length });
            }
        }
    }

    /// Marks requests as abandoned, by their front end and its name for them. `orphan` gives a number to one that
    /// cannot be taken back. O(requests under way).
    pub(crate) fn abandon(&mut self, mut orphan: impl FnMut() -> u64, is_meant: impl Fn(u32, u64) -> bool) {
        for index in 0..self.requests.places() as u32 {
            let Some(request) = self.requests.get_mut(index) else { continue };
            if !is_meant(request.front_end, request.token) {
                continue;
            }
            request.is_abandoned = true;
            let has_begun = request.operation.is_write() && request.blocks > 0;
            if has_begun && request.orphan.is_none() {
                request.orphan = Some(orphan());
            }
        }
    }

    /// Whether its time has come, or its emulated device has done something by now.
    pub(crate) fn is_woken(&mut self, now: Time) -> bool {
        let ended = self.ended.len();
        while let Some(token) = self.emulation.as_mut().and_then(|emulation| emulation.complete(now)) {
            self.ended.push((token as u32, Ok(())));
        }
        self.ended.len() > ended || self.wake_at.is_some_and(|wake_at| wake_at <= now)
    }

    /// When it wants to go on although nothing happens.
    pub(crate) fn goes_on_at(&self) -> Option<Time> {
        let emulated = self.emulation.as_ref().and_then(Emulation::next_completion);
        emulated.into_iter().chain(self.wake_at).min()
    }
}
