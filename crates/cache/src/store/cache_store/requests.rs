//! The way of a request, step by step.
//!
//! ```text
//!   read    in a unit: ReadUnit, its checksum is compared             not in one: Around, or Fetch, answered, Promote
//!   write   whole, wanted here: WriteUnit, recorded, Commit if strict     else: Known, Around, StoreFlush if strict
//!           a part of a block in a unit: Merge, then as a whole one
//!   trim    Store; of a block in a clean unit: forgotten and Known before;
//!                  in a dirty one: StoreFlush and forgotten behind
//! ```
//!
//! A block that is in a unit is never overwritten: the new version goes into an empty unit, and the record switches. So
//! a crash leaves one or the other.
//!
//! **Before a block changes on the store, the journal's records of it must be durable.** Otherwise a crash would bring
//! back the cache's version. That is whole, with the right checksum, and older than the store's. What waits for that is
//! `Known`.

use super::CacheStore;
use crate::access::Access;
use crate::cache::{CleanJob, Outcome};
use crate::store::bytes::{BLOCK_BYTES, data_checksum};
use crate::store::journal::{Change, Record};
use crate::store::marks::Mark;
use crate::store::operation::{Action, Failure, Semantics, Target};
use crate::store::pages::Pages;
use crate::store::slots::{Step, TaskKind};
use crate::units::UnitId;

impl CacheStore {
    /// A slot has its block, or the empty unit for which it waited.
    pub(super) fn run(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        // Planted break that was seen red in the search: a slot that stands twice among the runnable ones runs twice.
        debug_assert!(slot.can_run(), "{slot:?} goes on");
        match (slot.kind, slot.step) {
            (_, Step::Unit) if slot.is_relocated => self.write_elsewhere(at),
            (_, Step::Unit) => self.write_new(at),
            (_, Step::Known) => self.around(at),
            (TaskKind::Read, _) => self.start_read(at),
            (TaskKind::Write, _) => self.start_write(at),
            (TaskKind::Trim, _) => self.start_trim(at),
            (TaskKind::Clean { .. }, _) => self.start_clean(at),
            (TaskKind::Flush, _) => unreachable!("a flush has no block"),
        }
    }

    pub(super) fn access(&self, at: usize, is_write: bool) -> Access {
        let slot = &self.slots.slots[at];
        Access { block: slot.block, class: slot.class, pool: slot.pool, is_write }
    }

    pub(super) fn is_cached(&self, block: u64) -> Option<UnitId> {
        if block < self.superblock.store_blocks { self.cache.find(block) } else { None }
    }

    fn start_read(&mut self, at: usize) {
        let (block, access) = (self.slots.slots[at].block, self.access(at, false));
        let is_refused = block >= self.superblock.store_blocks || (self.has_failed && self.is_cached(block).is_none());
        let outcome = if is_refused {
            Outcome::Refused
        } else {
            self.cache.observe(&access);
            self.access_in_turn(&access)
        };
        let of_class = &mut self.class_counters[usize::from(access.class.number())];
        of_class.reads += 1;
        match outcome {
            Outcome::Hit(unit) => {
                of_class.read_hits += 1;
                self.counters.read_hits += 1;
                self.unit_operation(at, Step::ReadUnit, Action::Read, unit);
            }
            Outcome::Taken(unit) => {
                self.counters.read_misses += 1;
                self.slots.slots[at].unit = unit;
                self.store_operation(at, Step::Fetch, Action::Read, 0, BLOCK_BYTES as u16);
            }
            Outcome::Refused | Outcome::Busy | Outcome::Full => {
                self.counters.read_misses += 1;
                self.read_around(at);
            }
        }
    }

    fn read_around(&mut self, at: usize) {
        let (from, to) = (self.slots.slots[at].from, self.slots.slots[at].to);
        self.store_operation(at, Step::Around, Action::Read, from, to);
    }

    fn start_write(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        if self.has_failed {
            return self.finish(at, Some(Failure::Device));
        }
        let is_whole = slot.from == 0 && usize::from(slot.to) == BLOCK_BYTES;
        let cached = self.is_cached(slot.block);
        let of_class = &mut self.class_counters[usize::from(slot.class.number())];
        of_class.writes += 1;
        of_class.write_hits += u64::from(cached.is_some());
        if cached.is_some() || is_whole && slot.block < self.superblock.store_blocks {
            self.cache.observe(&self.access(at, true));
        }
        self.counters.write_hits += u64::from(cached.is_some());
        if self.semantics == Semantics::WriteThrough {
            return self.write_through(at, cached);
        }
        if let Some(unit) = cached {
            self.cache.enter(&self.access(at, true));
            self.slots.slots[at].is_relocated = true;
            return match is_whole {
                true => self.write_elsewhere(at),
                false => self.unit_operation(at, Step::Merge, Action::Read, unit),
            };
        }
        self.write_new(at);
    }

