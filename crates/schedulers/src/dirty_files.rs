//! What writing each file's dirty pages will cost, and which file has been dirty for longest.
//!
//! **Intuition.** An fsync takes as long as the writes of its file's dirty pages. Pages that no call syncs must be
//! written all the same before they are old. **Rule.** The cost is estimated when pages become dirty, by how scattered
//! they are in the file ([`DirtyModel`]). It decreases in proportion when they are written or freed. Files stand in a
//! queue by the time at which they became dirty. The first has its turn until all its pages from that turn's beginning
//! are written, and then goes to the end. **Complication.** The host may know of fewer dirty pages than the books do. A
//! file is struck out after several slices in a row that write nothing.
//!
//! O(causes) an event ([`DirtyLedger`]), O(1) amortised for the oldest; nothing is allocated once warm.

use crate::cost_model::DirtyModel;
use crate::dirty_ledger::DirtyLedger;
use crate::keyed_slab::KeyedSlab;
use plimsoll_core::{BlockRequest, DeviceProfile, FileId, PageEvent, Span, Time};
use std::collections::VecDeque;

/// Age at which dirty pages are written whether a call waits for them or not (Linux, `dirty_expire_centisecs`).
const DIRTY_EXPIRE: Span = Span::from_secs(30);
/// Fruitless slices after which nothing of the file can be dirty: the books are wrong.
const FRUITLESS_SLICES_MAX: u32 = 4;
/// Bytes of a page (x86-64).
const PAGE_BYTES: u64 = 4096;
const SECOND_NS: f64 = 1e9;

/// A file in the queue by age.
#[derive(Clone, Copy)]
struct File {
    /// What writing its dirty pages costs, in normalised bytes.
    cost: u64,
    /// Since when something of it has been dirty, or when it was last written for its age.
    since: Time,
    /// Slices in a row after which no less was dirty.
    fruitless_slices: u32,
}

/// See the module's text.
pub struct DirtyFiles {
    ledger: DirtyLedger,
    files: KeyedSlab<FileId, File>,
    model: DirtyModel,
    nanoseconds_per_byte: f64,
    /// Files by since when they are dirty, as it was when they came into the queue.
    by_age: VecDeque<(Time, FileId)>,
    /// The first of them has its turn: bytes that must be written before it is young again.
    round_bytes: Option<u64>,
    total_cost: u64,
}

impl DirtyFiles {
    /// Of a host with nothing dirty, on this device.
    pub fn new(device: &DeviceProfile) -> DirtyFiles {
        DirtyFiles {
            ledger: DirtyLedger::default(),
            files: KeyedSlab::default(),
            model: DirtyModel::new(device),
            nanoseconds_per_byte: SECOND_NS / device.sequential_bytes_per_second.max(1.0),
            by_age: VecDeque::new(),
            round_bytes: None,
            total_cost: 0,
        }
    }

    /// How much is dirty, and which accounts dirtied it.
    pub fn ledger(&self) -> &DirtyLedger {
        &self.ledger
    }

    /// What the device will take for everything that is dirty.
    pub fn total_time(&self) -> Span {
        self.time(self.total_cost)
    }

    /// What the device will take for a file's dirty pages.
    pub fn time_of(&self, file: FileId) -> Span {
        self.files.find(file).map_or(Span::ZERO, |place| self.time(self.files.get(place).cost))
    }

    fn time(&self, cost: u64) -> Span {
        Span::from_nanos((cost as f64 * self.nanoseconds_per_byte) as u64)
    }

