//! The log's room: a ring of blocks. Transactions take theirs at the head; the tail moves on when the oldest one's blocks
//! are all in place.

use super::{Journal, LOG_PER_TRANSACTION};
use crate::block::{Bio, BioEnd};
use crate::cache::{InodeNumber, PAGE_BYTES, frames};
use crate::fs::space::Blocks;
use crate::fs::{Actor, class, flush_bio};
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Operation};
use std::collections::{BTreeMap, BTreeSet};

/// Blocks left aside (`jbd2_log_space_left`).
const SLACK_BLOCKS: u64 = 32;

/// A committed transaction whose part of the log is in use.
struct Committed {
    length: u64,
    /// Blocks not known to be in place.
    blocks: BTreeSet<u64>,
}

/// The ring.
pub(super) struct Log {
    area: Blocks,
    /// Where the next transaction's part begins, counted from the ring's first block.
    head: u64,
    free: u64,
    /// Given back by transactions that are all in place, and usable when the journal's superblock says so.
    reclaimed: u64,
    committed: BTreeMap<u64, Committed>,
    /// Taken by the transaction that is being committed.
    taken: u64,
}

impl Log {
    pub(super) fn new(area: Blocks) -> Log {
        let ring = area.count - 1;
        Log { area, head: 0, free: ring, reclaimed: 0, committed: BTreeMap::new(), taken: 0 }
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// The next `count` places of the ring.
    pub(super) fn take(&mut self, count: u64) -> Vec<u64> {
        assert!(count <= self.free, "a transaction of {count} blocks in a journal with {} free", self.free);
        let ring = self.area.count - 1;
        let places = (0..count).map(|at| self.area.first + 1 + (self.head + at) % ring).collect();
        self.head = (self.head + count) % ring;
        self.free -= count;
        self.taken = count;
        places
    }

    /// What was taken holds transaction `id` and its blocks.
    pub(super) fn commit(&mut self, id: u64, blocks: BTreeSet<u64>) {
        for older in self.committed.values_mut() {
            older.blocks.retain(|block| !blocks.contains(block));
        }
        let length = std::mem::take(&mut self.taken);
        self.committed.insert(id, Committed { length, blocks });
    }

    pub(super) fn forget(&mut self, block: u64) {
        for committed in self.committed.values_mut() {
            committed.blocks.remove(&block);
        }
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> BTreeSet<u64> {
        self.committed.values().flat_map(|committed| &committed.blocks).copied().collect()
    }

    /// Blocks of the oldest transaction that are not in place.
    fn oldest(&self) -> Vec<u64> {
        self.committed.values().next().map_or(Vec::new(), |oldest| oldest.blocks.iter().copied().collect())
    }

    /// Takes out what is in place; whole transactions at the tail are reclaimed.
    fn clean(&mut self, is_in_place: impl Fn(u64) -> bool) {
        while let Some(mut oldest) = self.committed.first_entry() {
            oldest.get_mut().blocks.retain(|&block| !is_in_place(block));
            if !oldest.get().blocks.is_empty() {
                break;
            }
            self.reclaimed += oldest.remove().length;
        }
    }

    fn superblock_bio(&self, actor: &Actor) -> Bio {
        Bio {
            session: actor.session,
            causes: actor.causes.clone(),
            class: class::JOURNAL,
            operation: Operation::Write,
            offset: self.area.first * PAGE_BYTES,
            length: PAGE_BYTES as u32,
            is_sync: true,
            is_forced: true,
            file: None,
            end: BioEnd::Nothing,
        }
    }

    pub(super) fn assert_conserved(&self) {
        let used: u64 = self.committed.values().map(|committed| committed.length).sum();
        let ring = self.area.count - 1;
        assert_eq!(
            ring,
            self.free + used + self.reclaimed + self.taken,
            "log = free + used + reclaimed + being written"
        );
    }
}

impl Journal {
    /// Whether the log has too little room to let anybody join (`jbd2_log_space_left` < `j_max_transaction_buffers`).
    pub(super) fn lacks_space(&self) -> bool {
        self.state.borrow().log.free() < self.transaction_blocks_max + SLACK_BLOCKS
    }

    /// Takes out of the log's books what is in place; answers how many blocks wait for the superblock to be written.
    pub(super) fn clean_log(&self, machine: &Machine) -> u64 {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let is_held = |block: &u64| {
            let is_committing = state.committing.as_ref().is_some_and(|c| c.transaction.blocks.contains_key(block));
            is_committing || state.running.as_ref().is_some_and(|t| t.blocks.contains_key(block))
        };
        let cache = machine.cache.borrow();
        let is_busy = |flags: u8| flags & (frames::DIRTY | frames::WRITEBACK) != 0;
        let is_clean = |block| !cache.flags(InodeNumber::DEVICE, block).is_some_and(is_busy);
        state.log.clean(|block| is_clean(block) && !is_held(&block));
        state.log.reclaimed
    }

    /// Blocks that wait for the superblock to be written.
    pub(super) fn reclaimed(&self) -> u64 {
        self.state.borrow().log.reclaimed
    }

    /// Writes the journal's superblock: the tail moves, and `blocks` that were reclaimed before are free. What they held
    /// must be durable in place.
    pub(super) async fn move_tail(&self, machine: &Machine, actor: &Actor, blocks: u64) {
        let bio = self.state.borrow().log.superblock_bio(actor);
        machine.perform(bio).await;
        let mut state = self.state.borrow_mut();
        state.log.reclaimed -= blocks;
        state.log.free += blocks;
        drop(state);
        self.note_change(machine);
    }

    /// Makes room in the log: writes the oldest transaction's blocks in place, or has committed what holds them
    /// (`__jbd2_log_wait_for_space`). Whoever needs the room does it and waits.
    pub(super) async fn make_space(&self, machine: &Machine, actor: &Actor) {
        self.checkpointing.acquire(&machine.executor).await;
        if self.lacks_space() {
            let reclaimed = self.clean_log(machine);
            if reclaimed > 0 {
                machine.perform(flush_bio(actor)).await;
                self.move_tail(machine, actor, reclaimed).await;
            } else {
                let oldest = self.state.borrow().log.oldest();
                let session_only = Actor::proxy(actor.session, CauseSet::EMPTY);
                machine.write_blocks(&session_only, &oldest, true).await;
                if self.clean_log(machine) == 0 {
                    self.commit_holders(machine, &oldest).await;
                }
            }
        }
        self.checkpointing.release(&machine.executor);
    }

    /// What remains is in a later transaction: it must be committed before it can be written in place.
    async fn commit_holders(&self, machine: &Machine, blocks: &[u64]) {
        let id = {
            let state = self.state.borrow();
            let is_in = |t: &&super::Transaction| blocks.is_empty() || blocks.iter().any(|b| t.blocks.contains_key(b));
            let committing = state.committing.as_ref().map(|c| &c.transaction);
            committing.or(state.running.as_ref().filter(is_in)).map(|t| t.id)
        };
        if let Some(id) = id {
            self.request(machine, id);
            self.wait_committed(machine, id).await;
        }
    }

    /// Whether moving the tail by so much is worth a write in a commit (`jbd2_journal_commit_transaction`: a transaction's
    /// worth).
    pub(super) fn is_worth_moving(&self, blocks: u64) -> bool {
        blocks >= (self.state.borrow().log.area.count - 1) / LOG_PER_TRANSACTION
    }
}
