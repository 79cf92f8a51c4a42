//! Requests under way: the step of each, its data, and the requests that wait for it.
//!
//! A block has one request at a time. A later request for the block waits, in order of arrival. So the code below need
//! not ask what else may be happening to its block.

use super::bytes::{BLOCK_BYTES, Block};
use super::locks::Locks;
use crate::units::{Pool, UnitId};
use plimsoll_core::Class;
use std::ops::Range;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    Read,
    Write,
    Trim,
    Flush,
    /// Copies a dirty unit to the store, because the policy gave it up, or because everything is being cleaned.
    Clean {
        /// The number of the job, if the policy gave it up.
        job: Option<u64>,
    },
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Vacant,
    /// For the request before it on its block.
    Lock,
    /// For an empty unit.
    Unit,
    /// Waits until the journal's record of its block is durable, before the block changes on the store.
    Known,
    /// To be durable in the journal.
    Commit,
    /// For a flush of the store.
    StoreFlush,
    /// For its block from a unit.
    ReadUnit,
    /// For its neighbours from theirs, to be copied with them.
    Neighbours,
    /// Waits for the rest of its block from a unit: the write does not cover the whole block.
    Merge,
    /// For the store, without any part of the cache.
    Around,
    /// For its block from the store, which is then put into a unit.
    Fetch,
    /// For the unit into which it is put.
    Promote,
    /// For the unit to which it is written.
    WriteUnit,
    /// Waits until the store has a unit's content, or has trimmed a block.
    Store,
    /// For the host to take the answer.
    Answered,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub step: Step,
    pub kind: TaskKind,
    pub token: u64,
    pub block: u64,
    /// How many blocks from there on: one, but of a range that is trimmed.
    pub blocks: u32,
    /// The bytes of the block that are meant.
    pub from: u16,
    pub to: u16,
    pub class: Class,
    pub pool: Pool,
    pub unit: UnitId,
    /// Whether the block was in the cache, so that `unit` takes the place of another.
    pub is_relocated: bool,
    /// Records that must be durable, and writes to the store.
    pub records: u64,
    pub store_writes: u64,
    /// A flush of the store failed during its write, so the write's success says nothing.
    pub is_doubtful: bool,
    /// The run of a copied unit, with consecutive slots and blocks.
    pub run: u64,
    /// Units that were tried for what is written, and are bad.
    pub tries: u8,
    /// The order of coming.
    ticket: u64,
    /// The host has an answer that it did not take yet.
    pub is_answered: bool,
}

impl Slot {
    /// The job by which it copies a unit that the policy gave up.
    pub fn job(&self) -> Option<u64> {
        match self.kind {
            TaskKind::Clean { job } => job,
            _ => None,
        }
    }

    /// Whether it waits for something that has come: its lock, a unit, or the journal. In all other steps an operation
    /// or the host has it.
    pub fn can_run(&self) -> bool {
        matches!(self.step, Step::Lock | Step::Unit | Step::Known)
    }

    /// Its blocks.
    pub fn range(&self) -> Range<u64> {
        self.block..self.block + u64::from(self.blocks)
    }
}

/// Memory that a device can be read to and written from.
#[repr(align(4096))]
#[derive(Clone)]
pub(super) struct AlignedBlock(pub Block);

/// A fixed number of requests.
pub(super) struct Slots {
    pub slots: Vec<Slot>,
    /// The data that each request reads or writes.
    pub data: Box<[AlignedBlock]>,
    /// The old content that a write of a part of a block is merged with.
    pub old: Box<[AlignedBlock]>,
    /// The block that each request locks.
    locked: Locks,
    /// Slots that hold several blocks.
    ranges: Vec<usize>,
    waiting: u32,
    vacant: Vacant,
    /// Slots below this are for requests, the others for cleaning.
    requests: u32,
    vacant_clean: Vacant,
    tickets: u64,
}

/// Slots that are vacant. Neighbouring blocks are given neighbouring slots if possible, so that one request of a host's
/// can move them all. A host that says how many requests are to come gets slots from the first gap with room for them,
/// or the longest gap. A single request is given the lowest, so that gaps stay long. O(slots).
struct Vacant {
    /// The first of them all, and a bit for each from there on.
    first: u32,
    words: Vec<u64>,
    count: u32,
    /// The slot of the next request, if that is vacant.
    next: Option<u32>,
}

