//! What is known of each file: what its dirty pages will cost, since when it has any, and its own deadlines.
//!
//! The cost is estimated when pages become dirty, by how scattered they are in the file ([`DirtyModel`]), and goes with
//! them in proportion when they are written or freed.

use crate::cost_model::DirtyModel;
use crate::dirty_ledger::DirtyLedger;
use crate::keyed_slab::KeyedSlab;
use plimsoll_core::{BlockRequest, Deadlines, DeviceProfile, FileId, PageEvent, Span, Time};
use std::collections::VecDeque;

/// Age at which dirty pages are written whether anybody waits or not (Linux, `dirty_expire_centisecs`).
const DIRTY_EXPIRE: Span = Span::from_secs(30);
/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;
const SECOND_NS: f64 = 1e9;

/// A file of which something is dirty, promised or held.
#[derive(Clone, Copy)]
pub(super) struct File {
    /// Its own.
    pub(super) deadlines: Deadlines,
    /// Held fsyncs of it that wait for writeback: the first of a list.
    pub(super) waiting: u32,
    /// What writing its dirty pages costs, in normalised bytes.
    cost: u64,
    /// Since when something of it has been dirty, or when it was last written for its age.
    since: Time,
    /// Whether it stands in the queue by age.
    is_aging: bool,
    /// Slices in a row after which no less was dirty.
    fruitless_slices: u32,
}

const NEW: File = File {
    deadlines: Deadlines { read: None, write: None, fsync: None },
    waiting: NONE,
    cost: 0,
    since: Time::ZERO,
    is_aging: false,
    fruitless_slices: 0,
};

/// After so many slices that wrote nothing, nothing of the file can be dirty: the books are wrong.
const FRUITLESS_SLICES_MAX: u32 = 4;

/// See the module's text.
pub(super) struct Files {
    pub(super) ledger: DirtyLedger,
    files: KeyedSlab<FileId, File>,
    model: DirtyModel,
    nanoseconds_per_byte: f64,
    /// Files by since when they are dirty, as it was when they came into the queue.
    by_age: VecDeque<(Time, FileId)>,
    /// The first of them has its turn: bytes that must be written before it is young again.
    round_bytes: Option<u64>,
    total_cost: u64,
}

impl Files {
    pub(super) fn new(device: &DeviceProfile) -> Files {
        Files {
            ledger: DirtyLedger::default(),
            files: KeyedSlab::default(),
            model: DirtyModel::new(device),
            nanoseconds_per_byte: SECOND_NS / device.sequential_bytes_per_second.max(1.0),
            by_age: VecDeque::new(),
            round_bytes: None,
            total_cost: 0,
        }
    }

    fn time(&self, cost: u64) -> Span {
        Span::from_nanos((cost as f64 * self.nanoseconds_per_byte) as u64)
    }

    /// What the device will take for everything that is dirty.
    pub(super) fn total_time(&self) -> Span {
        self.time(self.total_cost)
    }

    /// What the device will take for a file's dirty pages.
    pub(super) fn time_of(&self, file: FileId) -> Span {
        self.files.find(file).map_or(Span::ZERO, |place| self.time(self.files.get(place).cost))
    }

    pub(super) fn deadlines_of(&self, file: FileId) -> Deadlines {
        self.files.find(file).map_or(NEW.deadlines, |place| self.files.get(place).deadlines)
    }

    /// The first held fsync of a file that waits for writeback.
    pub(super) fn waiting(&self, file: FileId) -> u32 {
        self.files.find(file).map_or(NONE, |place| self.files.get(place).waiting)
    }

    /// Changes what is kept of a file.
    pub(super) fn change<T>(&mut self, file: FileId, change: impl FnOnce(&mut File) -> T) -> T {
        let place = self.files.find(file).unwrap_or_else(|| self.files.insert(file, NEW));
        let changed = self.files.get_mut(place);
        let answer = change(changed);
        let is_needed = changed.deadlines != NEW.deadlines || changed.waiting != NONE || changed.is_aging;
        if !is_needed {
            self.files.remove(place);
        }
        answer
    }

