//! The journal at work: it gathers records while a block is being written, and one flush serves two blocks.
//!
//! ```text
//!   data of group 2 written        flush: group 1's block and group 2's data are durable
//!        v                              v
//!   ---- group 1's block written ---- flush ---- group 2's block written ---- flush ---- ...
//!                                       ^ group 1 is acknowledged, its old units are free
//! ```
//!
//! A record is appended when its data is on the device, so a flush makes that data durable. Only then its block is
//! written. One block is on its way at a time: whatever follows a block in the ring proves that it is durable.

use super::bytes::{BLOCK_BYTES, Block};
use super::journal::{self, RECORDS, Record};
use super::layout::Layout;
use super::operation::Target;
use super::outbox::{Own, OwnOperation};
use super::slots::AlignedBlock;
use crate::units::UnitId;
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
enum CommitPhase {
    Idle,
    Flushing,
    Writing,
}

pub(super) struct Journal {
    open: VecDeque<Pending>,
    /// Records of a journal block that is written after the flush under way, or is being written.
    sealed: Vec<Pending>,
    /// Records of a journal block that is written and durable after the flush under way.
    written: Vec<Pending>,
    pub image: AlignedBlock,
    records: Vec<Record>,
    appended: u64,
    committed: u64,
    wanted: u64,
    /// The next block, and the checksum of the one before it.
    pub sequence: u64,
    pub previous: u32,
    /// The first block that is needed.
    pub start: u64,
    phase: CommitPhase,
    flushes_started: u64,
    flushes_done: u64,
    flushes_wanted: u64,
    /// The device has failed, and its cache was given up elsewhere: further records need not be durable.
    pub is_given_up: bool,
}

