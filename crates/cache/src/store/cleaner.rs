//! Units that wait to be copied to the store, and copied units that wait for a flush of the store.

use super::refused::{Damaged, Refused};
use super::slots::TaskKind;
use super::write_back::Sweeper;
use crate::units::UnitId;
use plimsoll_core::Time;
use std::collections::VecDeque;

/// Units that may wait for a flush of the store.
pub(super) const CLEANED_MAX: usize = 256;
/// Units that are kept ready: this part of the cache, within these bounds (ours).
const READY_PARTS: u32 = 64;
const READY_MIN: u32 = 2;
const READY_MAX: u32 = 512;
/// Copied units at which the syncer asks for a flush, although it copies more and no request waits.
const BATCH: usize = 64;

/// Units of a cache of so many that are kept ready.
pub(super) fn ready_units(units: u32) -> u32 {
    (units / READY_PARTS).clamp(READY_MIN, READY_MAX)
}

/// Why a unit waits for a flush of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The policy gave the unit up, and the job of that number copied it.
    Victim { job: u64 },
    /// The unit was copied because everything is cleaned.
    InPlace,
    /// A read brought the block.
    Promoted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cleaned {
    pub unit: UnitId,
    pub block: u64,
    pub store_writes: u64,
    pub why: Why,
    /// The block was written or forgotten since.
    pub is_stale: bool,
}

/// What waits for the store.
pub(super) struct Cleaner {
    pub cleaned: VecDeque<Cleaned>,
    /// Units of one turn, before they have slots.
    pub turn: Vec<(u64, TaskKind)>,
    /// Runs so far.
    pub runs: u64,
    /// The next unit to be looked at, while everything is cleaned.
    next: Option<u32>,
    /// Blocks that the store did not take.
    pub refused: Refused,
    /// Unreadable units with blocks that only the cache has.
    pub damaged: Damaged,
    /// A unit was damaged or refused meanwhile, so not everything will be clean.
    pub has_damaged: bool,
    /// Units that could not be copied since everything is cleaned, though the store works.
    pub unreadable: u32,
    /// The store failed: nothing is copied until a request asks for something.
    is_paused: bool,
    /// Units so far that were copied because the policy gave them up.
    pub copied_victims: u64,
    /// What is written back early.
    pub sweeper: Sweeper,
    /// How often all units were looked at; one more when nothing was dirty.
    pub passes: u64,
}

impl Cleaner {
    pub fn new() -> Cleaner {
        let cleaned = VecDeque::with_capacity(CLEANED_MAX);
        let turn = Vec::with_capacity(CLEANED_MAX);
        Cleaner {
            cleaned,
            turn,
            runs: 0,
            next: None,
            refused: Refused::new(),
            damaged: Damaged::default(),
            has_damaged: false,
            unreadable: 0,
            is_paused: false,
            copied_victims: 0,
            sweeper: Sweeper::default(),
            passes: 0,
        }
    }

    pub fn clean_all(&mut self) {
        (self.next, self.has_damaged, self.unreadable, self.is_paused) = (Some(0), false, 0, false);
        self.refused.begin();
    }

    pub fn clean_no_more(&mut self) {
        self.next = None;
    }

    /// The store or the device failed.
    pub fn pause(&mut self) {
        (self.is_paused, self.next) = (true, None);
    }

    pub fn is_cleaning_all(&self) -> bool {
        self.next.is_some()
    }

    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Units that were copied and wait for a flush of the store.
    pub fn waiting(&self) -> usize {
        self.copies(0)
    }

    pub fn is_idle(&self) -> bool {
        self.cleaned.is_empty()
    }

    /// What was in `from` is in `to`, in a newer version.
    pub fn moved(&mut self, from: UnitId, to: UnitId) {
        for entry in self.cleaned.iter_mut().filter(|entry| entry.unit == from) {
            (entry.unit, entry.is_stale) = (to, true);
        }
    }

    /// Nothing is in `unit` any more.
    pub fn forget(&mut self, unit: UnitId) {
        self.cleaned.retain(|entry| entry.unit != unit);
    }

    /// The jobs of units that wait for a flush.
    pub fn waiting_jobs(&self) -> impl Iterator<Item = u64> {
        self.cleaned.iter().filter_map(|entry| match entry.why {
            Why::Victim { job } => Some(job),
            Why::InPlace | Why::Promoted => None,
        })
    }

    /// Units that a later write of the store than that copied, and that wait for a flush.
    pub fn copies(&self, after_writes: u64) -> usize {
        let is_meant = |entry: &&Cleaned| entry.why != Why::Promoted && entry.store_writes > after_writes;
        self.cleaned.iter().filter(is_meant).count()
    }

    /// Whether to flush the copied units. The store began its last flush after `flushing` writes, and `copying` units
    /// are still being copied. While a request waits for a unit, as many as these are enough.
    pub fn wants_flush(&self, flushing: u64, copying: usize, is_awaited: bool) -> bool {
        let copies = self.copies(flushing);
        copies > 0 && (copies >= BATCH || copying == 0 || (is_awaited && copies >= copying))
    }

