//! The way of a request: from a front end through the scheduler to a backend and back.
//!
//! ```text
//!   submit --cut--> pieces --> scheduler --next--> dispatch --+--> memory: at once
//!                                                             +--> file: an operation on the ring   } a piece waits
//!                                                             +--> device model: a time to wait for } for both
//!   finished <-- the last piece <-- scheduler.request_completed <-- piece_done
//! ```
//!
//! Everything is O(1) for each piece beside what the scheduler and the model do. Nothing is allocated once the tables
//! have grown to the largest number of requests under way.

use super::alarm::Alarm;
use super::block_tags::{BlockTag, tag_piece};
use super::buffer_memory::BufferMemory;
use super::claims::{Claims, Origin};
use super::clock::Clock;
use super::early_reads::EarlyReads;
use super::emulation::Emulation;
use super::held_reads::HeldReads;
use super::meter::Meters;
use super::observed::{Books, ObservedRequests, is_observed};
use super::orphans::Orphans;
use super::request::{Piece, Request, Waits, check};
use super::ring::{Owner, Ring};
use super::seat::{Seat, VolumeSeat};
use super::slab::Slab;
use super::submission::{Finished, Payload, Submission, VolumeBytes};
use super::tap::Tap;
use super::upper_levels::{Below, UpperLevels};
use super::work::Work;
use crate::backend::{Backend, PAGE_BYTES, Progress};
use crate::path::asker::Asker;
use crate::read_ahead_requests::Wishes;
use plimsoll_core::{AccountTree, Completion, Dispatch, Operation, RequestId, Scheduler, Span, Time};
use plimsoll_devices::DeviceRequest;
use rustix::io::Errno;

/// Bytes that this thread copies, zeroes or gives back in a turn, where volumes are in memory, before others are heard,
/// and the piece that reaches it. To copy them to memory that was never written takes less than two milliseconds, and
/// so does the one piece of a trim that is larger (16 MiB). What is in the processor's caches takes a tenth of that.
pub(super) const TURN_BYTES_MAX: u64 = 4 << 20;

/// When a front end tries again that found no memory for a buffer: others, also of other engines, give it back when they like.
const MEMORY_TRY_AGAIN: Span = Span::from_millis(10);

/// All of an engine but its front ends.
pub(crate) struct Core {
    pub(super) ring: Ring,
    pub(super) clock: Clock,
    /// When this turn began.
    pub(super) now: Time,
    pub(super) scheduler: Box<dyn Scheduler>,
    /// System calls and the page cache, where they can be seen.
    pub(super) upper_levels: Option<Box<dyn UpperLevels>>,
    /// When they want to be asked again.
    pub(super) upper_levels_at: Option<Time>,
    /// Their descriptor has become readable.
    pub(super) upper_levels_ready: bool,
    /// Requests of a disk that is not ours, where the levels above see them.
    pub(super) observed: ObservedRequests,
    /// Reads that the scheduler keeps back.
    pub(super) reads: HeldReads,
    /// Reads that go before the scheduler lets them.
    pub(super) early: EarlyReads,
    /// How many schedulers there were before this one.
    pub(super) scheduler_number: u32,
    /// When the scheduler wants to be asked again.
    pub(super) ask_again: Option<Time>,
    /// Bytes that it may still work on in this turn.
    pub(super) bytes_left: u64,
    pub(super) emulation: Option<Emulation>,
    pub(super) tree: AccountTree,
    /// How many sessions there were.
    pub(super) sessions: u64,
    pub(super) meters: Meters,
    /// Whether the device does what was promised on it.
    pub(super) alarm: Alarm,
    pub(super) volumes: Slab<VolumeSeat>,
    pub(super) requests: Slab<Request>,
    pub(super) pieces: Slab<Piece>,
    pub(super) pieces_so_far: u64,
    /// The recorder of what comes and goes.
    pub(super) tap: Option<Tap>,
    /// How many recordings there were.
    pub(super) recordings: u32,
    /// Requests that are done, with their front ends, not yet handed out.
    pub(super) finished: Vec<(u32, Finished)>,
    /// Volumes with caches that may go on.
    pub(super) caches_with_work: Vec<u32>,
    /// Volumes with caches that go by time: their devices are emulated, or they write back by it.
    pub(super) emulated_caches: Vec<u32>,
    /// What the buffers of all connections are taken from.
    pub(super) buffers: BufferMemory,
    /// Front ends that wait until there is memory for a buffer, and when they try again.
    pub(super) wait_for_memory: Vec<u32>,
    pub(super) memory_try_again: Option<Time>,
    /// Writes at backends that no request waits for any more.
    pub(super) orphans: Orphans,
    /// Blocks of which front ends change a part, and what waits for that.
    pub(super) claims: Claims<(Origin, Submission)>,
    /// Service threads, for what takes a processor's time.
    pub(super) work: Work,
    /// What sessions would like to read ahead.
    pub(super) wishes: Wishes,
}

