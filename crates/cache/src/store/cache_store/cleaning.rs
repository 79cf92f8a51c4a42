//! Between the two devices: copies dirty units to the store, and makes units ready for other blocks.
//!
//! **Cleaning** takes three steps, after the journal's record of the block is durable: write to the store, flush the
//! store, record the unit as clean. Units that are copied wait together for one flush. A block that is written
//! meanwhile is in another unit then; what was copied is an older version, and nothing is recorded.
//!
//! **Neighbours together.** A disk takes one write of 128 KiB in little more time than one of 4 KiB. Blocks that were
//! written as one file are also given up together. So units are taken by turns of half of the places, in the order of
//! the store. Consecutive units are a run: all are read, and only then written, in order, so that the host sees
//! consecutive writes. A run waits for no unit that itself waits: a block that another slot holds is in no run.
//!
//! **When it is flushed.** A flush is dear, so it waits until many are copied, or all. While a request waits for a
//! unit, as many as are still being copied are enough. A wait for all could be a wait for a stuck one.
//!
//! **When the device has failed**, which can be read perhaps: units are copied as before, on request. Their marks stay
//! in memory, as the journal cannot be written. The next start finds them dirty and copies them once more, over the
//! same data, because nothing of them was written since. A unit stays as it is, until the cache is given up, if the
//! journal is not known to be durable with its record.
//!
//! **Ready** is a unit of which the device has forgotten what was in it. Some are kept ready, so that a write need not
//! wait. The oldest free units are forgotten in the cache, and with the next block of the journal on the device.
//!
//! **A block that a read brought in** is recorded as clean only after a flush of the store. The block may still be in
//! the store's volatile cache; after a crash the cache would have a version that the store never had. After one failed
//! flush of the store, blocks that a read brings in are not recorded any more. Reads may return lost data for a while,
//! and no flush tells. As many units wait for that as there is room for; other blocks that reads brought in are
//! recorded when the cache is closed (`control`).
//!
//! **What waits for the syncer's flush**: the syncer. A unit that was copied is dirty until the store has been flushed.
//! So a client's flush has what it needs when the journal is durable. It asks for a flush of the store only for what
//! was acknowledged past the cache.

use super::CacheStore;
use crate::store::cleaner::{CLEANED_MAX, Cleaned, Why};
use crate::store::journal::Change;
use crate::store::marks::Mark;
use crate::store::operation::{Action, Failure};
use crate::store::slots::{Slot, Step, TaskKind};
use crate::units::UnitId;

impl CacheStore {
    /// Begins to copy waiting units, and flushes the store if a request waits for that.
    pub(super) fn drive_cleaner(&mut self) {
        if !self.cleaner.is_paused() && (self.has_failed || !self.journal.is_crowded()) {
            while self.begin_turn() {}
        }
        let is_awaited = self.turns.is_awaited || self.turns.is_unit_wanted;
        let is_wanted = self.cleaner.wants_flush(self.store.flushing(), self.slots.cleaning(), is_awaited);
        // What reads have brought in is recorded at the end, so long as a flush says that the store has it.
        let is_last = self.is_closing && !self.has_failed && !self.store.has_lost();
        if is_wanted || is_last {
            self.store.want(self.store.writes());
        }
        let flush = self.store.begin_flush();
        flush.into_iter().for_each(|operation| self.outbox.push_own(operation));
    }

