//! The cache at work: it is handed requests and what became of its operations, and hands out operations and answers.
//!
//! Nothing here waits, reads a clock or touches a device, and after [`CacheStore::new`] nothing is allocated. The host
//! asks for [`CacheStore::next_operation`] until there is none, does them in any order and all at once if it likes, and
//! says of each how it ended. So a test can stop it between any two steps of any order, which is what
//! `tests/store/crash.rs` does.

use super::bytes::{BLOCK_BYTES, Block};
use super::cleaner::Cleaner;
use super::commit::Journal;
use super::marks::Marks;
use super::operation::{Action, Failure, Operation, Request, RequestKind, Semantics, Target};
use super::pace::Pace;
use super::pages::Pages;
use super::recovery::Opened;
use super::slots::{Kind, Slots, Step};
use super::snapshot::Snapshot;
use super::store_side::StoreSide;
use super::superblock::Superblock;
use super::turns::pace_of;
use crate::cache::Cache;
use plimsoll_core::class::CLASSES;
use std::collections::VecDeque;

/// How much is under way at once; each takes a buffer of a block or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Requests, 1 to 256; a request beyond that is told to come again.
    pub requests: u32,
    /// Units that are copied to the store, 1 to 64: half of them are one turn of the syncer, and make runs of
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

/// How often blocks of a class were asked for so far, and found in the cache.
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
    pub(super) superblock: Superblock,
    pub(super) cache: Cache,
    pub(super) marks: Marks,
    pub(super) pages: Pages,
    pub(super) semantics: Semantics,
    pub(super) slots: Slots,
    pub(super) operations: VecDeque<Operation>,
    pub(super) answers: VecDeque<(u32, Option<Failure>)>,
    pub(super) runnable: VecDeque<u32>,
    pub(super) journal: Journal,
    pub(super) store: StoreSide,
    pub(super) cleaner: Cleaner,
    pub(super) snapshot: Snapshot,
    /// For what comes in.
    pub(super) pace: Pace,
    /// A write was told to come again for a unit.
    pub(super) is_turn_awaited: bool,
    /// A request waits for an empty unit.
    pub(super) is_unit_wanted: bool,
    pub(super) is_closing: bool,
    pub(super) has_failed: bool,
    pub(super) counters: Counters,
    pub(super) class_counters: Box<[ClassCounters; CLASSES]>,
}

impl CacheStore {
    /// Sets a cache to work that was found.
    pub fn new(opened: Opened, semantics: Semantics, depth: Depth) -> CacheStore {
        let Opened { superblock, cache, marks, pages, sequence, previous, .. } = opened;
        let depth = Depth { requests: depth.requests.clamp(1, 256), cleaning: depth.cleaning.clamp(1, 64) };
        let slots = (depth.requests + depth.cleaning) as usize;
        let mut store = CacheStore {
            journal: Journal::new(&superblock, sequence, previous, slots),
            superblock,
            pace: pace_of(&cache, depth.requests),
            cache,
            marks,
            pages,
            semantics,
            slots: Slots::new(depth.requests, depth.cleaning),
            operations: VecDeque::with_capacity(slots * 2),
            answers: VecDeque::with_capacity(slots),
            runnable: VecDeque::with_capacity(slots * 2),
            store: StoreSide::default(),
            cleaner: Cleaner::new(),
            snapshot: Snapshot::new(),
            is_turn_awaited: false,
            is_unit_wanted: false,
            is_closing: false,
            has_failed: false,
            counters: Counters::default(),
            class_counters: Box::default(),
        };
        store.set_semantics(semantics);
        store
    }

    /// How many requests can be taken: as long as none, [`CacheStore::submit`] says no to every request.
    pub fn room(&self) -> u32 {
        self.slots.room()
    }

    /// Requests under way, including those with an answer already taken while a block that was read is put into its
    /// unit.
    pub fn requests_under_way(&self) -> u32 {
        self.slots.requests() - self.room()
    }

    /// How many of `requests` can have places together. O(places).
    pub fn room_together(&self, requests: u32) -> u32 {
        self.slots.room_together(requests)
    }

    /// `block` will be asked for soon, after those that were announced before: starts loading what that will look at.
    #[inline]
    pub fn announce(&mut self, block: u64) {
        self.cache.announce(block);
    }

    /// So many requests come next, for blocks one behind the other. A host that says so before finds that its requests
    /// [go on](Self::goes_on), as long as there are so many [places together](Self::room_together). O(places).
    pub fn expect(&mut self, requests: u32) {
        self.slots.expect(requests);
    }

    /// Takes a request; `data` is what is written. False if it has to wait, because there is no room, because the
    /// journal has no room for what it changes, or because it is a write of a new block before its turn
    /// (`docs/cache.md`, overload). Ask again after another operation has ended. There is one under way then, or an
    /// answer to be taken.
    pub fn submit(&mut self, request: &Request, data: &[u8]) -> bool {
        let is_change = matches!(request.kind, RequestKind::Write | RequestKind::Trim);
        (self.pace.wanted_unit, self.pace.refused_for_turn) = (false, false);
        if self.room() == 0 {
            return false;
        }
        self.pace.refused_for_turn = (is_change && self.is_crowded()) || self.must_wait(request);
        if self.pace.refused_for_turn {
            return false;
        }
        let kind = match request.kind {
            RequestKind::Read => Kind::Read,
            RequestKind::Write => Kind::Write,
            RequestKind::Trim => Kind::Trim,
            RequestKind::Flush => Kind::Flush,
        };
        let at = self.slots.take(kind, request.token, request.block).expect("there is room");
        let slot = &mut self.slots.slots[at];
        (slot.from, slot.to, slot.class, slot.pool) = (request.from, request.to, request.class, request.pool);
        if kind == Kind::Write {
            self.slots.data[at].0[usize::from(request.from)..usize::from(request.to)].copy_from_slice(data);
        }
        if kind == Kind::Flush {
            self.start_flush(at);
        } else if self.slots.lock(at) {
            self.runnable.push_back(at as u32);
        }
        self.cleaner.resume();
        self.drive();
        true
    }