impl Core {
    /// Where the bytes of a volume in memory are.
    pub(super) fn volume_bytes(&self, volume: u32, offset: u64, length: u32) -> Option<VolumeBytes> {
        let seat = &self.volumes[volume];
        match &seat.volume.backend {
            Backend::Memory(_) if seat.cache.is_some() => None,
            Backend::Memory(memory) => Some(memory.bytes(offset, length)),
            Backend::File(_) | Backend::Compressed(_) => None,
        }
    }

    /// Remembers that a front end found no memory for a buffer.
    pub(super) fn wait_for_memory(&mut self, seat: &mut Seat) {
        if !std::mem::replace(&mut seat.waits_for_memory, true) {
            self.wait_for_memory.push(seat.index);
            self.memory_try_again.get_or_insert(self.now + MEMORY_TRY_AGAIN);
        }
    }

    /// Takes a request from the front end at `seat`.
    pub(super) fn submit(&mut self, seat: &Seat, submission: Submission) {
        if let Err(errno) = check(&seat.info, &submission) {
            let Submission { token, operation, length, payload, .. } = submission;
            let finished = Finished { token, operation, length, result: Err(errno), payload };
            self.finished.push((seat.index, finished));
            return;
        }
        let origin = Origin::of(seat);
        if let Some(submission) = self.hold_for_claims(origin, submission) {
            self.submit_checked(origin, submission);
        }
    }

    /// Lets a request go on its way; `reader` is the reader's number if its volume is read ahead.
    pub(super) fn begin(&mut self, index: u32, reader: Option<u32>) {
        match reader {
            Some(reader) => self.submit_to_reader(reader, index),
            None => self.add_pieces(index),
        }
    }

    pub(super) fn add_pieces(&mut self, index: u32) {
        while let Some((start, length_max)) = self.requests[index].uncut() {
            let request = &mut self.requests[index];
            let VolumeSeat { volume, tags, unflushed, .. } = &mut self.volumes[request.volume];
            let volume_start = volume.config().start_bytes;
            let has_tags = matches!(request.operation, Operation::Read | Operation::Write);
            let (tag, length) = match tags.as_deref().filter(|_| has_tags) {
                Some(tags) => {
                    tag_piece(tags, &self.tree, request.operation, request.offset + u64::from(start), length_max)
                }
                None if request.operation == Operation::Flush => (BlockTag::of_flush(unflushed), length_max),
                None => (BlockTag::default(), length_max),
            };
            request.cut(length);
            let piece = Piece::new((index, request), start, length, tag, self.pieces_so_far);
            self.pieces_so_far += 1;
            if start == 0 {
                request.metered = piece.session;
            }
            let number = self.pieces.insert(piece);
            let piece = &mut self.pieces[number];
            let block = piece.block_request(number, request, volume_start);
            if let Some(tap) = &mut self.tap
                && tap.arrived(self.now, request.volume, piece.sequence, &block)
            {
                piece.recording = Some(tap.number);
            }
            self.meters.piece_queued(piece.session);
            if self.is_charged(number) {
                self.begins_to_wait(number);
                self.scheduler.request_added(self.now, block);
            } else {
                self.goes_uncharged(number);
            }
        }
    }