impl Vacant {
    fn new(slots: Range<u32>) -> Vacant {
        let mut vacant = Vacant { first: slots.start, words: vec![0; slots.len().div_ceil(64)], count: 0, next: None };
        slots.for_each(|slot| vacant.give_back(slot));
        vacant
    }

    /// So many are going to be taken, one behind the other.
    fn expect(&mut self, count: u32) {
        self.next = (count > 1).then(|| self.gap(count).start);
    }

    /// The first gap of so many places, or the longest one.
    fn gap(&self, count: u32) -> Range<u32> {
        let (mut longest, mut from) = (0..0, 0);
        for end in 0..=self.words.len() as u32 * 64 {
            if self.has(end) {
                continue;
            }
            if end - from > longest.end - longest.start {
                longest = from..end;
            }
            if longest.end - longest.start >= count {
                break;
            }
            from = end + 1;
        }
        longest
    }

    fn has(&self, place: u32) -> bool {
        self.words.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn lowest(&self) -> Option<u32> {
        let (at, word) = self.words.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at as u32 * 64 + word.trailing_zeros())
    }

    fn take(&mut self) -> Option<u32> {
        let place = self.next.filter(|&next| self.has(next)).or_else(|| self.lowest())?;
        self.words[place as usize / 64] &= !(1 << (place % 64));
        self.count -= 1;
        self.next = self.next.map(|_| place + 1);
        Some(self.first + place)
    }

    fn give_back(&mut self, slot: u32) {
        let place = slot - self.first;
        self.words[place as usize / 64] |= 1 << (place % 64);
        self.count += 1;
    }
}

impl Slots {
    pub fn new(requests: u32, cleaning: u32) -> Slots {
        let count = (requests + cleaning) as usize;
        let slot = Slot {
            step: Step::Vacant,
            kind: TaskKind::Flush,
            token: 0,
            block: 0,
            blocks: 1,
            from: 0,
            to: 0,
            class: Class::UNCLASSIFIED,
            pool: Pool::default(),
            unit: UnitId(0),
            is_relocated: false,
            records: 0,
            store_writes: 0,
            is_doubtful: false,
            run: 0,
            tries: 0,
            ticket: 0,
            is_answered: false,
        };
        Slots {
            slots: vec![slot; count],
            data: vec![AlignedBlock([0; BLOCK_BYTES]); count].into(),
            old: vec![AlignedBlock([0; BLOCK_BYTES]); requests as usize].into(),
            locked: Locks::new(count),
            ranges: Vec::with_capacity(count),
            waiting: 0,
            vacant: Vacant::new(0..requests),
            requests,
            vacant_clean: Vacant::new(requests..requests + cleaning),
            tickets: 0,
        }
    }

    /// A slot of a new request, if there is one.
    pub fn take(&mut self, kind: TaskKind, token: u64, block: u64) -> Option<usize> {
        let list = if matches!(kind, TaskKind::Clean { .. }) { &mut self.vacant_clean } else { &mut self.vacant };
        let at = list.take()? as usize;
        self.tickets += 1;
        let slot = &mut self.slots[at];
        (slot.kind, slot.token, slot.block, slot.ticket) = (kind, token, block, self.tickets);
        (slot.is_relocated, slot.is_answered, slot.records, slot.store_writes) = (false, false, 0, 0);
        (slot.step, slot.tries, slot.blocks) = (Step::Lock, 0, 1);
        Some(at)
    }

    /// The most requests that there can be at once.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// No request and no copy is under way.
    pub fn is_idle(&self) -> bool {
        self.vacant.count as usize + self.vacant_clean.count as usize == self.slots.len()
    }

    /// How many other requests can be taken.
    pub fn room(&self) -> u32 {
        self.vacant.count
    }

    /// Number of `requests` other requests that fit into consecutive slots.
    pub fn room_together(&self, requests: u32) -> u32 {
        self.vacant.gap(requests).len() as u32
    }

    /// So many requests for neighbouring blocks are next.
    pub fn expect(&mut self, requests: u32) {
        self.vacant.expect(requests);
    }

    /// So many units are to be cleaned next, of neighbouring blocks perhaps.
    pub fn expect_cleaning(&mut self, units: usize) {
        self.vacant_clean.expect(units as u32);
    }

