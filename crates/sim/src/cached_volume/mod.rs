//! A volume with a cache: a fast device before a slow one, as one device model. [`plimsoll_cache::Cache`] decides the
//! content of the cache, block by block; this module models the cost.
//!
//! ```text
//!   request with its class --> a piece for each stretch --> fast device: hits, and writes that are taken in
//!                                                      \--> store: reads that miss, and whatever goes past the cache
//!   a read that missed and was taken in: once the store has answered, its units are written to the fast device
//!   syncer: reads units from the fast device, writes them to the store in the order of the store
//! ```
//!
//! **Pieces.** Blocks of a request that follow each other on the device that they go to are one piece there. The
//! request is done when all its pieces are. Blocks that a read takes in are written to the fast device after that, and
//! no process waits for it.
//!
//! **The syncer** has [`CLEANING_RUNS_MAX`] runs of neighbours under way, each of at most [`CLEANING_RUN_UNITS_MAX`]
//! units. It finds them among the next [`CLEANING_WINDOW`] units that have to leave. Before the store is an
//! [`Elevator`], where its writes meet the host's.
//!
//! **Left out**: what the cache writes of itself, to be found again after a crash (the paper's prototype does not
//! describe any). Another block may get a unit while the write that fills it is under way. No data moves here, and both
//! writes take their time. A write that is not of whole units goes past the cache, unless its block is in the cache.

mod elevator;
mod figures;
mod syncer;

pub use elevator::Elevator;
pub use figures::{CacheFigures, ClassCounts};

use elevator::Writer;
use plimsoll_cache::units::UNIT_BYTES;
use plimsoll_cache::{Access, Cache, CacheConfig, ConfigError, Outcome, PolicyEntry, Pool, UnitId};
use plimsoll_core::{Class, DeviceProfile, Operation, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use syncer::Syncer;

/// Runs that the syncer has under way: the requests that a queue of Linux holds (`nr_requests`). The paper does not
/// say.
pub const CLEANING_RUNS_MAX: usize = 128;
/// Units of one run: 512 KiB, the longest request of a kernel of that time (`max_sectors_kb`).
pub const CLEANING_RUN_UNITS_MAX: usize = 128;
/// Units that the syncer takes at a time, and among which it looks for neighbours. Assumed: 8 MiB.
pub const CLEANING_WINDOW: usize = 2048;

/// A volume with a cache; clones are the same volume.
#[derive(Clone)]
pub struct CachedVolume {
    profile: DeviceProfile,
    inner: Rc<RefCell<CachedVolumeState>>,
}

struct CachedVolumeState {
    cache: Cache,
    figures: CacheFigures,
    syncer: Syncer,
    fast: Box<dyn DeviceModel>,
    store: Elevator,
    /// What each request at a device belongs to, by its token there.
    pieces: Vec<Piece>,
    pieces_free: Vec<u64>,
    parents: Vec<Parent>,
    parents_free: Vec<usize>,
    finished: VecDeque<Finished>,
}

/// A request at one of the devices.
enum Piece {
    Free,
    /// A part of the host's request; when it is done, the fast device is given what was taken into these units.
    Part {
        parent: usize,
        taken: Vec<UnitId>,
    },
    /// No process waits for it.
    Fill,
    /// A part of what the syncer reads for one of its runs.
    CleanRead {
        run: usize,
    },
    /// The run is written to the store.
    CleanWrite {
        run: usize,
    },
}

/// A request of the host with pieces at the devices.
#[derive(Clone, Copy)]
struct Parent {
    token: u64,
    pieces: u32,
}

/// Where a stretch of blocks goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Fast(u32),
    Store,
}

/// One of the two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Fast,
    Store,
}

impl CachedVolume {
    /// A volume as large as `store`, with its cache on `fast`. The profile is the store's: that is what can be
    /// promised.
    ///
    /// # Errors
    /// What of `config` is out of range; more units than the fast device has room for.
    pub fn new(
        config: &CacheConfig,
        policy: &PolicyEntry,
        fast: Box<dyn DeviceModel>,
        store: Box<dyn DeviceModel>,
    ) -> Result<CachedVolume, ConfigError> {
        let units_max = fast.profile().capacity_bytes / UNIT_BYTES;
        if u64::from(config.units) > units_max {
            let (got, allowed) = (config.units.to_string(), format!("1 to {units_max}, what the device has room for"));
            return Err(ConfigError { field: "units", got, allowed });
        }
        let inner = CachedVolumeState {
            cache: Cache::new(config, policy)?,
            figures: CacheFigures::default(),
            syncer: Syncer::default(),
            fast,
            store: Elevator::new(store),
            pieces: Vec::new(),
            pieces_free: Vec::new(),
            parents: Vec::new(),
            parents_free: Vec::new(),
            finished: VecDeque::new(),
        };
        Ok(CachedVolume { profile: inner.store.profile().clone(), inner: Rc::new(RefCell::new(inner)) })
    }