    /// Whether the last request that was submitted wanted a unit for a block that the cache did not have.
    pub fn wanted_unit(&self) -> bool {
        self.pace.wanted_unit
    }

    /// Whether the last request that was submitted has to wait for a unit or for the journal. All others that were
    /// refused wait for a place.
    pub fn refused_for_turn(&self) -> bool {
        self.pace.refused_for_turn
    }

    /// Whether so much waits for the journal that no more requests should come; false if the journal is written no
    /// more.
    fn is_crowded(&self) -> bool {
        self.journal.is_crowded() && !self.has_failed
    }

    /// Something to do, if there is anything.
    pub fn next_operation(&mut self) -> Option<Operation> {
        self.operations.pop_front()
    }

    /// What an operation reads into or writes from; as long as it is under way, it stays where it is.
    pub fn buffer(&mut self, operation: &Operation) -> &mut [u8] {
        let id = operation.id;
        let slots = self.slots.slots.len() as u32;
        let block: &mut Block = match id.checked_sub(slots) {
            None if self.slots.slots[id as usize].step == Step::Merge => &mut self.slots.old[id as usize].0,
            None => &mut self.slots.data[id as usize].0,
            Some(own) => self.own_buffer(own),
        };
        let from = operation.offset_bytes as usize % BLOCK_BYTES;
        &mut block[from..from + operation.length_bytes as usize]
    }

    /// Whether both move or trim a whole block, and `next` goes on where `before` ends: on the store, and in memory.
    /// Then a host may do both at once.
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

    /// Where the bytes begin of so many operations from `first` on, each of which [goes on](Self::goes_on) where the
    /// one before ends.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn buffer_of_run(&mut self, first: &Operation, count: u32) -> *mut u8 {
        self.slots.data[first.id as usize..][..count as usize].as_mut_ptr().cast()
    }

    fn own_buffer(&mut self, own: u32) -> &mut Block {
        match own {
            Self::JOURNAL => &mut self.journal.image.0,
            Self::SUPERBLOCK => &mut self.snapshot.superblock.0,
            _ => &mut self.snapshot.pages[(own - Self::PAGES) as usize].0,
        }
    }

    /// An operation ended, with success or without.
    pub fn completed(&mut self, id: u32, has_succeeded: bool) {
        match id.checked_sub(self.slots.slots.len() as u32) {
            None => self.slot_completed(id as usize, has_succeeded),
            Some(Self::JOURNAL) => self.journal_written(has_succeeded),
            Some(Self::CACHE_FLUSH) => self.cache_flushed(has_succeeded),
            Some(Self::STORE_FLUSH) => self.store_flushed(has_succeeded),
            Some(Self::SUPERBLOCK) => self.superblock_written(has_succeeded),
            Some(own) => self.page_written((own - Self::PAGES) as usize, has_succeeded),
        }
        self.drive();
    }

    /// Hands the next answer to `take`: the request's token, whether it failed, and what was read. False if there is
    /// none. While the cache is being closed, there may be an operation after the last one.
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

    pub(super) const JOURNAL: u32 = 0;
    pub(super) const CACHE_FLUSH: u32 = 1;
    pub(super) const STORE_FLUSH: u32 = 2;
    pub(super) const SUPERBLOCK: u32 = 3;
    pub(super) const PAGES: u32 = 4;

    /// Hands out an operation of the cache's own.
    pub(super) fn own_operation(&mut self, own: u32, target: Target, action: Action, block: u64) {
        let id = self.slots.slots.len() as u32 + own;
        let length_bytes = if action == Action::Write { BLOCK_BYTES as u32 } else { 0 };
        let offset_bytes = block * BLOCK_BYTES as u64;
        self.operations.push_back(Operation { id, target, action, offset_bytes, length_bytes });
    }

    /// Starts all work that can go on.
    pub(super) fn drive(&mut self) {
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

    /// The journal or the map cannot be written any more: nothing new can be made durable. What is in the cache can be
    /// read; after the next start all of it is there that was acknowledged as durable.
    pub(super) fn fail(&mut self) {
        self.has_failed = true;
        for at in 0..self.slots.slots.len() {
            let slot = &self.slots.slots[at];
            if matches!(slot.step, Step::Unit | Step::Known | Step::Commit) {
                self.refuse(at);
            }
        }
    }

    /// No request may wait for a device that has failed.
    pub(super) fn refuse(&mut self, at: usize) {
        match self.slots.slots[at].kind {
            Kind::Clean { .. } => self.clean_refused(at),
            _ => self.finish(at, Some(Failure::Device)),
        }
    }
}
