//! The journal at work: records are gathered while a block is on its way, and one flush serves two blocks.
//!
//! ```text
//!   data of group 2 written        flush: group 1's block and group 2's data are durable
//!        v                              v
//!   ---- group 1's block written ---- flush ---- group 2's block written ---- flush ---- ...
//!                                       ^ group 1 is acknowledged, its old units are free
//! ```
//!
//! A record is appended when the data that it speaks of is on the device, so a flush makes that data durable; only then
//! its block is written. One block is on its way at a time: whatever follows a block in the ring proves that it is
//! durable.

use super::bytes::{BLOCK_BYTES, Block};
use super::journal::{self, Change, RECORDS, Record};
use super::machine::CacheStore;
use super::operation::{Action, Target};
use super::slots::{Page, Step};
use super::superblock::Superblock;
use crate::units::UnitId;
use plimsoll_core::Class;
use std::collections::VecDeque;
use std::ops::Range;

/// Records that may wait before requests are refused: those of two blocks.
const CROWDED: usize = RECORDS * 2;

#[derive(Clone, Copy, Debug)]
struct Pending {
    record: Record,
    /// The unit that is free when the record is durable.
    freed: Option<UnitId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Flushing,
    Writing,
}

pub(super) struct Journal {
    open: VecDeque<Pending>,
    /// Records of a journal block that is written when the flush under way is done, or is being written.
    sealed: Vec<Pending>,
    /// Records of a journal block that is written and durable after the flush under way.
    written: Vec<Pending>,
    pub image: Page,
    records: Vec<Record>,
    appended: u64,
    committed: u64,
    wanted: u64,
    /// The next block, and the checksum of the one before it.
    pub sequence: u64,
    pub previous: u32,
    /// The first block that is needed.
    pub start: u64,
    phase: Phase,
    flushes_started: u64,
    flushes_done: u64,
    flushes_wanted: u64,
    /// The device has failed, and its cache was given up elsewhere: what is written here is of no account.
    pub is_given_up: bool,
}

impl Journal {
    pub fn new(superblock: &Superblock, sequence: u64, previous: u32, slots: usize) -> Journal {
        Journal {
            // Beyond the bound each request may add a record or two, and so may whatever is being cleaned.
            open: VecDeque::with_capacity(CROWDED + RECORDS + slots * 2 + super::cleaner::CLEANED_MAX),
            sealed: Vec::with_capacity(RECORDS),
            written: Vec::with_capacity(RECORDS),
            image: Page([0; BLOCK_BYTES]),
            records: Vec::with_capacity(RECORDS),
            appended: 0,
            committed: 0,
            wanted: 0,
            sequence,
            previous,
            start: superblock.journal_sequence,
            phase: Phase::Idle,
            flushes_started: 0,
            flushes_done: 0,
            flushes_wanted: 0,
            is_given_up: false,
        }
    }

    pub fn append(&mut self, record: Record, freed: Option<UnitId>) {
        self.open.push_back(Pending { record, freed });
        self.appended += 1;
        if self.open.len() >= RECORDS {
            self.want_all();
        }
    }

