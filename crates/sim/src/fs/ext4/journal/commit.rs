//! The commit: what the journal's task does with one transaction (`jbd2_journal_commit_transaction`).

use super::{CommittingTransaction, Journal, Transaction};
use crate::block::{Bio, BioEnd, Plug};
use crate::cache::PAGE_BYTES;
use crate::executor::wait::Group;
use crate::fs::space::Blocks;
use crate::fs::{Actor, Extents, class, flush_bio};
use crate::machine::Machine;
use crate::writeback::WriteFile;
use plimsoll_core::{CauseSet, Operation};
use std::collections::BTreeSet;

/// Blocks in a descriptor block: tags of 16 bytes after a header of 12, an identifier of 16, and before a checksum of 4
/// (`journal_block_tag3_t`).
const DESCRIPTOR_TAGS: u64 = (PAGE_BYTES - 12 - 16 - 4) / 16;

impl Journal {
    /// Commits the next transaction when a task wants it or it is old enough; answers with what becomes free.
    pub async fn commit_next(&self, machine: &Machine) -> Vec<Blocks> {
        while !self.is_wanted() {
            self.wait_change(machine).await;
        }
        let actor = self.close_transaction(machine).await;
        self.write_ordered(machine, &actor).await;
        let reclaimed = self.clean_log(machine);
        self.write_log(machine, &actor).await;
        // The task that makes room moves the tail itself.
        if self.is_worth_moving(reclaimed) && self.checkpointing.try_acquire() {
            let reclaimed = reclaimed.min(self.reclaimed());
            self.move_tail(machine, &actor, reclaimed).await;
            self.checkpointing.release(&machine.executor);
        }
        self.end_commit(machine)
    }

    /// Has the running transaction committed when it has run for the interval. Never ends.
    pub async fn watch_age(&self, machine: &Machine) {
        loop {
            let running = self.state.borrow().running.as_ref().map(|t| (t.id, t.started));
            match running {
                Some((id, started)) => {
                    machine.executor.sleep_until(started + self.interval).await;
                    self.request(machine, id);
                    self.wait_committed(machine, id).await;
                }
                None => self.wait_change(machine).await,
            }
        }
    }

    fn is_wanted(&self) -> bool {
        let state = self.state.borrow();
        state.running.as_ref().is_some_and(|running| running.id <= state.requested)
    }

    /// Locks the running transaction, waits for its handles, and makes it the committing one: from then on handles join
    /// the next. Answers with the proxy that commits it.
    async fn close_transaction(&self, machine: &Machine) -> Actor {
        self.with_running(|running| running.is_locked = true);
        while self.with_running(|running| running.handles) > 0 {
            self.wait_change(machine).await;
        }
        let mut state = self.state.borrow_mut();
        let transaction = state.running.take().expect("it is locked, so it stays");
        let actor = Actor::proxy(machine.config.accounts.journal, transaction.causes.clone());
        state.committing = Some(CommittingTransaction {
            transaction,
            is_logging: false,
            has_sent_barrier: false,
            forgotten: BTreeSet::new(),
        });
        drop(state);
        self.note_change(machine);
        actor
    }

    fn with_running<T>(&self, change: impl FnOnce(&mut Transaction) -> T) -> T {
        change(self.state.borrow_mut().running.as_mut().expect("only the journal's task closes it"))
    }

    fn with_committing<T>(&self, change: impl FnOnce(&mut CommittingTransaction) -> T) -> T {
        change(self.state.borrow_mut().committing.as_mut().expect("only the journal's task ends it"))
    }

    /// Whether no task may change `block` because it is on its way to the log.
    pub(super) fn is_logging(&self, block: u64) -> bool {
        let state = self.state.borrow();
        state.committing.as_ref().is_some_and(|c| c.is_logging && c.transaction.blocks.contains_key(&block))
    }

    /// Begins the writing of the ordered data of every file in the transaction, whichever process wrote it: what of it
    /// has its place.
    async fn write_ordered(&self, machine: &Machine, actor: &Actor) {
        let ordered = self.with_committing(|committing| committing.transaction.ordered.clone());
        for number in ordered {
            if let Some(inode) = machine.find_inode(number) {
                let what = WriteFile { extents: Extents::Mapped, is_sync: true, ..WriteFile::WHOLE };
                machine.write_file(actor, &inode, what).await;
            }
        }
    }