    /// Lets the levels above tell the scheduler what they saw, and act on what it answers.
    pub(super) fn hear_upper_levels(&mut self) {
        if let Some(levels) = &mut self.upper_levels {
            let is_ready = std::mem::take(&mut self.upper_levels_ready);
            let (scheduler, meters) = (&mut *self.scheduler, &mut self.meters);
            let books = Books { scheduler, meters, tap: self.tap.as_mut(), reads: &mut self.reads, tree: &self.tree };
            let (observed, clock) = (&mut self.observed, &self.clock);
            let mut below = Below { now: self.now, clock, observed, books };
            self.upper_levels_at = levels.turn(self.now, is_ready, &mut below);
        }
    }

    /// Gives the devices everything that the scheduler lets go now, or as much of it as this turn has time for.
    pub(super) fn pump(&mut self) {
        self.ask_again = loop {
            if self.bytes_left == 0 {
                // What waits because of that is not held back, and goes in the next turn.
                self.ask_again = Some(self.now);
                return;
            }
            match self.scheduler.next(self.now) {
                Dispatch::Now(block) if is_observed(block.id) => {
                    let (scheduler, meters) = (&mut *self.scheduler, &mut self.meters);
                    let tap = self.tap.as_mut();
                    let mut books = Books { scheduler, meters, tap, reads: &mut self.reads, tree: &self.tree };
                    self.observed.dispatched(self.now, &mut books, block.id);
                }
                Dispatch::Now(block) => self.dispatch(block.id.0 as u32),
                Dispatch::NotBefore(time) => break Some(time),
                Dispatch::Nothing => break None,
            }
        };
        self.let_some_go_early();
    }

    fn dispatch(&mut self, index: u32) {
        let piece = &mut self.pieces[index];
        piece.dispatched_by = Some(self.scheduler_number);
        self.meters.piece_dispatched(piece.session);
        if piece.is_early {
            self.early_is_let_go(index);
        } else {
            self.waits_no_more(index);
            self.send(index);
        }
    }

    /// Gives a piece to the device.
    pub(super) fn send(&mut self, index: u32) {
        let piece = &mut self.pieces[index];
        let request = &self.requests[piece.request];
        piece.dispatched = self.now;
        if request.is_abandoned {
            piece.error = Some(Errno::CANCELED);
            return self.piece_done(index);
        }
        self.send_to_model(index);
        let piece = &mut self.pieces[index];
        let request = &self.requests[piece.request];
        let VolumeSeat { volume, .. } = &mut self.volumes[request.volume];
        let takes_time = match &volume.backend {
            Backend::File(file) => file.cipher.is_some(),
            _ => !matches!(request.payload, Payload::Volume(_)),
        };
        if takes_time {
            self.bytes_left = self.bytes_left.saturating_sub(piece.length.into());
        }
        match &mut volume.backend {
            Backend::Memory(memory) => {
                let offset = request.offset + u64::from(piece.start);
                match (request.operation, request.payload.as_ptr()) {
                    (Operation::Read, Some(target)) if !matches!(request.payload, Payload::Volume(_)) => {
                        // SAFETY: as for a write; the payload is a buffer or a block of the volume's cache.
                        unsafe { memory.read(offset, target.add(piece.start as usize).cast_mut(), piece.length) }
                    }
                    (Operation::Write, Some(source)) => {
                        // SAFETY: `check` found the payload to hold the whole request, of which this is a piece, and a
                        // write's payload is a buffer, never the volume itself.
                        unsafe { memory.write(offset, source.add(piece.start as usize), piece.length) }
                    }
                    (Operation::Trim | Operation::WriteZeroes, _) => memory.zero(offset, piece.length),
                    // Other reads are answered out of the volume; a flush has nothing to do.
                    (Operation::Read | Operation::Flush | Operation::Write, _) => {}
                }
                if !piece.waits.for_model {
                    self.piece_done(index);
                }
            }
            Backend::Compressed(memory) => {
                let offset = request.offset + u64::from(piece.start);
                let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
                match request.operation {
                    Operation::Read | Operation::Write => {
                        let memory = memory.clone();
                        return self.begin_packing(index, memory);
                    }
                    Operation::Trim | Operation::WriteZeroes => {
                        memory.zero(pages(offset), pages(piece.length.into()));
                    }
                    // It has nothing to do.
                    Operation::Flush => {}
                }
                if !piece.waits.for_model {
                    self.piece_done(index);
                }
            }
            Backend::File(file) => {
                piece.step = file.first_step(request.operation, request.is_forced);
                piece.waits.for_backend = true;
                self.begin_step(index);
            }
        }
    }

