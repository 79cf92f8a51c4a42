//! The cache at work: it takes requests and the outcomes of its operations, and hands out operations and answers.
//!
//! Nothing here waits, reads a clock or touches a device, and after [`CacheStore::new`] nothing is allocated. The host
//! asks for [`CacheStore::next_operation`] until there is none. It does them in any order, also all at once, and
//! reports the outcome of each. So a test can stop it between any two steps of any order, which is what
//! `tests/store/crash.rs` does.
//!
//! **It conducts.** Each part beside this file has its own state, gets what it needs to know, and returns the
//! operations that follow. What concerns several parts is here and in this folder: nothing else has all of them.
//!
//! | part | file | conducted in |
//! | --- | --- | --- |
//! | slots | `slots` | `requests`, `past` |
//! | turns | `turns` with `pace` | `entering` |
//! | journal, snapshot | `commit`, `snapshot` | here |
//! | cleaner, with what is refused, damaged and written back early | `cleaner`, `refused`, `write_back` | `cleaning` |
//! | the store's writes and flushes | `store_side` | `requests`, `cleaning` |
//! | what waits for the host | `outbox` | here |
//!
//! `control` has what the owner asks for, `audit` what tests do.

mod audit;
mod cleaning;
mod control;
mod entering;
mod past;
mod requests;

use super::bytes::{BLOCK_BYTES, Block};
use super::cleaner::Cleaner;
use super::commit::Journal;
use super::contents::encode_page;
use super::marks::Marks;
use super::opened::Opened;
use super::operation::{Action, Failure, Operation, Request, RequestKind, Semantics, Target};
use super::outbox::{Outbox, Own};
use super::pages::Pages;
use super::slots::{Slots, Step, TaskKind};
use super::snapshot::Snapshot;
use super::store_side::StoreSide;
use super::superblock::Superblock;
use super::turns::Turns;
use crate::cache::Cache;
use plimsoll_core::class::CLASSES;
use std::collections::VecDeque;

/// Bounds on work under way. Each unit of it takes a buffer of a block or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Requests, 1 to 256; a request beyond that is told to come again.
    pub requests: u32,
    /// Units that are copied to the store at a time, 1 to 64. Half of them are one turn of the syncer, and make runs of
    /// neighbours.
    pub cleaning: u32,
}

impl Default for Depth {
    fn default() -> Depth {
        Depth { requests: 128, cleaning: 64 }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads of blocks that were in the cache.
    pub read_hits: u64,
    /// Other reads.
    pub read_misses: u64,
    /// Writes of blocks that were in the cache.
    pub write_hits: u64,
    /// Writes of blocks that were not, and came into it.
    pub writes_taken: u64,
    /// Writes past the cache.
    pub writes_around: u64,
    /// Units that the syncer copied to the store.
    pub cleaned: u64,
    /// Blocks of the journal that were written.
    pub commits: u64,
    /// Snapshots of the map.
    pub snapshots: u64,
    /// Units with damaged data: clean ones, which the store replaced, and dirty ones, which are lost. Each unit counts
    /// once, however often a read or a pass meets it.
    pub damaged_clean: u64,
    /// See there.
    pub damaged_dirty: u64,
}

/// Requests for blocks of a class so far, and hits among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Reads of a block, or a part of it.
    pub reads: u64,
    /// Reads of a block that was in the cache.
    pub read_hits: u64,
    /// Writes.
    pub writes: u64,
    /// Writes of a block that was in the cache.
    pub write_hits: u64,
}

/// A cache on a device.
pub struct CacheStore {
    superblock: Superblock,
    cache: Cache,
    marks: Marks,
    pages: Pages,
    semantics: Semantics,
    slots: Slots,
    outbox: Outbox,
    answers: VecDeque<(u32, Option<Failure>)>,
    runnable: VecDeque<u32>,
    journal: Journal,
    store: StoreSide,
    cleaner: Cleaner,
    snapshot: Snapshot,
    turns: Turns,
    is_closing: bool,
    has_failed: bool,
    counters: Counters,
    class_counters: Box<[ClassCounters; CLASSES]>,
}