impl Journal {
    /// The journal of a cache with so many slots. `start` is its first block that is needed, `sequence` its next one,
    /// and `previous` the checksum of the block before that.
    pub fn new(start: u64, sequence: u64, previous: u32, slots: usize) -> Journal {
        Journal {
            // Beyond the bound each request may add a record or two, and so may whatever is being cleaned.
            open: VecDeque::with_capacity(CROWDED + RECORDS + slots * 2 + super::cleaner::CLEANED_MAX),
            sealed: Vec::with_capacity(RECORDS),
            written: Vec::with_capacity(RECORDS),
            image: AlignedBlock([0; BLOCK_BYTES]),
            records: Vec::with_capacity(RECORDS),
            appended: 0,
            committed: 0,
            wanted: 0,
            sequence,
            previous,
            start,
            phase: CommitPhase::Idle,
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

    /// The number of the record after which the device knows the state of `blocks`, if it does not yet.
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

    /// Whether no block of the ring is needed, and no record waits.
    pub fn is_empty(&self) -> bool {
        self.sequence == self.start && self.appended == self.committed
    }

    /// Begins the next flush if a request needs one. Before it, the records that wait become the next block, if that is
    /// wanted and its number is below `end`.
    pub fn begin_flush(&mut self, end: u64, uuid: &[u8; 16]) -> Option<OwnOperation> {
        if self.phase != CommitPhase::Idle {
            return None;
        }
        let is_wanted = self.wanted > self.committed + (self.written.len() + self.sealed.len()) as u64;
        let seals = is_wanted && self.sequence < end && !self.open.is_empty();
        if !seals && self.written.is_empty() && self.flushes_done >= self.flushes_wanted {
            return None;
        }
        if seals {
            self.seal(uuid);
        }
        self.flushes_started += 1;
        self.phase = CommitPhase::Flushing;
        Some(OwnOperation::flush(Own::CacheFlush, Target::Cache))
    }

    /// What was written before the flush is durable. Says whether a block of the journal is among that, and hands each
    /// unit that is free now to `free`.
    pub fn flushed(&mut self, mut free: impl FnMut(UnitId)) -> bool {
        self.flushes_done = self.flushes_started;
        if self.written.is_empty() {
            return false;
        }
        self.committed += self.written.len() as u64;
        while let Some(pending) = self.written.pop() {
            pending.freed.into_iter().for_each(&mut free);
        }
        true
    }

    /// After a flush: the write of the block with the records that the flush allows, if there is one.
    pub fn write_block(&mut self, layout: &Layout) -> Option<OwnOperation> {
        if self.sealed.is_empty() {
            self.phase = CommitPhase::Idle;
            return None;
        }
        self.phase = CommitPhase::Writing;
        Some(OwnOperation::write(Own::Journal, layout.journal_block(self.sequence - 1)))
    }

    /// The block is written, and durable after the next flush.
    pub fn block_written(&mut self) {
        std::mem::swap(&mut self.sealed, &mut self.written);
        self.phase = CommitPhase::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::journal::Change;
    use crate::units::Pool;
    use plimsoll_core::Class;

    const LAYOUT: Layout = Layout { units: 8, journal_blocks: 16 };
    const UUID: [u8; 16] = [7; 16];

    fn record(block: u64) -> Record {
        let (class, pool) = (Class::UNCLASSIFIED, Pool::default());
        Record { change: Change::Dirty, block, class, pool, unit: UnitId(0), checksum: 0 }
    }

    /// Ends the flush under way; the units that it frees.
    fn flush(journal: &mut Journal) -> (bool, Vec<UnitId>) {
        let mut freed = Vec::new();
        (journal.flushed(|unit| freed.push(unit)), freed)
    }

    /// Planted break: a block that is written counts as durable, red.
    #[test]
    fn a_record_is_durable_after_a_flush_a_block_and_a_flush() {
        let mut journal = Journal::new(3, 5, 0, 4);
        journal.append(record(70), Some(UnitId(2)));
        assert_eq!(journal.begin_flush(9, &UUID), None, "no request wants it");
        journal.want_all();
        let flush_of_cache = Some(OwnOperation::flush(Own::CacheFlush, Target::Cache));
        assert_eq!(journal.begin_flush(9, &UUID), flush_of_cache);
        assert_eq!(journal.begin_flush(9, &UUID), None, "one is under way");
        assert_eq!(flush(&mut journal), (false, Vec::new()));
        let block = OwnOperation::write(Own::Journal, LAYOUT.journal_block(5));
        assert_eq!((journal.write_block(&LAYOUT), journal.sequence), (Some(block), 6));
        journal.block_written();
        assert_eq!((journal.committed(), journal.speaks_of(&(70..71))), (0, Some(1)));
        assert_eq!(journal.begin_flush(9, &UUID), flush_of_cache);
        assert_eq!(flush(&mut journal), (true, vec![UnitId(2)]));
        assert_eq!((journal.committed(), journal.speaks_of(&(70..71))), (1, None));
        assert_eq!(journal.write_block(&LAYOUT), None);
    }

    #[test]
    fn one_flush_serves_two_blocks() {
        let mut journal = Journal::new(0, 0, 0, 4);
        for (block, is_durable) in [(1, false), (2, true), (3, true)] {
            journal.append(record(block), None);
            journal.want_all();
            assert!(journal.begin_flush(9, &UUID).is_some());
            assert_eq!(flush(&mut journal).0, is_durable, "the block before {block}");
            assert!(journal.write_block(&LAYOUT).is_some());
            journal.block_written();
        }
        assert_eq!((journal.appended(), journal.committed()), (3, 2));
    }

    /// Planted break: the end of the room is not looked at, red.
    #[test]
    fn where_the_ring_is_full_records_wait_and_flushes_do_not() {
        let mut journal = Journal::new(0, 9, 0, 4);
        journal.append(record(1), None);
        journal.want_all();
        assert_eq!(journal.begin_flush(9, &UUID), None);
        let flush_number = journal.want_flush();
        assert!(journal.begin_flush(9, &UUID).is_some());
        assert_eq!(flush(&mut journal), (false, Vec::new()));
        assert_eq!((journal.write_block(&LAYOUT), journal.flushes_done()), (None, flush_number));
        assert!(journal.begin_flush(10, &UUID).is_some(), "now there is room");
    }
}