    /// Lets the model say when a piece is done, where the device is emulated.
    fn send_to_model(&mut self, index: u32) {
        let Some(emulation) = &mut self.emulation else { return };
        let piece = &mut self.pieces[index];
        let request = &self.requests[piece.request];
        let offset = self.volumes[request.volume].volume.config().start_bytes + request.offset + u64::from(piece.start);
        let (token, operation, length, is_forced) =
            (u64::from(index), request.operation, piece.length, request.is_forced);
        emulation.submit(self.now, DeviceRequest { token, operation, offset, length, is_forced });
        piece.waits.for_model = true;
    }

    /// Puts the step of a piece on the ring.
    pub(super) fn push_step(&mut self, index: u32) {
        let piece = &mut self.pieces[index];
        let request = &self.requests[piece.request];
        let Backend::File(file) = &self.volumes[request.volume].volume.backend else {
            unreachable!("only files have steps")
        };
        let start = piece.start + piece.done_bytes;
        let left = piece.left();
        let (data, length) = match (&mut piece.scratch, request.payload.as_ptr()) {
            (Some(scratch), _) => (scratch.as_mut_ptr(), left.min(scratch.capacity() as u32)),
            // SAFETY: `check` found the payload to hold the whole request, of which this is a part.
            (None, Some(data)) => (unsafe { data.add(start as usize).cast_mut() }, left),
            (None, None) => (std::ptr::null_mut(), left),
        };
        let offset = request.offset + u64::from(start);
        let entry = file.entry(piece.step, offset, length, data);
        // SAFETY: the bytes lie in the request's payload, which the request owns until its last piece is done, in the piece's
        // scratch buffer, which it gives back when it is done, or are static; the file is open as long as the volume, which is not removed while a front end is attached.
        unsafe { self.ring.push(entry, Owner::Piece(index)) }
    }

    /// The step of a piece has ended, on the ring or with the service threads. In memory there is one only.
    pub(super) fn step_completed(&mut self, index: u32, result: Result<u32, Errno>) {
        let piece = &mut self.pieces[index];
        let request = &self.requests[piece.request];
        let Backend::File(file) = &mut self.volumes[request.volume].volume.backend else {
            return self.backend_done(index, result.err());
        };
        match file.progress(piece.step, piece.left(), request.is_forced, result) {
            Progress::Next(step, bytes) => {
                piece.step = step;
                piece.done_bytes += bytes;
                self.begin_step(index);
            }
            Progress::Failed(errno) => {
                let offset = request.offset + u64::from(piece.start + piece.done_bytes);
                file.log_failure(self.now, request.operation, offset, errno);
                if piece.step.leaves_doubt(errno) && !request.asker.is_cache() {
                    self.volumes[request.volume].doubts.flush_failed();
                }
                self.backend_done(index, Some(errno));
            }
            Progress::Done => self.backend_done(index, None),
        }
    }

    /// A piece has been read, written or whatever it was, or not.
    pub(super) fn backend_done(&mut self, index: u32, error: Option<Errno>) {
        let piece = &mut self.pieces[index];
        piece.error = error;
        piece.waits.for_backend = false;
        let (scratch, waits_for_model) = (piece.scratch.take(), piece.waits.for_model);
        // Its place may be another one's afterwards.
        let orphan = self.take_orphan(index);
        if !waits_for_model {
            self.piece_done(index);
        }
        if let Some(scratch) = scratch {
            self.give_scratch(scratch);
        }
        if let Some(orphan) = orphan {
            self.orphan_ended(orphan);
        }
    }