    /// Writes a block that is in a unit into an empty one.
    pub(super) fn write_elsewhere(&mut self, at: usize) {
        match self.cache.take_empty() {
            Some(unit) => self.unit_operation(at, Step::WriteUnit, Action::Write, unit),
            // Other requests had the last units, and those were bad.
            None if !self.has_failed && self.is_out_of_units() => self.write_past(at),
            None => self.wait_for_unit(at),
        }
    }

    /// Changes the block on the store, once the device's record of the block is durable.
    pub(super) fn around(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        if !self.journal.is_given_up
            && let Some(records) = self.journal.speaks_of(&slot.range())
        {
            if self.has_failed {
                return self.refuse(at);
            }
            let slot = &mut self.slots.slots[at];
            (slot.step, slot.records) = (Step::Known, records);
            self.journal.want(records);
            return;
        }
        match slot.kind {
            TaskKind::Trim => {
                self.slots.slots[at].step = Step::Store;
                let (from, length) = (slot.block * BLOCK_BYTES as u64, slot.blocks * BLOCK_BYTES as u32);
                self.outbox.push(at, Target::Store, Action::Trim, from, length);
            }
            TaskKind::Clean { .. } => self.store_operation(at, Step::Store, Action::Write, 0, BLOCK_BYTES as u16),
            _ => self.store_operation(at, Step::Around, Action::Write, slot.from, slot.to),
        }
    }

    fn start_trim(&mut self, at: usize) {
        if self.has_failed {
            return self.finish(at, Some(Failure::Device));
        }
        let block = self.slots.slots[at].block;
        match self.is_cached(block) {
            Some(unit) if self.marks.get(&self.cache.units, unit).is_dirty => self.begin_to_forget(unit),
            Some(_) => self.forget(block),
            None => {}
        }
        self.around(at);
    }

