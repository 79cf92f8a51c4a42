//! What the log's tasks do: write checkpoints (`xlog_cil_push_work`), and metadata in place (`xfsaild`).

use super::{Log, RECORD_BYTES, RECORD_HEADER_BYTES, blocks_of};
use crate::block::{Bio, BioEnd};
use crate::cache::PAGE_BYTES;
use crate::executor::wait::Group;
use crate::fs::space::Blocks;
use crate::fs::{Actor, class, flush_bio};
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Operation, Span};
use std::collections::BTreeSet;

/// How often the log is forced and everything is written in place, whether or not a task asks
/// (`fs.xfs.xfssyncd_centisecs`).
const PERIOD: Span = Span::from_secs(30);

impl Log {
    /// Writes the next checkpoint when a task wants it; answers with what becomes free.
    pub async fn write_next(&self, machine: &Machine) -> Vec<Blocks> {
        while !self.is_wanted() {
            self.wait_change(machine).await;
        }
        self.switch();
        self.note_change(machine);
        self.write_records(machine).await;
        self.end_checkpoint(machine)
    }

    fn is_wanted(&self) -> bool {
        let state = self.state.borrow();
        state.requested >= state.current.id && state.current.transactions > 0
    }

    /// The records of the checkpoint. All but the last go first, as many at once as there are buffers; then comes a
    /// barrier. The last one follows, which holds the commit record and is durable when it completes.
    async fn write_records(&self, machine: &Machine) {
        let (places, causes, actor) = self.format(machine);
        let records: Vec<&[u64]> = places.chunks((RECORD_BYTES / PAGE_BYTES) as usize).collect();
        let (last, others) = records.split_last().expect("a checkpoint is not empty");
        let group = Group::default();
        for (record, causes) in others.iter().zip(&causes) {
            for bio in record_bios(&actor, causes, record) {
                self.records.acquire(&machine.executor).await;
                group.add();
                let (machine, records, group) = (machine.clone(), self.records.clone(), group.clone());
                machine.clone().spawn_kernel(async move {
                    machine.perform(bio).await;
                    records.release(&machine.executor);
                    group.done(&machine.executor);
                });
            }
        }
        group.wait(&machine.executor).await;
        let reclaimed = self.clean(machine);
        self.state.borrow_mut().committing.as_mut().expect("it is being written").has_sent_barrier = true;
        machine.perform(flush_bio(&actor)).await;
        self.release_reclaimed(machine, reclaimed);
        let causes = causes.last().expect("one for each record");
        for bio in record_bios(&actor, causes, last) {
            machine.perform(Bio { is_forced: true, ..bio }).await;
        }
        #[cfg(test)]
        {
            let id = self.state.borrow().committing.as_ref().map_or(0, |c| c.context.id);
            let before_record = places.len() - last.len();
            self.history.borrow_mut().committed(id, places.clone(), before_record, Vec::new(), machine.now());
        }
    }