    /// Pages became dirty, or were dirtied again, which costs nothing more.
    pub fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        self.ledger.pages_dirtied(event);
        if !event.previous.is_empty() {
            return;
        }
        let cost = self.model.charge(event.file, event.offset, event.length);
        self.total_cost += cost;
        let place = self.files.find(event.file).unwrap_or_else(|| {
            self.by_age.push_back((now, event.file));
            self.files.insert(event.file, File { cost: 0, since: now, fruitless_slices: 0 })
        });
        let file = self.files.get_mut(place);
        if file.cost == 0 {
            file.since = now;
        }
        file.cost += cost;
    }

    /// Dirty pages were deleted.
    pub fn pages_freed(&mut self, event: &PageEvent) {
        let before = self.ledger.file_bytes(event.file);
        self.ledger.pages_freed(event);
        self.written(event.file, before);
    }

    /// A request arrived: what it writes of a file is dirty no more.
    pub fn request_added(&mut self, request: &BlockRequest) {
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
        let Some(place) = self.files.find(file) else { return };
        let file = self.files.get_mut(place);
        let part = after as f64 / before as f64;
        let cost = if after == 0 { 0 } else { (file.cost as f64 * part) as u64 };
        self.total_cost -= file.cost - cost;
        (file.cost, file.fruitless_slices) = (cost, 0);
    }

    /// Bytes of a file that can be written in `time`, at least a page, and the time for them.
    pub fn slice(&self, file: FileId, time: Span) -> (u64, Span) {
        let (bytes, whole) = (self.ledger.file_bytes(file), self.time_of(file));
        let part = (time.as_nanos() as f64 / whole.as_nanos().max(1) as f64).min(1.0);
        let pages = ((bytes as f64 * part) as u64 / PAGE_BYTES).max(1);
        let takes = whole.as_nanos() as f64 * ((pages * PAGE_BYTES) as f64 / bytes.max(1) as f64);
        (pages * PAGE_BYTES, Span::from_nanos(takes as u64))
    }

    /// A slice of a file was asked for. If several in a row have written nothing, it is struck out.
    pub fn slice_begun(&mut self, file: FileId) {
        let Some(place) = self.files.find(file) else { return };
        let slices = &mut self.files.get_mut(place).fruitless_slices;
        *slices += 1;
        if *slices > FRUITLESS_SLICES_MAX {
            let before = self.ledger.file_bytes(file);
            self.ledger.forget(file);
            self.written(file, before);
        }
    }

    /// A file that is dirty for too long, or, if `any_will_do`, the one that is dirty for longest.
    pub fn oldest(&mut self, now: Time, any_will_do: bool) -> Option<FileId> {
        for _ in 0..=self.by_age.len() {
            let (queued_since, file) = *self.by_age.front()?;
            let place = self.files.find(file)?;
            let (since, bytes) = (self.files.get(place).since, self.ledger.file_bytes(file));
            match self.round_bytes {
                Some(1..) if bytes > 0 => return Some(file),
                None if bytes > 0 && since == queued_since => {
                    let is_its_turn = any_will_do || since + DIRTY_EXPIRE <= now;
                    self.round_bytes = is_its_turn.then_some(bytes);
                    return is_its_turn.then_some(file);
                }
                // It was clean in between.
                None if bytes > 0 => self.requeue(place, since),
                _ if bytes > 0 => self.requeue(place, now),
                _ => {
                    self.round_bytes = None;
                    self.by_age.pop_front();
                    self.files.remove(place);
                }
            }
        }
        None
    }

    /// Puts the first by age behind the others.
    fn requeue(&mut self, place: u32, since: Time) {
        self.round_bytes = None;
        self.by_age.pop_front();
        self.by_age.push_back((since, self.files.key(place)));
        self.files.get_mut(place).since = since;
    }

    /// When the first file will have been dirty for too long, or has to be looked at.
    pub fn due_at(&self) -> Option<Time> {
        self.by_age.front().map(|&(since, _)| since + DIRTY_EXPIRE)
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and what each turned red:
    //! - freed pages keep their cost: `costs_go_with_the_pages`
    //! - the cost is halved whatever part is written: `costs_go_with_the_pages`
    //! - a file that was clean in between keeps its old age: `only_old_files_have_a_turn`
    //! - a turn never ends while something is dirty: `a_turn_ends_with_what_was_dirty_when_it_began`

    use super::*;
    use crate::testing::disk;
    use plimsoll_core::{AccountId, CauseSet, Operation, RequestId};
    use proptest::prelude::*;

    const FILES: u64 = 3;
    const ME: AccountId = AccountId(1);

    fn files() -> DirtyFiles {
        DirtyFiles::new(&disk(1))
    }

    fn event(file: u64, page: u64, previous: CauseSet) -> PageEvent {
        let (offset, length) = (page * PAGE_BYTES, PAGE_BYTES);
        PageEvent { file: FileId(file), offset, length, causes: CauseSet::of(ME), previous }
    }

    fn dirty(files: &mut DirtyFiles, now: Time, file: u64, page: u64) {
        files.pages_dirtied(now, &event(file, page, CauseSet::EMPTY));
    }

    fn write(files: &mut DirtyFiles, file: u64, pages: u64) {
        let bytes = (pages * PAGE_BYTES) as u32;
        let request = BlockRequest::new(RequestId(0), ME, Operation::Write, 0, bytes, Time::ZERO);
        files.request_added(&BlockRequest { file: Some(FileId(file)), causes: CauseSet::of(ME), ..request });
    }

    /// A step: of which file, what (dirty, write, free, ask), at which page or how many.
    fn steps() -> impl Strategy<Value = Vec<(u64, u8, u64)>> {
        proptest::collection::vec((0..FILES, 0..6u8, 1..100u64), 0..150)
    }

    proptest! {
        #[test]
        fn costs_go_with_the_pages(steps in steps()) {
            let (mut files, mut model) = (files(), files().model);
            let mut obvious = [(0u64, 0.0); FILES as usize];
            for (number, (file, what, page)) in steps.into_iter().enumerate() {
                let (pages, cost) = &mut obvious[file as usize];
                match what {
                    0..3 => {
                        dirty(&mut files, Time::ZERO, file, page * 7919);
                        *pages += 1;
                        *cost += model.charge(FileId(file), page * 7919 * PAGE_BYTES, PAGE_BYTES) as f64;
                    }
                    _ => {
                        let taken = if what == 3 { 1.min(*pages) } else { page.min(*pages) };
                        match what {
                            3 => files.pages_freed(&event(file, page, CauseSet::of(ME))),
                            _ => write(&mut files, file, page),
                        }
                        *cost *= if *pages == taken { 0.0 } else { 1.0 - taken as f64 / *pages as f64 };
                        *pages -= taken;
                    }
                }
                let mut sum = 0.0;
                for (file, (pages, cost)) in obvious.iter().enumerate() {
                    prop_assert_eq!(files.ledger().file_bytes(FileId(file as u64)), pages * PAGE_BYTES);
                    // A byte at 100 MB/s takes 10 ns, and each step may lose one by rounding.
                    let time = files.time_of(FileId(file as u64)).as_nanos() as f64;
                    prop_assert!((time - cost * 10.0).abs() <= 10.0 * (number + 2) as f64, "{} {}", time, cost);
                    prop_assert!(*pages > 0 || time == 0.0);
                    sum += cost * 10.0;
                }
                let total = files.total_time().as_nanos() as f64;
                prop_assert!((total - sum).abs() <= 10.0 * (number + 2) as f64, "{} {}", total, sum);
            }
        }

        #[test]
        fn only_old_files_have_a_turn(steps in steps()) {
            let (mut files, mut now) = (files(), Time::ZERO);
            let (mut since, mut turn) = ([Time::MAX; FILES as usize], None);
            for (number, (file, what, page)) in steps.into_iter().enumerate() {
                now += Span::from_secs(page / 10);
                match what {
                    0..2 => {
                        dirty(&mut files, now, file, number as u64);
                        since[file as usize] = since[file as usize].min(now);
                    }
                    2..4 => write(&mut files, file, page),
                    _ => {
                        let any_will_do = what == 5;
                        let oldest = files.oldest(now, any_will_do);
                        prop_assert!(!any_will_do || oldest.is_some() == since.iter().any(|&at| at < Time::MAX));
                        if let Some(file) = oldest {
                            let age = now.since(since[file.0 as usize]);
                            prop_assert!(any_will_do || age >= DIRTY_EXPIRE || turn == oldest, "{} {}", file.0, age);
                        }
                        turn = oldest;
                    }
                }
                for (file, at) in since.iter_mut().enumerate() {
                    let is_dirty = files.ledger().file_bytes(FileId(file as u64)) > 0;
                    *at = if is_dirty { *at } else { Time::MAX };
                    prop_assert!(!is_dirty || *at < Time::MAX);
                }
            }
        }
    }

    #[test]
    fn a_turn_ends_with_what_was_dirty_when_it_began() {
        let (mut files, at) = (files(), |seconds| Time::ZERO + Span::from_secs(seconds));
        (0..10).for_each(|page| dirty(&mut files, at(0), 0, page));
        dirty(&mut files, at(1), 1, 0);
        for page in 10..20 {
            assert_eq!(files.oldest(at(31), false), Some(FileId(0)), "{page}");
            dirty(&mut files, at(31), 0, page);
            write(&mut files, 0, 1);
        }
        assert_eq!(files.oldest(at(31), false), Some(FileId(1)));
        write(&mut files, 1, 1);
        assert_eq!((files.oldest(at(60), false), files.due_at()), (None, Some(at(61))));
        assert_eq!(files.oldest(at(61), false), Some(FileId(0)));
    }

    #[test]
    fn a_slice_takes_a_part_of_the_bytes_and_of_the_time() {
        let mut files = files();
        (0..100).for_each(|page| dirty(&mut files, Time::ZERO, 0, page * 7919));
        let whole = files.time_of(FileId(0));
        let (bytes, takes) = files.slice(FileId(0), Span::from_nanos(whole.as_nanos() / 4 + 1));
        assert_eq!((bytes, takes.as_nanos()), (25 * PAGE_BYTES, whole.as_nanos() / 4));
        assert_eq!(files.slice(FileId(0), Span::MAX), (100 * PAGE_BYTES, whole));
        assert_eq!(files.slice(FileId(0), Span::ZERO).0, PAGE_BYTES, "a page at the least");
    }
}