    /// What was counted since the start.
    pub fn figures(&self) -> CacheFigures {
        let inner = self.inner.borrow();
        let mut figures = inner.figures.clone();
        for (number, counts) in figures.classes.iter_mut().enumerate() {
            let class = Class::new(number as u8).expect("as many as there are");
            counts.units = u64::from(inner.cache.class_units(class));
        }
        figures
    }
}

impl DeviceModel for CachedVolume {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.submit_classified(now, request, Class::UNCLASSIFIED);
    }

    fn submit_classified(&mut self, now: Time, request: DeviceRequest, class: Class) {
        let inner = &mut *self.inner.borrow_mut();
        inner.advance(now);
        inner.submit(now, &request, class);
        inner.clean(now);
    }

    fn next_completion(&self) -> Option<Time> {
        let inner = self.inner.borrow();
        match inner.finished.front() {
            Some(finished) => Some(finished.at),
            None => inner.next_of_devices(),
        }
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        let inner = &mut *self.inner.borrow_mut();
        inner.advance(now);
        inner.finished.pop_front()
    }

    fn outstanding(&self) -> usize {
        let inner = self.inner.borrow();
        inner.parents.len() - inner.parents_free.len() + inner.finished.len()
    }
}

impl CachedVolumeState {
    fn next_of_devices(&self) -> Option<Time> {
        [self.fast.next_completion(), self.store.next_completion()].into_iter().flatten().min()
    }