    /// Writes descriptors and blocks to the log, waits for them and for the ordered data, then barrier and commit
    /// block.
    async fn write_log(&self, machine: &Machine, actor: &Actor) {
        let blocks: Vec<(u64, CauseSet)> = self.with_committing(|committing| {
            committing.is_logging = true;
            let blocks = committing.transaction.blocks.iter();
            blocks.map(|(&block, joined)| (block, joined.causes.clone())).collect()
        });
        let descriptors = (blocks.len() as u64).div_ceil(DESCRIPTOR_TAGS);
        let places = self.state.borrow_mut().log.take(descriptors + blocks.len() as u64 + 1);
        let mut free_places = places.iter().copied();
        let mut next_place = || free_places.next().expect("as many were taken");
        let (mut plug, group) = (Plug::default(), Group::default());
        for described in blocks.chunks(DESCRIPTOR_TAGS as usize) {
            let descriptor = union(described.iter().map(|(_, causes)| causes));
            for causes in std::iter::once(&descriptor).chain(described.iter().map(|(_, causes)| causes)) {
                group.add();
                let end = BioEnd::Group(group.clone());
                plug.add(Bio { end, ..log_bio(actor, causes.clone(), next_place()) });
            }
        }
        machine.unplug(&mut plug).await;
        self.wait_ordered(machine).await;
        group.wait(&machine.executor).await;
        self.with_committing(|committing| {
            committing.is_logging = false;
            committing.has_sent_barrier = true;
        });
        self.note_change(machine);
        machine.perform(flush_bio(actor)).await;
        let record = next_place();
        machine.perform(Bio { is_forced: true, ..log_bio(actor, actor.causes.clone(), record) }).await;
        #[cfg(test)]
        self.with_committing(|committing| {
            let ordered = std::mem::take(&mut committing.transaction.ordered_blocks);
            let (id, before_record) = (committing.transaction.id, places.len() - 1);
            self.history.borrow_mut().committed(id, places.clone(), before_record, ordered, machine.now());
        });
    }

    async fn wait_ordered(&self, machine: &Machine) {
        let ordered = self.with_committing(|committing| committing.transaction.ordered.clone());
        for number in ordered {
            machine.wait_writeback(number, WriteFile::WHOLE.pages).await;
        }
    }

    /// The transaction is committed: its blocks are for the flusher, except those that the next one has as well.
    fn end_commit(&self, machine: &Machine) -> Vec<Blocks> {
        let mut state = self.state.borrow_mut();
        let CommittingTransaction { transaction, forgotten, .. } =
            state.committing.take().expect("only the journal's task ends it");
        let mut in_log = BTreeSet::new();
        for (block, joined) in transaction.blocks {
            let causes = union([&joined.causes, &joined.earlier].into_iter());
            let next = state.running.as_mut().and_then(|running| running.blocks.get_mut(&block));
            if let Some(next) = next {
                next.earlier.union_with(&causes);
            } else {
                machine.set_block_pinned(block, false);
                if forgotten.contains(&block) {
                    continue;
                }
                machine.dirty_block(block, &causes);
            }
            in_log.insert(block);
        }
        state.log.commit(transaction.id, in_log);
        state.committed = transaction.id;
        drop(state);
        self.note_change(machine);
        transaction.freed
    }
}

fn union<'a>(sets: impl Iterator<Item = &'a CauseSet>) -> CauseSet {
    let mut union = CauseSet::EMPTY;
    sets.for_each(|set| union.union_with(set));
    union
}

fn log_bio(actor: &Actor, causes: CauseSet, place: u64) -> Bio {
    Bio {
        session: actor.session,
        causes,
        class: class::JOURNAL,
        operation: Operation::Write,
        offset: place * PAGE_BYTES,
        length: PAGE_BYTES as u32,
        is_sync: true,
        is_forced: false,
        file: None,
        end: BioEnd::Nothing,
    }
}
