//! The conductor: asks one stage after the other for the next step of a request.
//!
//! ```text
//!   submit -> claims -> cache, or orphans; then does what Begin does
//!   Begin -> reading ahead, or does what Add does
//!   PieceDone -> table, gate; then does what Add does, and at the last piece what RequestDone does
//!   RequestDone -> the asker: a front end's answer, the cache, reading ahead
//!   Add -> table.cut -> gate.add            Send -> device -> PieceDone
//!   pump: gate.next -> Send                 OrphanEnded -> Begin    ChangeEnded -> claims    CacheMoved -> caches
//! ```
//!
//! Everything is O(1) for each piece beside what the scheduler and the model do. Nothing is allocated once the tables
//! have grown to the largest number of requests under way.

mod administration;
mod caches;

use super::ahead::{Ahead, AheadOf};
use super::asker::Asker;
use super::caches::Caches;
use super::claims::{Claims, Origin, stretch};
use super::device::{Device, Site};
use super::gate::Gate;
use super::ground::Ground;
use super::levels::Levels;
use super::memory::Memory;
use super::next::Next;
use super::orphans::Orphans;
use super::request::{Request, check};
use super::table::Table;
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::emulation::Emulation;
use crate::error::EngineError;
use crate::observed::is_observed;
use crate::ring::Ring;
use crate::seat::{Seat, VolumeSeat};
use crate::slab::Slab;
use crate::submission::{Finished, Submission, VolumeBytes};
use crate::volume_cache::Surroundings;
use crate::work::Work;
use plimsoll_core::{AccountTree, Operation, Time};
use rustix::io::Errno;

/// Requests and pieces that fit before the tables grow.
pub(crate) const REQUESTS_EXPECTED: usize = 1024;

/// All of an engine but its front ends.
pub(crate) struct Conductor {
    pub(crate) ring: Ring,
    pub(crate) clock: Clock,
    pub(crate) ground: Ground,
    pub(crate) volumes: Slab<VolumeSeat>,
    pub(crate) table: Table,
    gate: Gate,
    levels: Levels,
    device: Device,
    claims: Claims<(Origin, Submission)>,
    orphans: Orphans,
    pub(crate) ahead: Ahead,
    pub(crate) caches: Caches,
    pub(crate) memory: Memory,
    /// Whether the device does what was promised on it.
    alarm: Alarm,
    /// How many sessions there were.
    sessions: u64,
    /// How many recordings there were.
    recordings: u32,
}

impl Conductor {
    /// A device without volumes.
    ///
    /// # Errors
    /// There is no such scheduler, or the system has no ring or eventfd for it.
    pub(crate) fn new(config: EngineConfig) -> Result<Conductor, EngineError> {
        let EngineConfig { profile, scheduler, model, lateness_bound, executor, buffers, .. } = config;
        let clock = Clock::start();
        let now = clock.now();
        let tree = AccountTree::new(profile);
        Ok(Conductor {
            ring: Ring::new().map_err(|source| EngineError::Ring { source })?,
            clock,
            gate: Gate::new(administration::build_scheduler(&scheduler, &tree, now)?),
            ground: Ground::new(now, tree, REQUESTS_EXPECTED),
            volumes: Slab::with_capacity(0),
            table: Table::with_capacity(REQUESTS_EXPECTED),
            levels: Levels::default(),
            device: Device::new(model.map(|model| Emulation::new(model, lateness_bound)), Work::new(executor)?),
            claims: Claims::default(),
            orphans: Orphans::default(),
            ahead: Ahead::default(),
            caches: Caches::default(),
            memory: Memory::new(buffers),
            alarm: Alarm::new(now),
            sessions: 0,
            recordings: 0,
        })
    }

    /// Does what is to be done next, until nothing is. Most submissions leave nothing.
    #[inline]
    fn run(&mut self) {
        if !self.ground.has_no_step() {
            self.run_steps();
        }
    }