    /// Records so far, and those of them that are durable.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    pub fn committed(&self) -> u64 {
        self.committed
    }

    pub fn want(&mut self, records: u64) {
        self.wanted = self.wanted.max(records);
    }

    pub fn want_all(&mut self) {
        self.want(self.appended);
    }

    /// Whether so many records wait that no more requests should come.
    pub fn is_crowded(&self) -> bool {
        self.open.len() >= CROWDED
    }

    pub fn has_room_for_own(&self) -> bool {
        self.open.len() < RECORDS
    }

    /// The flush after which everything that is written now is durable.
    pub fn want_flush(&mut self) -> u64 {
        self.flushes_wanted = self.flushes_started + 1;
        self.flushes_wanted
    }

    pub fn flushes_done(&self) -> u64 {
        self.flushes_done
    }

    /// The records after which the device knows what became of `blocks`, if it does not yet.
    pub fn speaks_of(&self, blocks: &Range<u64>) -> Option<u64> {
        let pending = self.written.iter().chain(&self.sealed).chain(&self.open);
        let is_it = |(_, pending): &(usize, &Pending)| blocks.contains(&pending.record.block);
        let (at, _) = pending.enumerate().filter(is_it).last()?;
        Some(self.committed + at as u64 + 1)
    }

    /// Units that are free when what waits is durable.
    pub fn freed(&self) -> impl Iterator<Item = UnitId> {
        let pending = self.open.iter().chain(&self.sealed).chain(&self.written);
        pending.filter_map(|pending| pending.freed)
    }

    fn seal(&mut self, uuid: &[u8; 16]) {
        self.sealed.extend(self.open.drain(..self.open.len().min(RECORDS)));
        self.records.clear();
        self.records.extend(self.sealed.iter().map(|pending| pending.record));
        let image: &mut Block = &mut self.image.0;
        self.previous = journal::encode(image, uuid, self.sequence, self.previous, &self.records);
        self.sequence += 1;
    }
}

impl CacheStore {
    /// Begins the next flush if a request needs one.
    pub(super) fn drive_journal(&mut self) {
        if self.journal.phase != Phase::Idle || self.has_failed {
            return;
        }
        let has_room = self.journal.sequence < self.journal_end();
        let journal = &mut self.journal;
        let is_wanted = journal.wanted > journal.committed + (journal.written.len() + journal.sealed.len()) as u64;
        let seals = is_wanted && has_room && !journal.open.is_empty();
        if !seals && journal.written.is_empty() && journal.flushes_done >= journal.flushes_wanted {
            return;
        }
        if seals {
            journal.seal(&self.superblock.uuid);
        }
        journal.flushes_started += 1;
        journal.phase = Phase::Flushing;
        self.own_operation(Self::CACHE_FLUSH, Target::Cache, Action::Flush, 0);
    }

    /// What was written before is durable.
    pub(super) fn cache_flushed(&mut self, has_succeeded: bool) {
        if !has_succeeded {
            return self.fail();
        }
        self.journal.flushes_done = self.journal.flushes_started;
        self.commit();
        if self.journal.sealed.is_empty() {
            self.journal.phase = Phase::Idle;
        } else {
            self.journal.phase = Phase::Writing;
            let block = self.superblock.layout.journal_block(self.journal.sequence - 1);
            self.own_operation(Self::JOURNAL, Target::Cache, Action::Write, block);
        }
    }

    /// A block is durable: its old units are free, and the requests that waited for it go on.
    fn commit(&mut self) {
        if self.journal.written.is_empty() {
            return;
        }
        self.journal.committed += self.journal.written.len() as u64;
        while let Some(pending) = self.journal.written.pop() {
            if let Some(unit) = pending.freed {
                self.cache.release(unit);
            }
        }
        self.counters.commits += 1;
        self.recheck();
    }

    /// Looks after all requests that wait for something to be durable.
    pub(super) fn recheck(&mut self) {
        for at in 0..self.slots.slots.len() {
            if matches!(self.slots.slots[at].step, Step::Commit | Step::StoreFlush | Step::Known) {
                self.finish_if_durable(at);
            }
        }
    }

    pub(super) fn journal_written(&mut self, has_succeeded: bool) {
        if !has_succeeded {
            return self.fail();
        }
        std::mem::swap(&mut self.journal.sealed, &mut self.journal.written);
        self.journal.phase = Phase::Idle;
    }

    /// Records that a unit holds nothing; if the device never knew of it, it is free at once.
    pub(super) fn record_forgotten(&mut self, unit: UnitId, block: u64, class: Class, pool: crate::units::Pool) {
        let mark = self.marks.get(&self.cache.units, unit);
        self.change_mark(unit, Default::default());
        if !mark.is_recorded {
            return self.cache.release(unit);
        }
        let record = Record { change: Change::Invalid, block, class, pool, unit, checksum: 0 };
        self.journal.append(record, Some(unit));
    }
}