    /// Takes half as many units as can be cleaned at once, and says whether there were so many.
    fn begin_turn(&mut self) -> bool {
        let (max, cleaning) = (self.slots.cleaning_max(), self.slots.cleaning());
        let room = (max - cleaning).min(CLEANED_MAX.saturating_sub(self.cleaner.cleaned.len() + cleaning));
        let wanted = max.div_ceil(2);
        if room < wanted && cleaning > 0 {
            return false;
        }
        let mut turn = std::mem::take(&mut self.cleaner.turn);
        while turn.len() < room.min(wanted)
            && let Some((kind, block)) = self.next_to_clean(turn.is_empty())
        {
            turn.push((block, kind));
        }
        let is_full = turn.len() == wanted;
        turn.sort_unstable_by_key(|&(block, _)| block);
        self.slots.expect_cleaning(turn.len());
        let mut before = None;
        for (block, kind) in turn.drain(..) {
            let at = self.slots.take(kind, 0, block).expect("there is room");
            let goes_on = at.checked_sub(1).zip(block.checked_sub(1)) == before;
            let has_lock = self.slots.lock(at);
            self.cleaner.runs += u64::from(before.is_none() || !goes_on || !has_lock);
            self.slots.slots[at].run = self.cleaner.runs;
            before = has_lock.then_some((at, block));
            if has_lock {
                self.runnable.push_back(at as u32);
            }
        }
        self.cleaner.turn = turn;
        is_full
    }

    /// The unit to be cleaned next; `is_first` says that none was taken that has no slot yet.
    fn next_to_clean(&mut self, is_first: bool) -> Option<(TaskKind, u64)> {
        if !self.is_closing
            && let Some(block) = self.cleaner.refused.next(self.counters.cleaned)
            && self.cache.find(block).is_some_and(|unit| self.cache.is_aside(unit))
        {
            return Some((TaskKind::Clean { job: None }, block));
        }
        if !self.is_closing
            && !self.has_failed
            && let Some(job) = self.cache.clean_next()
        {
            let number = self.cache.job(job.unit);
            return Some((TaskKind::Clean { job: number }, job.block));
        }
        let block = if !self.cleaner.is_cleaning_all() && !self.is_closing {
            self.next_of_sweep()
        } else {
            self.next_of_pass(is_first)
        };
        block.map(|block| (TaskKind::Clean { job: None }, block))
    }

    fn next_of_pass(&mut self, is_first: bool) -> Option<u64> {
        let is_rest_copied = is_first && self.slots.cleaning() == 0;
        let Self { cleaner, cache, marks, superblock, .. } = self;
        let is_dirty = |&unit: &UnitId| marks.get(&cache.units, unit).is_dirty;
        let dirty_block = |unit| Some(unit).filter(is_dirty).map(|unit| cache.describe(unit).block);
        cleaner.next_of_pass(superblock.layout.units, marks.dirty_units, is_rest_copied, dirty_block)
    }

    /// The next unit that a sweep copies. O(units that are looked at in one go).
    fn next_of_sweep(&mut self) -> Option<u64> {
        if !self.cleaner.sweeper.may_sweep() {
            return None;
        }
        let copying = self.slots.cleaning() + self.cleaner.waiting();
        let Self { cleaner, cache, marks, superblock, .. } = self;
        let is_at_rest = |&unit: &UnitId| marks.get(&cache.units, unit).is_dirty && !cache.is_being_cleaned(unit);
        let block_at_rest = |unit| Some(unit).filter(is_at_rest).map(|unit| cache.describe(unit).block);
        let dirty_at_rest = || marks.dirty_units.saturating_sub(copying as u32);
        cleaner.sweeper.next_block(superblock.layout.units, dirty_at_rest, block_at_rest)
    }

    pub(super) fn start_clean(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        // The block may have been forgotten while the slot waited for it, and even be back, and to be copied by another
        // job.
        let unit = self.cache.find(slot.block).filter(|&unit| match slot.job() {
            None => self.marks.get(&self.cache.units, unit).is_dirty,
            job => self.cache.job(unit) == job,
        });
        match unit {
            Some(unit) if slot.job().is_some() && self.cache.is_dirty(unit) => {
                // A request wrote the block while its unit waited.
                self.cache.cleaned(unit);
                self.end_clean(at);
            }
            Some(unit) => self.unit_operation(at, Step::ReadUnit, Action::Read, unit),
            None => self.end_clean(at),
        }
    }