    /// Lets go of every piece that the emulated device has done by now.
    pub(super) fn complete_emulated(&mut self) {
        while let Some(token) = self.emulation.as_mut().and_then(|emulation| emulation.complete(self.now)) {
            let index = token as u32;
            let piece = &mut self.pieces[index];
            piece.waits.for_model = false;
            if piece.waits == (Waits { for_backend: false, for_model: false }) {
                self.piece_done(index);
            }
        }
    }

    fn piece_done(&mut self, index: u32) {
        let piece = &mut self.pieces[index];
        let (owner, error) = (piece.request, piece.error);
        piece.service = Some(self.now.since(piece.dispatched));
        if let Some(tap) = &mut self.tap
            && piece.recording == Some(tap.number)
        {
            tap.completed(self.now, piece.sequence);
        }
        let request = &mut self.requests[owner];
        if request.operation == Operation::Write {
            self.volumes[request.volume].unflushed.union_with(&piece.tag.causes);
        }
        if piece.dispatched_by.is_some() {
            self.settle(index);
        }
        let request = &mut self.requests[owner];
        request.pieces -= 1;
        if let Some(errno) = error {
            request.error.get_or_insert(errno);
            request.cut_no_more();
        }
        self.add_pieces(owner);
        if self.requests[owner].pieces == 0 {
            self.request_done(owner);
        }
    }

    /// The scheduler has let a piece go and the device has done it: that is the last of it.
    pub(super) fn settle(&mut self, index: u32) {
        let piece = self.pieces.remove(index).expect("a piece ends once");
        self.meters.piece_completed(piece.session, &piece.tag.causes, piece.runs, piece.length);
        // A scheduler that was switched on after the dispatch never had this piece.
        if piece.dispatched_by == Some(self.scheduler_number) {
            let completion = Completion {
                id: RequestId(u64::from(index)),
                session: piece.session,
                runs: piece.runs,
                service: piece.service.expect("a piece that has ended was done"),
                succeeded: piece.error.is_none(),
            };
            self.scheduler.request_completed(self.now, &completion);
        }
    }

    pub(super) fn request_done(&mut self, index: u32) {
        let request = self.requests.remove(index).expect("a request is done once");
        let Request { asker, operation, offset, length, payload, mut error, .. } = request;
        if operation.is_write()
            && let Some(read_ahead) = &mut self.volumes[request.volume].read_ahead
        {
            // Before any front end hears that it is done.
            read_ahead.changed(offset, length);
        }
        let (front_end, token) = match asker {
            Asker::Cache(_) if request.is_abandoned => return self.dropped_store_request_ended(request.volume, index),
            Asker::Cache(first) => return self.store_request_completed(request.volume, first, length, error),
            Asker::ReadAhead { session, slot } => return self.fetch_done(request.volume, session, slot, error),
            Asker::FrontEnd(front_end, token) => (front_end, token),
        };
        // A forced write that has failed tells its session as much as a flush does.
        let tells = operation == Operation::Flush || (request.is_forced && error.is_some());
        if tells && !request.is_abandoned && self.volumes[request.volume].doubts.tell_failed(request.session) {
            error.get_or_insert(Errno::IO);
        }
        let latency = self.now.since(request.arrived);
        self.meters.request_completed(request.metered, operation, latency, error.is_none());
        let result = error.map_or(Ok(()), Err);
        self.finished.push((front_end, Finished { token, operation, length, result, payload }));
        if operation.is_write() {
            self.change_ended(request.volume, (front_end, token), offset, length);
        }
        self.cache_has_work(request.volume);
    }

    /// When the engine must wake up even if nothing happens.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let emulated = self.emulation.as_ref().and_then(Emulation::next_completion);
        let again = [self.ask_again, self.upper_levels_at, self.work.try_again, self.memory_try_again];
        let caches = [self.emulated_caches_wake_at(), self.timed_caches_wake_at()];
        again.into_iter().chain([emulated]).chain(caches).flatten().min()
    }
}