impl CacheStore {
    /// Sets a cache to work that was found.
    pub fn new(opened: Opened, semantics: Semantics, depth: Depth) -> CacheStore {
        let Opened { superblock, cache, marks, pages, sequence, previous, .. } = opened;
        let depth = Depth { requests: depth.requests.clamp(1, 256), cleaning: depth.cleaning.clamp(1, 64) };
        let slots = (depth.requests + depth.cleaning) as usize;
        let mut store = CacheStore {
            journal: Journal::new(superblock.journal_sequence, sequence, previous, slots),
            superblock,
            turns: Turns::new(cache.units.count(), cache.watermark_low, depth.requests),
            cache,
            marks,
            pages,
            semantics,
            slots: Slots::new(depth.requests, depth.cleaning),
            outbox: Outbox::new(slots as u32),
            answers: VecDeque::with_capacity(slots),
            runnable: VecDeque::with_capacity(slots * 2),
            store: StoreSide::default(),
            cleaner: Cleaner::new(),
            snapshot: Snapshot::new(),
            is_closing: false,
            has_failed: false,
            counters: Counters::default(),
            class_counters: Box::default(),
        };
        store.set_semantics(semantics);
        store
    }

    /// Requests that can be taken. At 0, [`CacheStore::submit`] refuses every request.
    pub fn room(&self) -> u32 {
        self.slots.room()
    }

    /// Requests under way, including answered ones with a block that is still put into its unit.
    pub fn requests_under_way(&self) -> u32 {
        self.slots.requests() - self.room()
    }

    /// How many of `requests` can have places together. O(places).
    pub fn room_together(&self, requests: u32) -> u32 {
        self.slots.room_together(requests)
    }

    /// A request for `block` comes soon, after those announced before: starts loading the memory that it needs.
    #[inline]
    pub fn announce(&mut self, block: u64) {
        self.cache.announce(block);
    }

    /// So many requests come next, for blocks one behind the other. A host that says so before finds that its requests
    /// [go on](Self::goes_on), as long as there are so many [places together](Self::room_together). O(places).
    pub fn expect(&mut self, requests: u32) {
        self.slots.expect(requests);
    }