    /// Writes a run to the store in order, if no unit of it is still to be read. O(units that are cleaned at once).
    fn write_run(&mut self, run: u64) {
        if self.slots.of_run(run).any(|(_, slot)| matches!(slot.step, Step::Lock | Step::ReadUnit)) {
            return;
        }
        let is_read = |(at, slot): (usize, &Slot)| (slot.step == Step::Neighbours).then_some(at);
        loop {
            let next = self.slots.of_run(run).find_map(is_read);
            let Some(at) = next else { return };
            self.around(at);
        }
    }

    /// Its neighbours need not wait for it.
    fn end_clean(&mut self, at: usize) {
        self.unlock(at);
        self.slots.give_back(at);
        self.write_run(self.slots.slots[at].run);
    }

    pub(super) fn clean_completed(&mut self, at: usize, has_succeeded: bool) {
        let slot = self.slots.slots[at];
        match slot.step {
            Step::ReadUnit if has_succeeded && self.is_intact(at, true) => {
                self.slots.slots[at].step = Step::Neighbours;
                self.write_run(slot.run);
            }
            Step::Store if has_succeeded => {
                self.counters.cleaned += 1;
                self.cleaner.refused.copied();
                self.cleaner.copied_victims += u64::from(slot.job().is_some());
                let why = slot.job().map_or(Why::InPlace, |job| Why::Victim { job });
                let store_writes = self.store.wrote();
                let (unit, block) = (slot.unit, slot.block);
                self.cleaner.cleaned.push_back(Cleaned { unit, block, store_writes, why, is_stale: false });
                self.end_clean(at);
            }
            Step::ReadUnit => self.clean_unreadable(at),
            _ => self.clean_refused_by_store(at),
        }
    }

    /// A flush failed around the write of this unit to the store: it is dirty as before.
    pub(super) fn clean_doubtful(&mut self, at: usize) {
        self.clean_failed(at);
        self.pause();
    }

    /// The store does not take what was to be copied. It stays in the cache, out of the way of all others.
    fn clean_refused_by_store(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let aside_max = self.superblock.layout.units / 2;
        if self.has_job(slot.unit, slot.job()) {
            let is_region = self.cleaner.refused.victim(slot.block);
            if !is_region || !self.cache.set_aside_of(slot.unit, aside_max) {
                return self.clean_doubtful(at);
            }
        } else {
            self.cleaner.refused.in_place(slot.block, self.cache.is_aside(slot.unit));
        }
        self.cleaner.has_damaged = true;
        self.end_clean(at);
    }

    /// The unit to be copied is damaged. That is the loss of one block, and affects no other.
    fn clean_unreadable(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        self.note_damaged(slot.unit, slot.block);
        self.cleaner.damaged.is_due = true;
        if self.has_job(slot.unit, slot.job()) && !self.cache.set_aside(slot.unit) {
            self.clean_failed(at);
            return self.pause();
        }
        self.cleaner.has_damaged = true;
        self.cleaner.unreadable += u32::from(slot.job().is_none());
        self.end_clean(at);
    }

    /// What was to be copied stays dirty.
    pub(super) fn clean_failed(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        if self.has_job(slot.unit, slot.job()) {
            self.cache.clean_failed(slot.unit);
        }
        self.end_clean(at);
    }

    /// Whether it is this job by which `unit` is copied.
    fn has_job(&self, unit: UnitId, job: Option<u64>) -> bool {
        job.is_some() && self.cache.job(unit) == job
    }

    /// Ends the wait of slots that wait for `block` to copy it: the block is going to be forgotten. O(units that are
    /// cleaned at once).
    pub(super) fn copy_no_more(&mut self, block: u64, jobs_only: bool) {
        while let Some(at) = self.slots.waiting_to_clean(block, jobs_only) {
            self.slots.wait_no_more(at);
            self.slots.give_back(at);
            self.write_run(self.slots.slots[at].run);
        }
    }

    /// The store's writes before the flush are durable. After a failed flush it is unknown which are.
    pub(super) fn store_flushed(&mut self, has_succeeded: bool) {
        let Some(flushed) = self.store.flush_ended(has_succeeded) else { return self.store_flush_failed() };
        while let Some(entry) = self.cleaner.next_durable(flushed) {
            self.is_durable_in_store(&entry);
        }
        self.recheck();
    }