    /// Lays the items out in records: places in the log, the causes of each record, and the causes of all of it.
    fn format(&self, machine: &Machine) -> (Vec<u64>, Vec<CauseSet>, Actor) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let context = &state.committing.as_ref().expect("just switched").context;
        let bytes = context.bytes;
        let payload = RECORD_BYTES - RECORD_HEADER_BYTES;
        let mut causes = vec![CauseSet::EMPTY; (bytes / payload + 1) as usize];
        let mut at = 0;
        for item in context.items.values() {
            let end = at + item.bytes;
            (at / payload..=end / payload).for_each(|record| causes[record as usize].union_with(&item.causes));
            at = end;
        }
        let actor = Actor::proxy(machine.config.accounts.journal, context.causes.clone());
        (state.ring.take(blocks_of(bytes)), causes, actor)
    }

    /// A barrier has been sent since so many blocks were reclaimed: nothing needs what they hold.
    fn release_reclaimed(&self, machine: &Machine, blocks: u64) {
        let mut state = self.state.borrow_mut();
        let blocks = blocks.min(state.ring.reclaimed());
        state.ring.release(blocks);
        #[cfg(test)]
        self.history.borrow_mut().tail_moved(blocks, machine.now());
        drop(state);
        self.note_change(machine);
    }

    /// The checkpoint is durable: its blocks wait to be written in place, except those that are in the current context.
    fn end_checkpoint(&self, machine: &Machine) -> Vec<Blocks> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let ended = state.committing.take().expect("only this task ends it");
        let mut in_log = BTreeSet::new();
        let mut context = ended.context;
        for logged in context.items.values() {
            context.blocks.get_mut(&logged.block).expect("each item's block is listed").union_with(&logged.causes);
        }
        for (block, causes) in context.blocks {
            let next = state.current.blocks.get_mut(&block);
            let is_forgotten = ended.forgotten.contains(&block);
            match next {
                Some(next) => next.union_with(&causes),
                None if is_forgotten => {
                    machine.set_block_pinned(block, false);
                    continue;
                }
                None => state.pending.entry(block).or_default().union_with(&causes),
            }
            in_log.insert(block);
        }
        state.ring.commit(context.id, in_log);
        state.committed = context.id;
        self.note_change(machine);
        context.freed
    }

    /// Forces the log and has everything written in place, now and then. Never ends.
    pub async fn work_periodically(&self, machine: &Machine) {
        loop {
            machine.executor.sleep(PERIOD).await;
            let id = self.last_id();
            self.force(machine, id).await;
            self.state.borrow_mut().push_until = id;
            self.note_change(machine);
        }
    }

    /// Writes metadata in place, the log's oldest first, when it is time or the log is nearly full. Never ends.
    pub async fn push_in_place(&self, machine: &Machine) {
        loop {
            while !self.is_push_wanted() {
                self.wait_change(machine).await;
            }
            self.push_oldest(machine).await;
        }
    }

    fn is_push_wanted(&self) -> bool {
        let is_low = self.is_low();
        let state = self.state.borrow();
        state.ring.oldest_id().is_some_and(|id| is_low || id <= state.push_until)
            || is_low && state.ring.reclaimed() > 0
    }

    async fn push_oldest(&self, machine: &Machine) {
        let mut blocks = self.state.borrow().ring.oldest();
        blocks.retain(|&block| {
            let pending = self.state.borrow_mut().pending.remove(&block);
            if let Some(causes) = &pending {
                machine.set_block_pinned(block, false);
                machine.dirty_block(block, causes);
            }
            pending.is_some()
        });
        let actor = Actor::proxy(machine.config.accounts.journal, CauseSet::EMPTY);
        machine.write_blocks(&actor, &blocks, false).await;
        let oldest = self.state.borrow().ring.oldest_id();
        let reclaimed = self.clean(machine);
        if reclaimed > 0 && self.is_low() {
            machine.perform(flush_bio(&actor)).await;
            self.release_reclaimed(machine, reclaimed);
        }
        let is_same = oldest.is_some() && self.state.borrow().ring.oldest_id() == oldest;
        if is_same && blocks.is_empty() {
            // What is left was changed again: when that is in the log, it is a later checkpoint's.
            let id = self.last_id();
            self.force(machine, id).await;
        }
    }
}

/// One bio, or two where the log wraps.
fn record_bios(actor: &Actor, causes: &CauseSet, places: &[u64]) -> Vec<Bio> {
    let pieces = places.chunk_by(|one, next| one + 1 == *next);
    let bio = |piece: &[u64]| Bio {
        session: actor.session,
        causes: causes.clone(),
        class: class::JOURNAL,
        operation: Operation::Write,
        offset: piece[0] * PAGE_BYTES,
        length: (piece.len() as u64 * PAGE_BYTES) as u32,
        is_sync: true,
        is_forced: false,
        file: None,
        end: BioEnd::Nothing,
    };
    pieces.map(bio).collect()
}
