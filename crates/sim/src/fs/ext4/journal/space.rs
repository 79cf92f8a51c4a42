//! Making room in the log: what of old transactions is in place, and writing what is not (checkpoint).

use super::Journal;
use crate::block::{Bio, BioEnd};
use crate::cache::{InodeNumber, PAGE_BYTES, frames};
use crate::fs::{Actor, class, flush_bio};
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Operation};

/// Blocks left aside (`jbd2_log_space_left`).
const SLACK_BLOCKS: u64 = 32;

impl Journal {
    fn superblock_bio(&self, actor: &Actor) -> Bio {
        Bio {
            session: actor.session,
            causes: actor.causes.clone(),
            class: class::JOURNAL,
            operation: Operation::Write,
            offset: self.superblock * PAGE_BYTES,
            length: PAGE_BYTES as u32,
            is_sync: true,
            is_forced: true,
            file: None,
            end: BioEnd::Nothing,
        }
    }

    /// Whether the log has too little room to let a task join (`jbd2_log_space_left` < `j_max_transaction_buffers`).
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
        state.log.reclaimed()
    }

    /// Blocks that wait for the superblock to be written.
    pub(super) fn reclaimed(&self) -> u64 {
        self.state.borrow().log.reclaimed()
    }

    /// Writes the journal's superblock: the tail moves, and `blocks` that were reclaimed before are free. What they
    /// held must be durable in place.
    pub(super) async fn move_tail(&self, machine: &Machine, actor: &Actor, blocks: u64) {
        #[cfg(test)]
        self.history.borrow_mut().tail_moved(blocks, machine.now());
        machine.perform(self.superblock_bio(actor)).await;
        self.state.borrow_mut().log.release(blocks);
        self.note_change(machine);
    }

    /// Makes room in the log: writes the oldest transaction's blocks in place, or has committed what holds them
    /// (`__jbd2_log_wait_for_space`). The task that needs the room does it and waits.
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

    /// Whether moving the tail by so much is worth a write in a commit (`jbd2_journal_commit_transaction`: a
    /// transaction's worth).
    pub(super) fn is_worth_moving(&self, blocks: u64) -> bool {
        blocks >= self.transaction_blocks_max
    }
}