    fn is_durable_in_store(&mut self, entry: &Cleaned) {
        let unit = entry.unit;
        let mark = self.marks.get(&self.cache.units, unit);
        let holds = !entry.is_stale && self.cache.find(entry.block) == Some(unit);
        if holds && entry.why == Why::Promoted {
            if !self.has_failed && !mark.is_recorded && !self.slots.is_locked(entry.block) {
                self.change_mark(unit, Mark { is_recorded: true, ..mark });
                self.record(Change::Clean, unit, None);
            }
            return;
        }
        if holds && mark.is_dirty {
            self.change_mark(unit, Mark { is_dirty: false, ..mark });
            if !self.has_failed {
                self.record(Change::Clean, unit, None);
            }
            // A request that holds the block may be writing it: it is dirty already then, in the unit that it is about
            // to leave.
            let is_at_rest = !self.cache.is_being_cleaned(unit) && !self.slots.is_locked(entry.block);
            if entry.why == Why::InPlace && is_at_rest {
                self.cache.set_clean(unit);
            }
        }
        if let Why::Victim { job } = entry.why
            && self.has_job(unit, Some(job))
        {
            // What could not be recorded stays dirty.
            match self.marks.get(&self.cache.units, unit).is_dirty {
                true => self.cache.clean_failed(unit),
                false => self.cache.cleaned(unit),
            }
        }
    }

    /// The device has failed, and the journal may not know the unit's block: the store keeps its version.
    pub(super) fn clean_refused(&mut self, at: usize) {
        self.cleaner.has_damaged = true;
        self.cleaner.unreadable += u32::from(self.slots.slots[at].job().is_none());
        self.clean_failed(at);
    }

    /// It is unknown which of the last writes the store has, also of those that ended, or began, during the flush.
    /// Copied units are dirty as before.
    fn store_flush_failed(&mut self) {
        self.pause();
        while let Some(entry) = self.cleaner.cleaned.pop_front() {
            if let Why::Victim { job } = entry.why
                && self.has_job(entry.unit, Some(job))
            {
                self.cache.clean_failed(entry.unit);
            }
        }
        for at in 0..self.slots.slots.len() {
            let slot = &mut self.slots.slots[at];
            slot.is_doubtful = slot.kind != TaskKind::Read && matches!(slot.step, Step::Store | Step::Around);
            let waits =
                matches!(slot.step, Step::StoreFlush) || (slot.step == Step::Commit && slot.kind == TaskKind::Flush);
            if waits && slot.store_writes > self.store.flushed() {
                self.finish(at, Some(Failure::Store));
            }
        }
    }

    /// Copies nothing more until a request asks for something. A request that waits for an empty unit might wait for
    /// ever, and goes past the cache. A request for a block in the cache finds a unit as long as others of that kind
    /// are under way.
    fn pause(&mut self) {
        self.cleaner.pause();
        for at in 0..self.slots.slots.len() {
            let slot = &self.slots.slots[at];
            if slot.step == Step::Unit && slot.is_relocated && self.cache.unused_units() == 0 {
                self.write_past(at);
            }
        }
    }

    /// A read brought a block into a unit.
    pub(super) fn record_promoted(&mut self, unit: UnitId, block: u64) {
        if self.has_failed || self.store.has_lost() {
            return;
        }
        if self.store.writes() == self.store.flushed() {
            let mark = self.marks.get(&self.cache.units, unit);
            self.change_mark(unit, Mark { is_recorded: true, ..mark });
            self.record(Change::Clean, unit, None);
        } else if self.cleaner.cleaned.len() < CLEANED_MAX / 2 {
            let store_writes = self.store.writes();
            self.cleaner.cleaned.push_back(Cleaned { unit, block, store_writes, why: Why::Promoted, is_stale: false });
        }
    }
}