    fn run_steps(&mut self) {
        while let Some(next) = self.ground.take_next() {
            match next {
                Next::Begin { request, reader } => self.begin(request, reader),
                Next::Add(request) => self.add(request),
                Next::Send(piece) => self.with_device(|device, site| device.send(site, piece)),
                Next::PieceDone(piece) => self.piece_done(piece),
                Next::RequestDone(request) => self.request_done(request),
                Next::OrphanEnded(orphan) => self.orphans.orphan_ended(&mut self.ground, orphan),
                Next::ChangeEnded { volume, owner, offset, length } => {
                    self.claims.answered(&mut self.ground, owner, stretch(volume, offset, length.into()));
                }
                Next::CacheMoved(volume) => self.caches.moved(volume),
            }
        }
    }

    fn with_device<T>(&mut self, call: impl FnOnce(&mut Device, &mut Site<'_>) -> T) -> T {
        let Conductor { ground, table, volumes, ring, device, .. } = self;
        call(device, &mut Site { ground, table, volumes, ring })
    }

    /// Where the bytes of a volume in memory are.
    pub(crate) fn volume_bytes(&self, volume: u32, offset: u64, length: u32) -> Option<VolumeBytes> {
        let bytes = self.volumes[volume].volume.bytes_in_memory(offset, length);
        bytes.filter(|_| !self.caches.has(volume))
    }

    /// Takes a request from the front end at `seat`.
    pub(crate) fn submit(&mut self, seat: &Seat, submission: Submission) {
        if let Err(errno) = check(&seat.info, &submission) {
            let Submission { token, operation, length, payload, .. } = submission;
            let finished = Finished { token, operation, length, result: Err(errno), payload };
            self.ground.answers.push((seat.index, finished));
            return;
        }
        let origin = Origin::of(seat);
        if let Some(submission) = self.claims.hold_change(origin, submission) {
            self.submit_checked(origin, submission);
            self.run();
        }
    }

    /// Lets a submission that is in order on its way.
    fn submit_checked(&mut self, origin: Origin, submission: Submission) {
        let Origin { front_end, volume, session, reader } = origin;
        let Conductor { ground, table, caches, orphans, .. } = self;
        if caches.has(volume) {
            return caches.submit(ground.now, volume, (front_end, session), submission);
        }
        let asker = Asker::FrontEnd(front_end, submission.token);
        let request = table.requests.insert(Request::new(asker, volume, session, submission, ground.now));
        if !orphans.hold_request(table, request, reader) {
            self.begin(request, reader);
        }
    }

    /// Starts a request. `reader` is its session's reader, if its volume is read ahead.
    fn begin(&mut self, request: u32, reader: Option<u32>) {
        match reader {
            Some(reader) => self.read(request, reader),
            None => self.add(request),
        }
    }

    /// Starts a request of a session of a volume that is read ahead.
    fn read(&mut self, request: u32, reader: u32) {
        let Conductor { ground, table, ahead, volumes, caches, levels, .. } = self;
        let volume = table.requests[request].volume;
        let of = ahead_of(volumes, caches, levels, volume).expect("a volume is there as long as its requests");
        ahead.read(ground, table, of, reader, request);
    }

    /// Cuts as much of a request as may be under way.
    fn add(&mut self, request: u32) {
        let Conductor { ground, table, volumes, gate, .. } = self;
        let seat = &mut volumes[table.requests[request].volume];
        while !table.requests[request].is_cut()
            && let Some(piece) = table.cut(ground, seat, request)
        {
            gate.add(ground, table, piece, seat.volume.config().start_bytes);
        }
    }

    fn piece_done(&mut self, index: u32) {
        let Conductor { ground, table, volumes, gate, .. } = self;
        let (request, error) = (table.pieces[index].request, table.pieces[index].error);
        table.device_done(ground, &mut volumes[table.requests[request].volume], index);
        gate.done(ground, table, index);
        table.piece_ended(request, error);
        if !table.requests[request].is_cut() {
            self.add(request);
        }
        if self.table.requests[request].pieces == 0 {
            self.request_done(request);
        }
    }

    fn request_done(&mut self, index: u32) {
        let Conductor { ground, table, ahead, caches, .. } = self;
        let request = table.requests.remove(index).expect("a request is done once");
        // Before any front end hears that it is done.
        ahead.change_done(&request);
        let Request { asker, volume, error, .. } = request;
        match asker {
            Asker::Cache(_) if request.is_abandoned => caches.dropped_ended(volume, index),
            Asker::Cache(first) => caches.store_done(ground, table, volume, (first, request.asked.length), error),
            Asker::ReadAhead { session, slot } => ahead.fetched(ground, table, volume, (session, slot), error),
            Asker::FrontEnd(front_end, token) => {
                self.answer((front_end, token), request);
                self.caches.moved(volume);
            }
        }
    }

    /// Answers a request of a front end.
    fn answer(&mut self, (front_end, token): (u32, u64), request: Request) {
        let Request { volume, asked, mut error, .. } = request;
        let Submission { operation, offset, length, is_forced, payload, .. } = asked;
        // A forced write that has failed tells its session as much as a flush does.
        let tells = operation == Operation::Flush || (is_forced && error.is_some());
        if tells && !request.is_abandoned && self.volumes[volume].doubts.tell_failed(request.session) {
            error.get_or_insert(Errno::IO);
        }
        let ground = &mut self.ground;
        let latency = ground.now.since(request.arrived);
        ground.meters.request_completed(request.metered, operation, latency, error.is_none());
        let result = error.map_or(Ok(()), Err);
        ground.answers.push((front_end, Finished { token, operation, length, result, payload }));
        if operation.is_write() {
            self.claims.answered(ground, (front_end, token), stretch(volume, offset, length.into()));
        }
    }

    /// The front end at `seat` asks to change a part of these blocks, in requests that it calls `token`. It hears of
    /// `token` when it has them. O(requests under way).
    pub(crate) fn claim(&mut self, seat: &Seat, token: u64, offset: u64, length: u64) {
        let Conductor { ground, table, caches, claims, .. } = self;
        let changes = table.requests.iter().filter(|(_, request)| request.asked.operation.is_write());
        let changes = changes.filter_map(|(_, request)| {
            let bytes = stretch(request.volume, request.asked.offset, request.asked.length.into());
            Some((request.asker.front_end()?, bytes))
        });
        let cached = caches.get(seat.volume).into_iter().flat_map(|cache| cache.changes());
        let cached = cached.map(|(owner, offset, length)| (owner, stretch(seat.volume, offset, length.into())));
        claims.claim_for(ground, (seat.index, token), stretch(seat.volume, offset, length), changes.chain(cached));
    }

    /// The front end at `seat` has finished or given up the change that it calls `token`.
    pub(crate) fn give_back_claim(&mut self, seat: &Seat, token: u64) {
        for (origin, submission) in self.claims.give_back_claim(&mut self.ground, (seat.index, token)) {
            self.submit_checked(origin, submission);
        }
        self.run();
    }

    /// Marks requests as abandoned, by their front end and its name for them. O(requests and pieces under way).
    pub(crate) fn abandon(&mut self, is_meant: impl Fn(u32, u64) -> bool) {
        let Conductor { ground, table, ahead, orphans, .. } = self;
        orphans.abandon(table, &is_meant);
        for request in orphans.drop_abandoned(table) {
            ahead.begin_change(&table.requests[request]);
            ground.then(Next::RequestDone(request));
        }
        self.run();
        self.claims.drop_abandoned(&mut self.ground, &is_meant);
        self.caches.abandon(&mut self.table, &mut self.orphans, is_meant);
    }

    /// The same for what is read ahead for a front end.
    pub(crate) fn abandon_fetches(&mut self, front_end: u32) {
        self.ahead.give_up_fetches_for(&mut self.table, front_end);
    }

    /// Tells the front end at `seat` when requests that are abandoned now change its volume no more. It hears of that
    /// as of a request called `token`.
    pub(crate) fn wait_for_abandoned(&mut self, seat: &Seat, token: u64) {
        self.orphans.wait_for_abandoned(&mut self.ground, seat.volume, (seat.index, token));
    }

    /// Lets the levels above report events to the scheduler and act on its answers.
    pub(crate) fn hear_upper_levels(&mut self) {
        let Conductor { ground, clock, levels, gate, .. } = self;
        levels.hear(ground, clock, gate.scheduler_mut());
    }

    /// The levels above have something to say, in this turn.
    pub(crate) fn upper_levels_are_ready(&mut self, is_still_watched: bool) {
        self.levels.are_ready(&mut self.ring, is_still_watched);
    }

    /// Tells the levels above which accounts have reads that wait, if there are any levels.
    pub(crate) fn tell_of_reads(&mut self) {
        self.levels.tell_of_reads(&self.ground);
    }

    /// Sends all pieces that the scheduler lets go now, as far as this turn has time.
    pub(crate) fn pump(&mut self) {
        loop {
            let Conductor { ground, table, gate, levels, .. } = self;
            if ground.bytes_left == 0 {
                // What waits because of that is not held back, and goes in the next turn.
                gate.ask_again = Some(ground.now);
                return;
            }
            match gate.next(ground.now) {
                Some(id) if is_observed(id) => levels.dispatched(ground, gate.scheduler_mut(), id),
                Some(id) => gate.dispatched(ground, table, id.0 as u32),
                None => break,
            }
            self.run();
        }
        while self.gate.let_some_go_early(&mut self.ground, &mut self.table, self.levels.are_there()) {
            self.run();
        }
    }

    /// Begins one fetch without a waiting read, if no read waits for the device. Says whether it did.
    pub(crate) fn read_ahead(&mut self) -> bool {
        let Conductor { ground, table, ahead, volumes, caches, levels, gate, .. } = self;
        // What waits although the scheduler has named a time is held back by a rule, and not for the device.
        let is_held_back = gate.ask_again.is_some() && ground.bytes_left > 0;
        let has_begun =
            ahead.fetch_one(ground, table, is_held_back, |volume| ahead_of(volumes, caches, levels, volume));
        self.run();
        has_begun
    }

    /// The step of a piece has ended on the ring.
    pub(crate) fn step_completed(&mut self, piece: u32, result: Result<u32, Errno>) {
        self.with_device(|device, site| device.step_completed(site, piece, result));
        self.run();
    }

    /// Service threads have done something.
    pub(crate) fn hear_of_work(&mut self, is_still_watched: bool) {
        self.with_device(|device, site| device.hear_of_work(site, is_still_watched));
        self.run();
    }

    /// Tries again what the executor had no room for.
    pub(crate) fn try_work_again(&mut self) {
        self.with_device(|device, site| device.try_work_again(site));
    }

    /// Completes pieces that the emulated device has done by now, and resumes caches that wait for that time.
    pub(crate) fn complete_emulated(&mut self) {
        self.device.complete_emulated(&mut self.ground, &mut self.table);
        self.run();
        self.caches.wake(self.ground.now);
    }

    /// The ring has done an operation on the fast device of a volume's cache.
    pub(crate) fn cache_operation_completed(&mut self, volume: u32, id: u32, result: Result<u32, Errno>) {
        self.caches.operation_completed(&mut self.ring, (volume, self.ground.now), id, result);
    }

    /// Lets every cache go on that can.
    pub(crate) fn drive_caches(&mut self) {
        while let Some(volume) = self.caches.next_with_work() {
            let Conductor { ground, table, ring, volumes, caches, .. } = self;
            if let Some(VolumeSeat { volume: of_seat, tags, .. }) = volumes.get(volume) {
                let around = Surroundings { volume, ground, table, ring, tags: tags.as_deref() };
                caches.drive(around, &of_seat.config().name);
            }
            self.run();
        }
    }

    /// When the engine must wake up even if nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let again = [self.gate.ask_again, self.levels.ask_again, self.memory.try_again(), self.caches.wake_at()];
        again.into_iter().chain(self.device.wake_at()).flatten().min()
    }
}

/// A volume as reading ahead sees it.
fn ahead_of<'engine>(
    volumes: &'engine Slab<VolumeSeat>,
    caches: &Caches,
    levels: &Levels,
    number: u32,
) -> Option<AheadOf<'engine>> {
    let VolumeSeat { volume, tags, .. } = volumes.get(number)?;
    let (has_cache, has_causes) = (caches.has(number), tags.is_some() && levels.are_there());
    Some(AheadOf { number, volume, has_cache, has_causes })
}