    pub(super) fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        self.ledger.pages_dirtied(event);
        if !event.previous.is_empty() {
            return;
        }
        let cost = self.model.charge(event.file, event.offset, event.length);
        self.total_cost += cost;
        let is_new = self.change(event.file, |file| {
            if file.cost == 0 {
                file.since = now;
            }
            file.cost += cost;
            !std::mem::replace(&mut file.is_aging, true)
        });
        if is_new {
            self.by_age.push_back((now, event.file));
        }
    }

    pub(super) fn pages_freed(&mut self, event: &PageEvent) {
        let before = self.ledger.file_bytes(event.file);
        self.ledger.pages_freed(event);
        self.written(event.file, before);
    }

    pub(super) fn request_added(&mut self, request: &BlockRequest) {
        let Some(file) = request.file else { return };
        let before = self.ledger.file_bytes(file);
        self.ledger.request_added(request);
        self.written(file, before);
    }

    /// A file's dirty bytes, which were `before`, have become fewer.
    fn written(&mut self, file: FileId, before: u64) {
        let after = self.ledger.file_bytes(file);
        if after == before {
            return;
        }
        if self.by_age.front().is_some_and(|&(_, first)| first == file) {
            self.round_bytes = self.round_bytes.map(|left| left.saturating_sub(before - after));
        }
        let part = after as f64 / before as f64;
        let gone = self.change(file, |file| {
            let cost = if after == 0 { 0 } else { (file.cost as f64 * part) as u64 };
            file.fruitless_slices = 0;
            std::mem::replace(&mut file.cost, cost) - cost
        });
        self.total_cost -= gone;
    }

    /// The bytes that can be written of a file in so long, at least a page, and what they take.
    pub(super) fn slice(&mut self, file: FileId, time: Span, page_bytes: u64) -> (u64, Span) {
        let (bytes, whole) = (self.ledger.file_bytes(file), self.time_of(file));
        let part = (time.as_nanos() as f64 / whole.as_nanos().max(1) as f64).min(1.0);
        let pages = ((bytes as f64 * part) as u64 / page_bytes).max(1);
        let takes = whole.as_nanos() as f64 * ((pages * page_bytes) as f64 / bytes.max(1) as f64);
        (pages * page_bytes, Span::from_nanos(takes as u64))
    }

    /// A slice of a file was asked for. If several in a row have written nothing, it is struck out.
    pub(super) fn slice_begun(&mut self, file: FileId) {
        let is_wrong = self.change(file, |file| {
            file.fruitless_slices += 1;
            file.fruitless_slices > FRUITLESS_SLICES_MAX
        });
        if is_wrong {
            let before = self.ledger.file_bytes(file);
            self.ledger.forget(file);
            self.written(file, before);
        }
    }

    /// The file that is dirty for too long, or, if any will do, the one that is dirty for longest. Once it has its turn, all
    /// is written that was dirty when that began. O(1) amortised.
    pub(super) fn oldest(&mut self, now: Time, any_will_do: bool) -> Option<FileId> {
        for _ in 0..=self.by_age.len() {
            let (queued_since, file) = *self.by_age.front()?;
            let (since, bytes) = (self.change(file, |file| file.since), self.ledger.file_bytes(file));
            match self.round_bytes {
                Some(1..) if bytes > 0 => return Some(file),
                None if bytes > 0 && since == queued_since => {
                    let is_its_turn = any_will_do || since + DIRTY_EXPIRE <= now;
                    self.round_bytes = is_its_turn.then_some(bytes);
                    return is_its_turn.then_some(file);
                }
                // It was clean in between.
                None if bytes > 0 => self.requeue(file, Some(since)),
                _ => self.requeue(file, (bytes > 0).then_some(now)),
            }
        }
        None
    }

    /// Puts the first by age behind the others, or takes it out.
    fn requeue(&mut self, file: FileId, since: Option<Time>) {
        self.round_bytes = None;
        self.by_age.pop_front();
        self.by_age.extend(since.map(|since| (since, file)));
        self.change(file, |file| {
            file.is_aging = since.is_some();
            file.since = since.unwrap_or(file.since);
        });
    }

    /// When the first file will have been dirty for too long, or has to be looked at.
    pub(super) fn due_at(&self) -> Option<Time> {
        self.by_age.front().map(|&(since, _)| since + DIRTY_EXPIRE)
    }
}