    /// Units that can be cleaned at once.
    pub fn cleaning_max(&self) -> usize {
        self.slots.len() - self.requests as usize
    }

    /// Units that are being cleaned now.
    pub fn cleaning(&self) -> usize {
        self.cleaning_max() - self.vacant_clean.count as usize
    }

    /// The slots of a run of units that are being cleaned.
    pub fn of_run(&self, run: u64) -> impl Iterator<Item = (usize, &Slot)> {
        let cleaning = self.slots.iter().enumerate().skip(self.requests as usize);
        cleaning.filter(move |(_, slot)| slot.run == run && slot.step != Step::Vacant)
    }

    /// The slot is done with.
    pub fn give_back(&mut self, at: usize) {
        self.slots[at].step = Step::Vacant;
        let list = if at < self.requests as usize { &mut self.vacant } else { &mut self.vacant_clean };
        list.give_back(at as u32);
    }

    /// Whether a slot has `block`.
    pub fn is_locked(&self, block: u64) -> bool {
        self.locked.contains(block) || self.ranges.iter().any(|&at| self.slots[at].range().contains(&block))
    }

    /// Whether a slot has one of `blocks`.
    pub fn is_any_locked(&self, blocks: &Range<u64>) -> bool {
        let meets = |other: Range<u64>| other.start < blocks.end && blocks.start < other.end;
        self.locked.iter().any(|block| blocks.contains(&block))
            || self.ranges.iter().any(|&at| meets(self.slots[at].range()))
    }

    /// Locks all blocks of the slot, none of which is locked.
    pub fn lock_range(&mut self, at: usize, blocks: u32) {
        self.slots[at].blocks = blocks;
        self.locked.set(at, self.slots[at].block);
        self.ranges.push(at);
    }