    /// A unit that waited for a flush, if the flush made this many writes of the store durable.
    pub fn next_durable(&mut self, store_writes: u64) -> Option<Cleaned> {
        let is_durable = self.cleaned.front().is_some_and(|entry| entry.store_writes <= store_writes);
        if is_durable { self.cleaned.pop_front() } else { None }
    }

    /// The next block of a pass that copies everything, in a cache of so many units. `dirty_block` answers the block of
    /// a dirty one; `is_rest_copied` says that no unit is on its way to the store.
    pub fn next_of_pass(
        &mut self,
        units: u32,
        dirty_units: u32,
        is_rest_copied: bool,
        dirty_block: impl Fn(UnitId) -> Option<u64>,
    ) -> Option<u64> {
        while let Some(next) = self.next {
            if dirty_units == 0 {
                self.next = None;
                // A request that began to wait within a pass need not wait for another.
                self.passes += 2;
            } else if next < units {
                self.next = Some(next + 1);
                let block = dirty_block(UnitId(next));
                if block.is_some() {
                    return block;
                }
            } else if is_rest_copied && self.copies(0) == 0 {
                // Some were written again meanwhile, or cannot be copied: then there is no other pass, and this one
                // does not count.
                self.next = (!self.has_damaged).then_some(0);
                self.passes += u64::from(!self.has_damaged);
            } else {
                return None;
            }
        }
        None
    }

    /// Units are copied again at each half of an age even if the store failed. Answers whether a sweep continues.
    pub fn tick(&mut self, now: Time, units: u32) -> bool {
        self.sweeper.tick(now, units, &mut self.is_paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(unit: u32, store_writes: u64, why: Why) -> Cleaned {
        Cleaned { unit: UnitId(unit), block: u64::from(unit) + 100, store_writes, why, is_stale: false }
    }

    /// What a read brought in asks for no flush. Planted break: it does, red.
    #[test]
    fn a_flush_waits_for_a_batch_for_all_or_for_as_many_as_are_on_their_way() {
        let mut cleaner = Cleaner::new();
        cleaner.cleaned.push_back(copied(0, 1, Why::Promoted));
        assert!(!cleaner.wants_flush(0, 0, true));
        (0..3).for_each(|unit| cleaner.cleaned.push_back(copied(unit, 2, Why::InPlace)));
        let wants = |cleaner: &Cleaner| {
            [(0, 0, false), (0, 4, false), (0, 4, true), (0, 3, true), (2, 0, true)]
                .map(|(flushing, copying, is_awaited)| cleaner.wants_flush(flushing, copying, is_awaited))
        };
        assert_eq!(wants(&cleaner), [true, false, false, true, false]);
        (0..BATCH as u32).for_each(|unit| cleaner.cleaned.push_back(copied(unit, 2, Why::Victim { job: 1 })));
        assert_eq!(wants(&cleaner), [true, true, true, true, false]);
        assert_eq!(cleaner.next_durable(1).map(|entry| entry.why), Some(Why::Promoted));
        assert!(cleaner.next_durable(1).is_none());
    }

    /// Planted break: a pass with damaged units counts, red.
    #[test]
    fn a_pass_looks_at_each_unit_and_another_one_follows_while_something_is_dirty() {
        let mut cleaner = Cleaner::new();
        let dirty = |unit: UnitId| (unit.0 % 2 == 1).then_some(u64::from(unit.0) * 10);
        assert_eq!(cleaner.next_of_pass(4, 2, true, dirty), None, "no pass was asked for");
        for has_damaged in [false, true] {
            cleaner.clean_all();
            let passes = cleaner.passes;
            assert_eq!([(); 2].map(|()| cleaner.next_of_pass(4, 2, true, dirty)), [Some(10), Some(30)]);
            assert_eq!((cleaner.next_of_pass(4, 2, false, dirty), cleaner.passes), (None, passes));
            cleaner.has_damaged = has_damaged;
            let next = cleaner.next_of_pass(4, 2, true, dirty);
            assert_eq!(next, (!has_damaged).then_some(10), "another pass, or none");
            assert_eq!(cleaner.passes - passes, u64::from(!has_damaged));
        }
        cleaner.clean_all();
        assert_eq!((cleaner.next_of_pass(4, 0, true, dirty), cleaner.passes), (None, 3));
        assert!(!cleaner.is_cleaning_all());
    }

    #[test]
    fn what_moved_is_stale_and_what_is_forgotten_waits_no_more() {
        let mut cleaner = Cleaner::new();
        (0..2).for_each(|unit| cleaner.cleaned.push_back(copied(unit, 2, Why::Victim { job: u64::from(unit) })));
        cleaner.moved(UnitId(0), UnitId(7));
        cleaner.forget(UnitId(1));
        assert_eq!(cleaner.waiting_jobs().collect::<Vec<_>>(), [0]);
        let entry = cleaner.next_durable(2).unwrap();
        assert_eq!((entry.unit, entry.is_stale, cleaner.is_idle()), (UnitId(7), true, true));
    }
}