    /// Does what follows from whatever the devices have done by `now`, in the order of time.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.next_of_devices().filter(|&at| at <= now) {
            let is_fast = self.fast.next_completion() == Some(at);
            let done = if is_fast { self.fast.complete(at) } else { self.store.complete(at) };
            // A device made of several may have nothing to give back at a moment that it named.
            if let Some(done) = done {
                self.piece_done(done);
                self.clean(done.at);
            }
        }
    }

    fn piece_done(&mut self, done: Finished) {
        let piece = std::mem::replace(&mut self.pieces[done.token as usize], Piece::Free);
        self.pieces_free.push(done.token);
        match piece {
            Piece::Part { parent, taken } => {
                self.end_part(parent, done.at);
                self.fill(done.at, &taken);
            }
            Piece::Fill => {}
            Piece::CleanRead { run } => self.clean_read_done(run, done.at),
            Piece::CleanWrite { run } => self.clean_write_done(run),
            Piece::Free => unreachable!("a device finishes what it has, once"),
        }
    }

    fn end_part(&mut self, parent: usize, at: Time) {
        let entry = &mut self.parents[parent];
        entry.pieces -= 1;
        if entry.pieces == 0 {
            self.finished.push_back(Finished { token: entry.token, at });
            self.parents_free.push(parent);
        }
    }

    /// Writes what a read has brought to its units, those that follow each other at once.
    fn fill(&mut self, now: Time, taken: &[UnitId]) {
        for run in taken.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.send(now, Side::Fast, Operation::Write, run[0].0.into(), run.len(), Piece::Fill);
        }
    }

    /// Sends `units` units' worth from the unit or block `first` on.
    fn send(&mut self, now: Time, side: Side, operation: Operation, first: u64, units: usize, piece: Piece) {
        let (offset, length) = (first * UNIT_BYTES, (units as u64 * UNIT_BYTES) as u32);
        self.send_bytes(now, side, operation, (offset, length), false, piece);
    }

    fn send_bytes(
        &mut self,
        now: Time,
        side: Side,
        operation: Operation,
        (offset, length): (u64, u32),
        is_forced: bool,
        piece: Piece,
    ) {
        let token = self.pieces_free.pop().unwrap_or_else(|| {
            self.pieces.push(Piece::Free);
            self.pieces.len() as u64 - 1
        });
        let writer = if matches!(piece, Piece::CleanWrite { .. }) { Writer::Syncer } else { Writer::Host };
        self.pieces[token as usize] = piece;
        let request = DeviceRequest { token, operation, offset, length, is_forced };
        match side {
            Side::Fast => self.fast.submit(now, request),
            Side::Store => self.store.submit_for(now, request, writer),
        }
    }

    fn submit(&mut self, now: Time, request: &DeviceRequest, class: Class) {
        let parent = self.parents_free.pop().unwrap_or_else(|| {
            self.parents.push(Parent { token: 0, pieces: 0 });
            self.parents.len() - 1
        });
        self.parents[parent] = Parent { token: request.token, pieces: 0 };
        match request.operation {
            Operation::Read | Operation::Write if request.length > 0 => self.submit_data(now, request, class, parent),
            Operation::Trim | Operation::WriteZeroes if request.length > 0 => {
                self.trim(request);
                self.send_part(now, Side::Store, request, (request.offset, request.length), parent, Vec::new());
            }
            // A flush, or nothing at all: both devices.
            _ => {
                for side in [Side::Fast, Side::Store] {
                    self.send_part(now, side, request, (request.offset, request.length), parent, Vec::new());
                }
            }
        }
    }

    /// What is whole blocks of the store is in the cache no more.
    fn trim(&mut self, request: &DeviceRequest) {
        let end = request.offset + u64::from(request.length);
        (request.offset.div_ceil(UNIT_BYTES)..end / UNIT_BYTES).for_each(|block| self.cache.trim(block));
    }

    fn submit_data(&mut self, now: Time, request: &DeviceRequest, class: Class, parent: usize) {
        let (start, end) = (request.offset, request.offset + u64::from(request.length));
        let is_write = request.operation == Operation::Write;
        let mut stretch: Option<(Place, u64, u64)> = None;
        let mut taken = Vec::new();
        for block in start / UNIT_BYTES..end.div_ceil(UNIT_BYTES) {
            let (from, to) = ((block * UNIT_BYTES).max(start), ((block + 1) * UNIT_BYTES).min(end));
            let is_whole = to - from == UNIT_BYTES;
            let (place, filled) = self.access(block, class, is_write, is_whole);
            let goes_on = stretch.filter(|(last, first, _)| follows(*last, place, block - first / UNIT_BYTES));
            if goes_on.is_none() {
                self.end_stretch(now, request, stretch, parent, std::mem::take(&mut taken));
            }
            stretch = Some(goes_on.map_or((place, from, to), |(place, first, _)| (place, first, to)));
            taken.extend(filled);
        }
        self.end_stretch(now, request, stretch, parent, taken);
    }

    fn end_stretch(
        &mut self,
        now: Time,
        request: &DeviceRequest,
        stretch: Option<(Place, u64, u64)>,
        parent: usize,
        taken: Vec<UnitId>,
    ) {
        let Some((place, from, to)) = stretch else { return };
        let length = (to - from) as u32;
        match place {
            Place::Store => self.send_part(now, Side::Store, request, (from, length), parent, taken),
            Place::Fast(unit) => {
                let offset = u64::from(unit) * UNIT_BYTES + from % UNIT_BYTES;
                self.send_part(now, Side::Fast, request, (offset, length), parent, taken);
            }
        }
    }

    fn send_part(
        &mut self,
        now: Time,
        side: Side,
        request: &DeviceRequest,
        bytes: (u64, u32),
        parent: usize,
        taken: Vec<UnitId>,
    ) {
        self.parents[parent].pieces += 1;
        self.send_bytes(now, side, request.operation, bytes, request.is_forced, Piece::Part { parent, taken });
    }

    /// Where a block is read or written, and the unit that a read fills.
    fn access(&mut self, block: u64, class: Class, is_write: bool, is_whole: bool) -> (Place, Option<UnitId>) {
        if !is_whole && is_write && self.cache.find(block).is_none() {
            self.figures.count(class, is_write, None);
            return (Place::Store, None);
        }
        let outcome = self.cache.access(&Access { block, class, pool: Pool::default(), is_write });
        self.figures.count(class, is_write, Some(outcome));
        match outcome {
            Outcome::Hit(unit) => (Place::Fast(unit.0), None),
            Outcome::Taken(unit) if is_write => (Place::Fast(unit.0), None),
            Outcome::Taken(unit) => (Place::Store, Some(unit)),
            Outcome::Refused | Outcome::Busy | Outcome::Full => (Place::Store, None),
        }
    }

    /// Starts as many runs as may be under way.
    fn clean(&mut self, now: Time) {
        while self.syncer.under_way < CLEANING_RUNS_MAX {
            if self.syncer.waiting.is_empty() {
                let cache = &mut self.cache;
                let jobs = std::iter::from_fn(|| cache.clean_next()).take(CLEANING_WINDOW);
                self.syncer.waiting.extend(jobs);
                self.syncer.waiting.sort_unstable_by_key(|job| std::cmp::Reverse(job.block));
            }
            let Some(run) = self.syncer.next_run() else { break };
            let number = self.syncer.keep(run);
            self.read_run(now, number);
        }
    }

    fn read_run(&mut self, now: Time, number: usize) {
        let units = self.syncer.runs[number].units.clone();
        for stretch in units.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.syncer.runs[number].reads += 1;
            let piece = Piece::CleanRead { run: number };
            self.send(now, Side::Fast, Operation::Read, stretch[0].0.into(), stretch.len(), piece);
        }
    }

    fn clean_read_done(&mut self, number: usize, at: Time) {
        let run = &mut self.syncer.runs[number];
        run.reads -= 1;
        if run.reads == 0 {
            let (first, count) = (run.first_block, run.units.len());
            self.send(at, Side::Store, Operation::Write, first, count, Piece::CleanWrite { run: number });
        }
    }

    fn clean_write_done(&mut self, number: usize) {
        let units = std::mem::take(&mut self.syncer.runs[number].units);
        self.syncer.under_way -= 1;
        self.figures.cleaned += units.len() as u64;
        units.into_iter().for_each(|unit| self.cache.cleaned(unit));
    }
}

/// Whether `place`, which is `blocks` blocks after the stretch's first, goes on where the stretch is.
fn follows(stretch: Place, place: Place, blocks: u64) -> bool {
    match (stretch, place) {
        (Place::Store, Place::Store) => true,
        (Place::Fast(first), Place::Fast(unit)) => u64::from(first) + blocks == u64::from(unit),
        _ => false,
    }
}
