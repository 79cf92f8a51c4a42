//! A cache between a volume's requests and its backing.
//!
//! ```text
//!   front end -> submit -> waiting -> cut into blocks -> CacheStore --+--> fast device: an operation on the ring
//!                                                            ^        +--> store: a request of the volume:
//!                                                            |             pieces -> scheduler -> backend, model
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
mod fast_device;
mod lifecycle;
mod on_store;
mod operations;
mod pools;
mod request;
mod shares;
mod submission;
mod waiting;

pub(crate) use administration::Emptied;

use super::block_tags::BlockTags;
use super::doubts::Doubts;
use super::ring::{Owner, Ring};
use super::slab::Slab;
use super::submission::{Finished, Submission};
use crate::cache::{CacheSettings, FoundCache};
use crate::path::ground::Ground;
use crate::path::next::{Next, Orphan};
use crate::path::request::Request;
use crate::path::table::Table;
use fast_device::FastDevice;
use lifecycle::{CommandAnswer, Flushes, Lifecycle};
use operations::Operations;
use plimsoll_cache::store::{Action, BLOCK_BYTES, CacheStore, Operation, Target};
use plimsoll_core::{AccountId, Time};
use pools::BoundedPools;
use request::{CachedRequest, Places};
use rustix::io::Errno;
use shares::Shares;
use std::collections::BTreeMap;
use waiting::{Got, Waiting};

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
    fast: FastDevice,
    /// The session of the syncer's requests.
    session: AccountId,
    lifecycle: Lifecycle,
    flushes: Flushes,
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
    /// Requests of the store that it has given up and the scheduler still has, and for each block the request it was
    /// for.
    dropped: BTreeMap<u32, Vec<u32>>,
    operations: Operations,
    /// It stands among those that have something to do.
    is_listed: bool,
    /// When its machine wants to hear that time has passed.
    wake_at: Option<Time>,
}

impl VolumeCache {
    pub(crate) fn new(found: FoundCache, session: AccountId, doubts: Doubts, begun: CommandAnswer) -> VolumeCache {
        let FoundCache { settings, mut machine, device, emulation, .. } = found;
        machine.set_write_back(settings.write_back(machine.superblock().layout.units));
        let operations = machine.operations_max() as usize;
        VolumeCache {
            pools: BoundedPools::new(&settings),
            settings,
            fast: FastDevice::new(device, emulation),
            session,
            lifecycle: Lifecycle::new(begun),
            flushes: Flushes::default(),
            requests: Slab::with_capacity(operations),
            places: Places::new(crate::cache::DEPTH.requests),
            doubts,
            waiting: Waiting::default(),
            past: Vec::new(),
            looked: Vec::new(),
            shares: Shares::default(),
            done: Vec::with_capacity(operations),
            ended_orphans: Vec::new(),
            dropped: BTreeMap::new(),
            operations: Operations::new(operations),
            is_listed: false,
            wake_at: None,
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
        let changes = self.requests.iter().filter(|(_, request)| request.asked.operation.is_write());
        changes
            .map(|(_, request)| ((request.front_end, request.asked.token), request.asked.offset, request.asked.length))
    }

    /// No request and no command waits for an answer of it.
    fn is_idle(&self) -> bool {
        self.requests.len() == self.waiting.len() && self.operations.is_empty()
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
        let mut ended = std::mem::take(&mut self.operations.ended);
        for (id, result) in ended.drain(..) {
            self.operation_ended(id, result);
            has_moved = true;
        }
        self.operations.ended = ended;
        has_moved |= self.submit_blocks(&around.ground.tree, around.tags);
        let Surroundings { volume, ground, table, ring, .. } = around;
        let volume = *volume;
        for index in self.past.drain(..) {
            let request = self.requests.remove(index).expect("it was not begun");
            ground.then(Next::Add(table.requests.insert(request.uncached(volume))));
        }
        let mut run = None;
        while let Some(operation) = self.machine.next_operation() {
            self.operations.begin(operation);
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
        let data: &mut [u8] = match operation.action {
            Action::Read | Action::Write => self.machine.buffer(operation),
            Action::Flush | Action::Trim => &mut [],
        };
        if let Some(begun) = self.fast.begin_emulated(now, operation, data) {
            if let Err(error) = begun {
                tracing::error!(cache = self.settings.name, action = ?operation.action, %error, "the cache's device failed");
                self.operations.ended.push((operation.id, Err(Errno::IO)));
            }
            return;
        }
        let entry = self.fast.entry(operation, data.as_mut_ptr());
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
        let operation = self.operations.get(id).expect("what ends was begun");
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
        self.operations.ended.push((id, result));
        true
    }

    /// Answers the requests that are done.
    fn finish_done(&mut self, ground: &mut Ground, volume: u32) {
        while let Some(index) = self.done.pop() {
            let request = self.requests.remove(index).expect("a request is done once");
            let CachedRequest { front_end, asked, error, metered, .. } = request;
            let Submission { token, operation, offset, length, payload, .. } = asked;
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
            if !is_meant(request.front_end, request.asked.token) {
                continue;
            }
            request.is_abandoned = true;
            let has_begun = request.asked.operation.is_write() && request.blocks > 0;
            if has_begun && request.orphan.is_none() {
                request.orphan = Some(orphan());
            }
        }
    }

    /// Whether its time has come, or its emulated device has done something by now.
    pub(crate) fn is_woken(&mut self, now: Time) -> bool {
        let ended = &mut self.operations.ended;
        let before = ended.len();
        while let Some(id) = self.fast.complete(now) {
            ended.push((id, Ok(())));
        }
        ended.len() > before || self.wake_at.is_some_and(|wake_at| wake_at <= now)
    }

    /// When it wants to go on although nothing happens.
    pub(crate) fn goes_on_at(&self) -> Option<Time> {
        self.fast.next_completion().into_iter().chain(self.wake_at).min()
    }
}

#[cfg(test)]
impl VolumeCache {
    pub(crate) fn settings_mut(&mut self) -> &mut CacheSettings {
        &mut self.settings
    }

    pub(crate) fn machine_mut(&mut self) -> &mut CacheStore {
        &mut self.machine
    }
}