    /// Takes a request; `data` is what is written. False if the request has to wait. Reasons are no room, no room in
    /// the journal for its changes, or a write of a new block before its turn (`docs/cache.md`, overload). Ask again
    /// after another operation has ended. There is one under way then, or an answer to be taken.
    pub fn submit(&mut self, request: &Request, data: &[u8]) -> bool {
        let is_change = matches!(request.kind, RequestKind::Write | RequestKind::Trim);
        self.turns.submitted();
        if self.room() == 0 {
            return false;
        }
        self.turns.was_refused = (is_change && self.is_crowded()) || self.must_wait(request);
        if self.turns.was_refused {
            return false;
        }
        let kind = match request.kind {
            RequestKind::Read => TaskKind::Read,
            RequestKind::Write => TaskKind::Write,
            RequestKind::Trim => TaskKind::Trim,
            RequestKind::Flush => TaskKind::Flush,
        };
        let at = self.slots.take(kind, request.token, request.block).expect("there is room");
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to, slot.class, slot.pool) = (request.from, request.to, request.class, request.pool);
        if kind == TaskKind::Write {
            self.slots.data[at].0[usize::from(request.from)..usize::from(request.to)].copy_from_slice(data);
        }
        if kind == TaskKind::Flush {
            self.start_flush(at);
        } else if self.slots.lock(at) {
            self.runnable.push_back(at as u32);
        }
        self.cleaner.resume();
        self.drive();
        true
    }

    /// Whether the last submitted request wanted a unit for a block that the cache did not have.
    pub fn wanted_unit(&self) -> bool {
        self.turns.wanted_unit
    }

    /// Whether the last submitted request has to wait for a unit or for the journal. All others that were refused wait
    /// for a place.
    pub fn refused_for_turn(&self) -> bool {
        self.turns.was_refused
    }

    /// Whether so much waits for the journal that no more requests should come; false if the journal cannot be written
    /// any more.
    fn is_crowded(&self) -> bool {
        self.journal.is_crowded() && !self.has_failed
    }

    /// Something to do, if there is anything.
    pub fn next_operation(&mut self) -> Option<Operation> {
        self.outbox.next()
    }

    /// Memory that an operation reads into or writes from. It does not move while the operation is under way.
    pub fn buffer(&mut self, operation: &Operation) -> &mut [u8] {
        let block: &mut Block = match self.outbox.owner(operation.id) {
            Err(slot) if self.slots.slots[slot].step == Step::Merge => &mut self.slots.old[slot].0,
            Err(slot) => &mut self.slots.data[slot].0,
            Ok(Own::Journal) => &mut self.journal.image.0,
            Ok(Own::Superblock) => &mut self.snapshot.superblock.0,
            Ok(Own::Page(at)) => &mut self.snapshot.pages[at].0,
            Ok(Own::CacheFlush | Own::StoreFlush) => unreachable!("a flush has no buffer"),
        };
        let from = operation.offset_bytes as usize % BLOCK_BYTES;
        &mut block[from..from + operation.length_bytes as usize]
    }

    /// Whether both move or trim a whole block, and `next` follows `before` on the store and in memory. Then a host may
    /// do both at once.
    pub fn goes_on(&self, before: &Operation, next: &Operation) -> bool {
        let moves_block = |operation: &Operation| {
            let slot = self.slots.slots.get(operation.id as usize);
            let is_transfer = operation.action != Action::Flush;
            let is_whole = operation.length_bytes as usize == BLOCK_BYTES;
            operation.target == Target::Store
                && is_transfer
                && is_whole
                && slot.is_some_and(|slot| slot.step != Step::Merge)
        };
        let is_next = next.id == before.id + 1 && next.offset_bytes == before.offset_bytes + BLOCK_BYTES as u64;
        is_next && next.action == before.action && moves_block(before) && moves_block(next)
    }

    /// Start of the bytes of `count` operations from `first` on, each of which [follows](Self::goes_on) the one before.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn buffer_of_run(&mut self, first: &Operation, count: u32) -> *mut u8 {
        self.slots.data[first.id as usize..][..count as usize].as_mut_ptr().cast()
    }

    /// An operation ended, with success or without.
    pub fn completed(&mut self, id: u32, has_succeeded: bool) {
        match self.outbox.owner(id) {
            Err(slot) => self.slot_completed(slot, has_succeeded),
            Ok(Own::StoreFlush) => self.store_flushed(has_succeeded),
            Ok(own) => self.own_ended(own, has_succeeded),
        }
        self.drive();
    }

    /// Hands the next answer to `take`: the request's token, its failure if any, and the bytes that were read. False if
    /// there is none. While the cache is being closed, there may be an operation after the last one.
    pub fn next_answer(&mut self, take: impl FnOnce(u64, Option<Failure>, &[u8])) -> bool {
        let Some((at, failure)) = self.answers.pop_front() else { return false };
        let at = at as usize;
        let slot = &mut self.slots.slots[at];
        slot.is_answered = false;
        take(slot.token, failure, &self.slots.data[at].0[usize::from(slot.from)..usize::from(slot.to)]);
        if slot.step == Step::Answered {
            self.slots.give_back(at);
            if self.is_closing && self.slots.is_idle() {
                // Perhaps no later event comes to begin the last snapshot.
                self.drive();
            }
        }
        true
    }

    /// An operation of the journal or of the snapshot ended.
    fn own_ended(&mut self, own: Own, has_succeeded: bool) {
        if let Own::Page(at) = own {
            self.snapshot.page_ended(at);
        }
        if !has_succeeded {
            return self.fail();
        }
        match own {
            Own::Journal => self.journal.block_written(),
            Own::CacheFlush => self.cache_flushed(),
            Own::Superblock => self.snapshot.superblock_written(&mut self.journal),
            Own::Page(_) | Own::StoreFlush => {}
        }
    }

    /// Earlier writes to the device are durable. The old units of a block of the journal are free, and the requests
    /// that waited for it go on.
    fn cache_flushed(&mut self) {
        let Self { journal, cache, .. } = self;
        if journal.flushed(|unit| cache.release(unit)) {
            self.counters.commits += 1;
            self.recheck();
        }
        let write = self.journal.write_block(&self.superblock.layout);
        write.into_iter().for_each(|operation| self.outbox.push_own(operation));
    }

    /// Begins the next flush of the device if the journal or the snapshot needs one.
    fn drive_journal(&mut self) {
        if self.has_failed {
            return;
        }
        let end = self.snapshot.journal_end(self.journal.start, &self.superblock.layout);
        let flush = self.journal.begin_flush(end, &self.superblock.uuid);
        flush.into_iter().for_each(|operation| self.outbox.push_own(operation));
    }

    /// Whether the map says everything, so that a start reads nothing of the journal.
    fn is_snapshot_complete(&self) -> bool {
        self.snapshot.is_complete(&self.journal, &self.pages)
    }

    fn begins_snapshot(&self) -> bool {
        let is_all_durable = self.journal.appended() == self.journal.committed();
        let is_last = self.is_ready_to_close() && is_all_durable && !self.is_snapshot_complete();
        is_last || Snapshot::is_due(&self.journal, &self.superblock.layout)
    }

    /// Goes on with the snapshot, or begins one if it is time. In a shutdown, the next one may be due when one is done:
    /// for the records that the journal got meanwhile.
    fn drive_snapshot(&mut self) {
        while !self.has_failed {
            if self.is_closing {
                self.journal.want_all();
                self.record_what_reads_brought();
            }
            if self.snapshot.is_idle() && self.begins_snapshot() {
                self.snapshot.begin(&self.journal);
            }
            let Self { snapshot, journal, pages, superblock, cache, marks, outbox, .. } = self;
            let uuid = &superblock.uuid;
            let holds = snapshot.go_on(
                journal,
                pages,
                superblock,
                |head, image| encode_page(cache, marks, uuid, head, image),
                |operation| outbox.push_own(operation),
            );
            let Some(holds) = holds else { return };
            self.superblock = holds;
            self.journal.start = holds.journal_sequence;
            self.counters.snapshots += 1;
        }
    }

    /// Starts all work that can go on.
    fn drive(&mut self) {
        loop {
            while let Some(at) = self.runnable.pop_front() {
                // A slot may stand here twice, or was refused meanwhile.
                if self.slots.slots[at as usize].can_run() {
                    self.run(at as usize);
                }
            }
            self.make_ready();
            self.drive_cleaner();
            self.drive_snapshot();
            self.drive_journal();
            if self.runnable.is_empty() {
                return;
            }
        }
    }

    /// The journal or the map cannot be written any more: no new change can be made durable. What is in the cache can
    /// be read; after the next start all of it is there that was acknowledged as durable.
    fn fail(&mut self) {
        self.has_failed = true;
        for at in 0..self.slots.slots.len() {
            let slot = &self.slots.slots[at];
            if matches!(slot.step, Step::Unit | Step::Known | Step::Commit) {
                self.refuse(at);
            }
        }
    }

    /// No request may wait for a device that has failed.
    fn refuse(&mut self, at: usize) {
        match self.slots.slots[at].kind {
            TaskKind::Clean { .. } => self.clean_refused(at),
            _ => self.finish(at, Some(Failure::Device)),
        }
    }
}