    /// Waits for everything that was acknowledged.
    pub(super) fn start_flush(&mut self, at: usize) {
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to) = (0, 0);
        (slot.records, slot.store_writes) = (self.journal.appended(), self.store.past());
        slot.step = Step::Commit;
        if self.has_failed {
            return self.finish(at, Some(Failure::Device));
        }
        self.journal.want(self.slots.slots[at].records);
        self.store.want(self.slots.slots[at].store_writes);
        self.finish_if_durable(at);
    }

    /// Answers a request that waits for the journal or the store, if it need not wait any more.
    pub(super) fn finish_if_durable(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let is_committed = self.journal.committed() >= slot.records;
        let is_flushed = self.store.flushed() >= slot.store_writes;
        match slot.step {
            Step::Commit if is_committed && is_flushed => self.finish(at, None),
            Step::StoreFlush if is_flushed && (slot.kind == TaskKind::Trim || self.is_cached(slot.block).is_some()) => {
                self.trimmed(at)
            }
            Step::StoreFlush if is_flushed => self.finish(at, None),
            Step::Known if is_committed => self.runnable.push_back(at as u32),
            _ => {}
        }
    }

    /// Looks after all requests that wait for something to be durable.
    pub(super) fn recheck(&mut self) {
        for at in 0..self.slots.slots.len() {
            if matches!(self.slots.slots[at].step, Step::Commit | Step::StoreFlush | Step::Known) {
                self.finish_if_durable(at);
            }
        }
    }

    /// The operation of a slot ended.
    pub(super) fn slot_completed(&mut self, at: usize, has_succeeded: bool) {
        let is_doubtful = std::mem::take(&mut self.slots.slots[at].is_doubtful);
        let has_succeeded = has_succeeded && !is_doubtful;
        let slot = self.slots.slots[at];
        if let TaskKind::Clean { .. } = slot.kind {
            return if is_doubtful { self.clean_doubtful(at) } else { self.clean_completed(at, has_succeeded) };
        }
        match slot.step {
            Step::ReadUnit if self.is_intact(at, has_succeeded) => self.finish(at, None),
            Step::ReadUnit if self.forget_damaged(at) => self.read_around(at),
            Step::Merge if self.is_intact(at, has_succeeded) => {
                let (new, old) = (&mut self.slots.data[at].0, &self.slots.old[at].0);
                new[..usize::from(slot.from)].copy_from_slice(&old[..usize::from(slot.from)]);
                new[usize::from(slot.to)..].copy_from_slice(&old[usize::from(slot.to)..]);
                // By what was so when it began: the semantics may have changed since.
                match slot.is_relocated {
                    true => self.write_elsewhere(at),
                    false => self.merged_through(at),
                }
            }
            Step::Merge if self.forget_damaged(at) => self.around(at),
            Step::ReadUnit | Step::Merge => self.finish(at, Some(Failure::Damaged)),
            Step::Around if slot.kind == TaskKind::Read => self.finish(at, (!has_succeeded).then_some(Failure::Store)),
            Step::Around if has_succeeded => self.written_to_store(at),
            Step::Around | Step::Store if !has_succeeded => self.not_written_to_store(at),
            Step::Fetch => self.fetched(at, has_succeeded),
            Step::Promote => self.promoted(at, has_succeeded),
            Step::WriteUnit => self.written(at, has_succeeded),
            Step::Store => self.written_to_store(at),
            _ => unreachable!("{:?} has no operation", slot.step),
        }
    }

    /// Whether the content read from a unit equals the content written to it.
    pub(super) fn is_intact(&self, at: usize, has_succeeded: bool) -> bool {
        let slot = &self.slots.slots[at];
        let data = if slot.step == Step::Merge { &self.slots.old[at].0 } else { &self.slots.data[at].0 };
        let checksum = self.marks.get(&self.cache.units, slot.unit).checksum;
        has_succeeded && data_checksum(&self.superblock.uuid, slot.block, data) == checksum
    }

    /// The block's unit is damaged. If it is clean it is forgotten, and the store is asked; else false.
    fn forget_damaged(&mut self, at: usize) -> bool {
        let (block, unit) = (self.slots.slots[at].block, self.slots.slots[at].unit);
        if self.marks.get(&self.cache.units, unit).is_dirty {
            self.note_damaged(unit, block);
            return false;
        }
        if self.slots.slots[at].kind == TaskKind::Read && self.journal.is_crowded() {
            // Reads are not counted: a later read tells the journal.
            return true;
        }
        self.counters.damaged_clean += 1;
        self.forget(block);
        true
    }

    /// The unit of a block that the store lacks is damaged: it counts once.
    pub(super) fn note_damaged(&mut self, unit: UnitId, block: u64) {
        let is_new = self.cleaner.damaged.insert(unit, self.superblock.layout.units, block);
        self.counters.damaged_dirty += u64::from(is_new);
    }

    /// Takes a block out of the cache and records that.
    pub(super) fn forget(&mut self, block: u64) {
        let Some(unit) = self.cache.find(block) else { return };
        let was = self.cache.describe(unit);
        self.cache.remove(block);
        self.cleaner.forget(unit);
        self.copy_no_more(block, false);
        self.record_forgotten(&was);
    }

    fn fetched(&mut self, at: usize, has_succeeded: bool) {
        let slot = self.slots.slots[at];
        if !has_succeeded {
            self.cache.remove(slot.block);
            self.cache.release(slot.unit);
            return self.finish(at, Some(Failure::Store));
        }
        self.answer(at, None);
        self.unit_operation(at, Step::Promote, Action::Write, slot.unit);
    }

    fn promoted(&mut self, at: usize, has_succeeded: bool) {
        let slot = self.slots.slots[at];
        if has_succeeded {
            self.mark(at, Mark { is_recorded: false, is_dirty: false, checksum: 0 });
            self.record_promoted(slot.unit, slot.block);
        } else {
            self.cache.remove(slot.block);
            self.cache.set_bad(slot.unit);
        }
        self.unlock(at);
        self.slots.slots[at].step = Step::Answered;
        if !self.slots.slots[at].is_answered {
            self.slots.give_back(at);
        }
    }

    /// Notes the checksum of what the slot wrote to its unit.
    fn mark(&mut self, at: usize, mark: Mark) {
        let slot = &self.slots.slots[at];
        let checksum = data_checksum(&self.superblock.uuid, slot.block, &self.slots.data[at].0);
        self.marks.set(&mut self.cache.units, slot.unit, Mark { checksum, ..mark });
        self.cleaner.damaged.forget(slot.unit);
    }

    fn written(&mut self, at: usize, has_succeeded: bool) {
        let slot = self.slots.slots[at];
        if !has_succeeded || self.has_failed {
            if !slot.is_relocated {
                self.cache.remove(slot.block);
                // A request that waits to copy the block holds up all others, while it waits for another unit.
                self.copy_no_more(slot.block, false);
            }
            if !self.has_failed {
                return self.write_again(at);
            }
            self.cache.release(slot.unit);
            return self.finish(at, Some(Failure::Device));
        }
        let freed = slot.is_relocated.then(|| self.cache.relocate(slot.block, slot.unit));
        if let Some(freed) = freed {
            self.cleaner.moved(freed, slot.unit);
            self.change_mark(freed, Mark::default());
        }
        self.mark(at, Mark { is_recorded: true, is_dirty: true, checksum: 0 });
        self.record(Change::Dirty, slot.unit, freed);
        self.unlock(at);
        match self.semantics {
            Semantics::WriteCache | Semantics::WriteThrough => self.finish(at, None),
            Semantics::Strict => self.wait_for_commit(at),
        }
    }

    fn wait_for_commit(&mut self, at: usize) {
        if self.has_failed {
            return self.refuse(at);
        }
        let slot = &mut self.slots.slots[at];
        (slot.step, slot.records) = (Step::Commit, self.journal.appended());
        self.journal.want(slot.records);
        self.finish_if_durable(at);
    }

    /// A write or a trim past the cache ended.
    fn written_to_store(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let target = self.store.wrote();
        let is_cached = self.is_cached(slot.block).is_some();
        if self.semantics.is_loose() && !is_cached {
            self.store.acknowledged();
            return self.finish_through(at);
        }
        let slot = &mut self.slots.slots[at];
        (slot.step, slot.store_writes) = (Step::StoreFlush, target);
        self.store.want(target);
    }

    /// A write or a trim past the cache failed, and may have been done nevertheless: reads of it may return data that
    /// is not durable.
    fn not_written_to_store(&mut self, at: usize) {
        self.store.wrote();
        self.finish(at, Some(Failure::Store));
    }

    /// The store has trimmed a block, or durably has a newer version than the cache: the cache may forget it, too.
    fn trimmed(&mut self, at: usize) {
        if self.has_failed {
            // The cache still has what was in the block, and cannot forget it.
            return self.refuse(at);
        }
        self.forget(self.slots.slots[at].block);
        match self.semantics {
            Semantics::WriteCache | Semantics::WriteThrough => self.finish(at, None),
            Semantics::Strict => self.wait_for_commit(at),
        }
    }

    /// Records what a unit holds now, with the checksum that its mark says.
    pub(super) fn record(&mut self, change: Change, unit: UnitId, freed: Option<UnitId>) {
        let was = self.cache.describe(unit);
        let Mark { checksum, .. } = self.marks.get(&self.cache.units, unit);
        self.pages.set_changed(Pages::of_unit(unit));
        let record = Record { change, block: was.block, class: was.class, pool: was.pool, unit, checksum };
        self.journal.append(record, freed);
    }

    /// Records that a unit holds nothing. If the device never knew of it, it is free at once.
    pub(super) fn record_forgotten(&mut self, was: &CleanJob) {
        let &CleanJob { unit, block, class, pool } = was;
        let mark = self.marks.get(&self.cache.units, unit);
        self.change_mark(unit, Mark::default());
        if !mark.is_recorded {
            return self.cache.release(unit);
        }
        let record = Record { change: Change::Invalid, block, class, pool, unit, checksum: 0 };
        self.journal.append(record, Some(unit));
    }

    pub(super) fn change_mark(&mut self, unit: UnitId, mark: Mark) {
        self.pages.set_changed(Pages::of_unit(unit));
        self.marks.set(&mut self.cache.units, unit, mark);
        self.cleaner.damaged.forget(unit);
    }

    /// Hands out an operation on a unit.
    pub(super) fn unit_operation(&mut self, at: usize, step: Step, action: Action, unit: UnitId) {
        let offset_bytes = self.superblock.layout.unit_block(unit) * BLOCK_BYTES as u64;
        let slot = &mut self.slots.slots[at];
        (slot.step, slot.unit) = (step, unit);
        self.outbox.push(at, Target::Cache, action, offset_bytes, BLOCK_BYTES as u32);
    }

    /// Hands out an operation on the slot's block of the store.
    pub(super) fn store_operation(&mut self, at: usize, step: Step, action: Action, from: u16, to: u16) {
        let slot = &mut self.slots.slots[at];
        slot.step = step;
        let offset_bytes = slot.block * BLOCK_BYTES as u64 + u64::from(from);
        self.outbox.push(at, Target::Store, action, offset_bytes, u32::from(to - from));
    }

    pub(super) fn answer(&mut self, at: usize, failure: Option<Failure>) {
        self.slots.slots[at].is_answered = true;
        self.answers.push_back((at as u32, failure));
    }

    pub(super) fn unlock(&mut self, at: usize) {
        if self.slots.slots[at].blocks > 1 {
            return self.slots.unlock_range(at, |next| self.runnable.push_back(next as u32));
        }
        if let Some(next) = self.slots.unlock(at) {
            self.runnable.push_back(next as u32);
        }
    }

    /// The request is over.
    pub(super) fn finish(&mut self, at: usize, failure: Option<Failure>) {
        self.unlock(at);
        self.answer(at, failure);
        self.slots.slots[at].step = Step::Answered;
    }
}