    /// Locks a freed block of `blocks` for the slot that has waited longest for it, and answers that slot. `unlocked`
    /// held the range.
    fn next_of_range(&mut self, blocks: &Range<u64>, unlocked: usize) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let has_lock = |at: usize| self.locked.of(at).is_some();
        let waits = |&(at, slot): &(usize, &Slot)| {
            // A range that fails before its first step is still at the step of a slot that waits.
            let is_another = at != unlocked && !has_lock(at);
            slot.step == Step::Lock && blocks.contains(&slot.block) && is_another && !self.is_locked(slot.block)
        };
        let (next, slot) = self.slots.iter().enumerate().filter(waits).min_by_key(|(_, slot)| slot.ticket)?;
        self.locked.set(next, slot.block);
        self.waiting -= 1;
        Some(next)
    }

    /// Unlocks a range, and hands to `take` each slot that gets one of its blocks.
    pub fn unlock_range(&mut self, at: usize, mut take: impl FnMut(usize)) {
        let blocks = self.slots[at].range();
        self.locked.take(at);
        self.ranges.retain(|&other| other != at);
        while let Some(next) = self.next_of_range(&blocks, at) {
            take(next);
        }
    }

    /// A slot that waits for `block` to copy it; only one with a job, if `jobs_only`.
    pub fn waiting_to_clean(&self, block: u64, jobs_only: bool) -> Option<usize> {
        let is_meant = |kind| matches!(kind, TaskKind::Clean { job } if job.is_some() || !jobs_only);
        let from = self.requests as usize;
        let mut cleaning = self.slots.iter().enumerate().skip(from);
        let waits = |at: usize, slot: &Slot| slot.step == Step::Lock && self.locked.of(at).is_none();
        cleaning.find(|&(at, slot)| slot.block == block && is_meant(slot.kind) && waits(at, slot)).map(|(at, _)| at)
    }

    /// The slot does not wait for its block any more.
    pub fn wait_no_more(&mut self, at: usize) {
        self.waiting -= 1;
        self.slots[at].step = Step::Vacant;
    }

    /// Whether each block has at most one slot, each waiting slot has one to wait for, and counts are right.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn audit(&self) -> Result<(), String> {
        let mut waiting = 0;
        for (at, slot) in self.slots.iter().enumerate() {
            let locked = self.locked.of(at);
            if let Some(block) = locked
                && (slot.step == Step::Vacant || slot.block != block)
            {
                return Err(format!("slot {at} is {:?} for block {} and has block {block}", slot.step, slot.block));
            }
            if let Some(block) = locked
                && self.locked.iter().filter(|&other| other == block).count() > 1
            {
                return Err(format!("block {block} is had twice"));
            }
            if slot.step == Step::Lock && locked.is_none() {
                waiting += 1;
                if !self.is_locked(slot.block) {
                    return Err(format!("slot {at} waits for block {}, which is not locked", slot.block));
                }
            }
            let vacant = if at < self.requests as usize { &self.vacant } else { &self.vacant_clean };
            if vacant.has(at as u32 - vacant.first) != (slot.step == Step::Vacant) {
                return Err(format!("slot {at} is {:?}, and given away or not", slot.step));
            }
        }
        let vacant = self.slots.iter().filter(|slot| slot.step == Step::Vacant).count() as u32;
        let counted = self.vacant.count + self.vacant_clean.count;
        if (waiting, vacant) != (self.waiting, counted) {
            let counted = (self.waiting, counted);
            return Err(format!("{waiting} wait and {vacant} slots are vacant, and {counted:?} are counted"));
        }
        Ok(())
    }

    /// Locks the slot's block. False if another slot has it: the slot will be told.
    pub fn lock(&mut self, at: usize) -> bool {
        let block = self.slots[at].block;
        if self.is_locked(block) {
            self.slots[at].step = Step::Lock;
            self.waiting += 1;
            return false;
        }
        self.locked.set(at, block);
        true
    }

    /// Unlocks it, and answers which slot has it now.
    pub fn unlock(&mut self, at: usize) -> Option<usize> {
        let block = self.locked.take(at)?;
        if self.waiting == 0 {
            return None;
        }
        // The slot that unlocks may not have got further than that.
        let waits = |&(next, slot): &(usize, &Slot)| slot.step == Step::Lock && slot.block == block && next != at;
        let (next, _) = self.slots.iter().enumerate().filter(waits).min_by_key(|(_, slot)| slot.ticket)?;
        self.waiting -= 1;
        self.locked.set(next, block);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Beside a set. Red if the highest is taken, and if words after the first are not looked at.
        #[test]
        fn the_lowest_vacant_slot_is_taken(
            first in 0u32..200,
            count in 1u32..200,
            steps in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..600),
        ) {
            let mut vacant = Vacant::new(first..first + count);
            let (mut free, mut taken): (BTreeSet<u32>, Vec<u32>) = ((first..first + count).collect(), Vec::new());
            for step in steps {
                match step {
                    Some(which) if !taken.is_empty() => {
                        let slot = taken.swap_remove(which.index(taken.len()));
                        vacant.give_back(slot);
                        free.insert(slot);
                    }
                    _ => {
                        let lowest = free.pop_first();
                        prop_assert_eq!(vacant.take(), lowest);
                        taken.extend(lowest);
                    }
                }
                prop_assert_eq!(vacant.count as usize, free.len());
            }
        }

        /// Red if the longest gap is taken for the first that is long enough, if a gap ends with a word, and if a
        /// single request is put behind those that came together.
        #[test]
        fn requests_that_come_together_are_put_together_where_there_is_room(
            first in 0u32..200,
            taken in prop::collection::vec(any::<bool>(), 1..200),
            wanted in 2u32..100,
        ) {
            let mut vacant = Vacant::new(first..first + taken.len() as u32);
            (0..taken.len()).for_each(|_| assert!(vacant.take().is_some()));
            let free: Vec<u32> = (first..).zip(&taken).filter(|(_, taken)| !**taken).map(|(slot, _)| slot).collect();
            free.iter().for_each(|&slot| vacant.give_back(slot));
            let gaps: Vec<&[u32]> = free.chunk_by(|slot, next| slot + 1 == *next).collect();
            let long_enough = gaps.iter().find(|gap| gap.len() >= wanted as usize);
            let longest = gaps.iter().rev().max_by_key(|gap| gap.len());
            let Some(gap) = long_enough.or(longest) else { return Ok(()) };
            vacant.expect(wanted);
            for &slot in gap.iter().take(wanted as usize) {
                prop_assert_eq!(vacant.take(), Some(slot));
            }
            vacant.expect(1);
            let left = free.iter().find(|slot| !gap.contains(slot) || **slot >= gap[0] + wanted);
            prop_assert_eq!(vacant.take(), left.copied());
        }
    }
}
