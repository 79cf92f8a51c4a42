//! Requests under way: where each stands, its data, and who has to wait for whom.
//!
//! A block has one request at a time. Who comes meanwhile waits for it, in the order of coming; so nobody below has to ask what
//! else may be happening to his block.

use super::bytes::Block;
use super::layout::BLOCK_BYTES;
use crate::units::{Pool, UnitId};
use plimsoll_core::Class;

/// No block is locked.
const NOT_LOCKED: u64 = u64::MAX;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Trim,
    Flush,
    /// A dirty unit is copied to the store: because the policy gave it up, or because everything is being cleaned.
    Clean {
        is_victim: bool,
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
    /// For what the journal says of its block to be durable, before the block is changed on the store.
    Known,
    /// To be durable in the journal.
    Commit,
    /// For a flush of the store.
    StoreFlush,
    /// For its block from a unit.
    ReadUnit,
    /// For the rest of its block from a unit: what is written is not a whole one.
    Merge,
    /// For the store, without any part of the cache.
    Around,
    /// For its block from the store, which is then put into a unit.
    Fetch,
    /// For the unit into which it is put.
    Promote,
    /// For the unit to which it is written.
    WriteUnit,
    /// For the store to have what a unit holds, or to be rid of a block.
    Store,
    /// For the host to take the answer.
    Answered,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub step: Step,
    pub kind: Kind,
    pub token: u64,
    pub block: u64,
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
    /// The order of coming.
    ticket: u64,
    /// The host has an answer that it did not take yet.
    pub is_answered: bool,
}

/// Memory that a device can be read to and written from.
#[repr(align(4096))]
#[derive(Clone)]
pub(super) struct Page(pub Block);

/// A fixed number of requests.
pub(super) struct Slots {
    pub slots: Vec<Slot>,
    /// What each reads or writes.
    pub data: Box<[Page]>,
    /// What a write that is not of a whole block is merged with.
    pub old: Box<[Page]>,
    /// The block that each holds.
    locked: Vec<u64>,
    waiting: u32,
    vacant: Vacant,
    /// Slots below this are for requests, the others for cleaning.
    requests: u32,
    vacant_clean: Vacant,
    tickets: u64,
}

/// Slots that are vacant. The lowest is taken first, so that neighbouring blocks have neighbouring slots, and one request of a host's
/// can move them all. O(slots / 64).
struct Vacant {
    /// The first of them all, and a bit for each from there on.
    first: u32,
    words: Vec<u64>,
    count: u32,
}

impl Vacant {
    fn new(slots: std::ops::Range<u32>) -> Vacant {
        let mut vacant = Vacant { first: slots.start, words: vec![0; slots.len().div_ceil(64)], count: 0 };
        slots.for_each(|slot| vacant.give_back(slot));
        vacant
    }

    fn take(&mut self) -> Option<u32> {
        let (at, word) = self.words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        self.count -= 1;
        Some(self.first + at as u32 * 64 + bit)
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
            kind: Kind::Flush,
            token: 0,
            block: 0,
            from: 0,
            to: 0,
            class: Class::UNCLASSIFIED,
            pool: Pool::default(),
            unit: UnitId(0),
            is_relocated: false,
            records: 0,
            store_writes: 0,
            ticket: 0,
            is_answered: false,
        };
        Slots {
            slots: vec![slot; count],
            data: vec![Page([0; BLOCK_BYTES]); count].into(),
            old: vec![Page([0; BLOCK_BYTES]); requests as usize].into(),
            locked: vec![NOT_LOCKED; count],
            waiting: 0,
            vacant: Vacant::new(0..requests),
            requests,
            vacant_clean: Vacant::new(requests..requests + cleaning),
            tickets: 0,
        }
    }

    /// A slot of a new request, if there is one.
    pub fn take(&mut self, kind: Kind, token: u64, block: u64) -> Option<usize> {
        let list = if matches!(kind, Kind::Clean { .. }) { &mut self.vacant_clean } else { &mut self.vacant };
        let at = list.take()? as usize;
        self.tickets += 1;
        let slot = &mut self.slots[at];
        (slot.kind, slot.token, slot.block, slot.ticket) = (kind, token, block, self.tickets);
        (slot.is_relocated, slot.is_answered, slot.records, slot.store_writes) = (false, false, 0, 0);
        slot.step = Step::Lock;
        Some(at)
    }

    /// As many requests as there can be at once.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Nobody is under way.
    pub fn is_idle(&self) -> bool {
        self.vacant.count as usize + self.vacant_clean.count as usize == self.slots.len()
    }

    /// Whether another request can be taken.
    pub fn has_room(&self) -> bool {
        self.vacant.count > 0
    }

    /// Whether another unit can be cleaned.
    pub fn can_clean(&self) -> bool {
        self.vacant_clean.count > 0
    }

    /// Units that are being cleaned now.
    pub fn cleaning(&self) -> usize {
        self.slots.len() - self.requests as usize - self.vacant_clean.count as usize
    }

    /// The slot is done with.
    pub fn give_back(&mut self, at: usize) {
        self.slots[at].step = Step::Vacant;
        let list = if at < self.requests as usize { &mut self.vacant } else { &mut self.vacant_clean };
        list.give_back(at as u32);
    }

    /// Whether somebody has `block`.
    pub fn is_locked(&self, block: u64) -> bool {
        self.locked.contains(&block)
    }

    /// Locks the slot's block. False if somebody else has it: the slot will be told.
    pub fn lock(&mut self, at: usize) -> bool {
        let block = self.slots[at].block;
        if self.is_locked(block) {
            self.slots[at].step = Step::Lock;
            self.waiting += 1;
            return false;
        }
        self.locked[at] = block;
        true
    }

    /// Unlocks it, and answers who has it now.
    pub fn unlock(&mut self, at: usize) -> Option<usize> {
        let block = std::mem::replace(&mut self.locked[at], NOT_LOCKED);
        if self.waiting == 0 || block == NOT_LOCKED {
            return None;
        }
        // Who unlocks may not have got further than that.
        let waits = |&(next, slot): &(usize, &Slot)| slot.step == Step::Lock && slot.block == block && next != at;
        let (next, _) = self.slots.iter().enumerate().filter(waits).min_by_key(|(_, slot)| slot.ticket)?;
        self.waiting -= 1;
        self.locked[next] = block;
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
    }
}
