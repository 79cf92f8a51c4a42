//! The log, written late. Transactions gather in memory in a list (the *committed item list*, CIL); when a task forces
//! the log, one *checkpoint* takes all of it there.
//!
//! ```text
//!   transaction --> current context --force, full, 30 s--> records of 32 KiB --barrier, commit record--> committed
//!                    (the CIL)                                                         |
//!                                            device <-- xfsaild, in the log's order <--+ pending (the AIL)
//! ```
//!
//! An item logged again before the checkpoint costs its bytes once. While a checkpoint is written, transactions gather
//! in the next context and wait for nothing. The log has nothing to do with files' data: what a record says of data, it
//! says after the data is on the device.

mod checkpoint;

use super::node::{Item, XfsChange};
use crate::cache::{InodeNumber, PAGE_BYTES, frames};
use crate::executor::wait::{Semaphore, WaitQueue};
use crate::fs::Actor;
use crate::fs::ring::Ring;
use crate::fs::space::Blocks;
use crate::machine::Machine;
use plimsoll_core::CauseSet;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of a record (mount option `logbsize`), and of its header.
pub(super) const RECORD_BYTES: u64 = 32 << 10;
pub(super) const RECORD_HEADER_BYTES: u64 = 512;
/// Bytes in front of each item (`xlog_op_header`).
const ITEM_HEADER_BYTES: u64 = 12;
/// Records on their way at once (mount option `logbufs`).
const RECORDS_IN_FLIGHT: u64 = 8;
/// Log blocks that a transaction may take, set aside before it begins: 256 KiB (most of `M_RES(mp)` are below).
const RESERVATION_BLOCKS: u64 = 64;
/// A context is pushed when it takes this part of the log, and at 32 MiB at the latest (`XLOG_CIL_SPACE_LIMIT`).
const LOG_PER_CONTEXT: u64 = 8;
const CONTEXT_BLOCKS_MAX: u64 = (32 << 20) / PAGE_BYTES;
/// Metadata is written in place to keep this part of the log free (`xlog_grant_push_threshold`).
const LOG_PER_FREE: u64 = 4;

/// An item in a context.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) block: u64,
    pub(super) bytes: u64,
    /// The causes for which it was changed in this context.
    pub(super) causes: CauseSet,
}

/// What goes to the log together.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) id: u64,
    pub(super) items: BTreeMap<Item, Logged>,
    /// Bytes of all items in the log, without record headers.
    pub(super) bytes: u64,
    /// Every block that is changed; the causes for which it was changed earlier and is not yet written in place.
    pub(super) blocks: BTreeMap<u64, CauseSet>,
    pub(super) causes: CauseSet,
    pub(super) freed: Vec<Blocks>,
    /// Transactions in it.
    pub(super) transactions: u64,
}

impl Context {
    /// Takes an item in, or more of it. An inode is logged whole each time; the stretches of a block accumulate until
    /// all of it is there. Answers with the causes for which it had been changed before.
    fn log(&mut self, item: Item, block: u64, bytes: u64, causes: &CauseSet) -> CauseSet {
        let is_new = !self.items.contains_key(&item);
        let logged = self.items.entry(item).or_insert(Logged { block, bytes: 0, causes: CauseSet::EMPTY });
        let before = if is_new { 0 } else { logged.bytes + ITEM_HEADER_BYTES };
        logged.bytes = match item {
            Item::Inode(_) => bytes,
            Item::Block(_) => (logged.bytes + bytes).min(PAGE_BYTES),
        };
        self.bytes = self.bytes - before + logged.bytes + ITEM_HEADER_BYTES;
        let previous = logged.causes.clone();
        logged.causes.union_with(causes);
        previous
    }

    /// Takes out the items of a block; answers with the causes for which they were changed.
    fn forget(&mut self, block: u64) -> CauseSet {
        let mut causes = self.blocks.remove(&block).unwrap_or_default();
        self.items.retain(|_, logged| {
            let is_here = logged.block == block;
            if is_here {
                self.bytes -= logged.bytes + ITEM_HEADER_BYTES;
                causes.union_with(&logged.causes);
            }
            !is_here
        });
        causes
    }
}

/// Blocks that a checkpoint of so many bytes takes: whole records, the last one rounded up to a block.
pub(super) fn blocks_of(bytes: u64) -> u64 {
    let payload = RECORD_BYTES - RECORD_HEADER_BYTES;
    let (full, rest) = (bytes / payload, bytes % payload);
    full * (RECORD_BYTES / PAGE_BYTES) + (rest + RECORD_HEADER_BYTES).div_ceil(PAGE_BYTES)
}

/// The checkpoint that is being written.
pub(super) struct Committing {
    pub(super) context: Context,
    pub(super) has_sent_barrier: bool,
    /// Blocks that are metadata no longer since a later context.
    pub(super) forgotten: BTreeSet<u64>,
}

pub(super) struct LogState {
    pub(super) current: Context,
    pub(super) committing: Option<Committing>,
    pub(super) requested: u64,
    pub(super) committed: u64,
    pub(super) ring: Ring,
    /// Committed, not yet given to the device, and for which causes (the AIL).
    pub(super) pending: BTreeMap<u64, CauseSet>,
    /// Transactions under way.
    reserved: u64,
    /// Checkpoints up to this one are to be written in place whatever room there is.
    pub(super) push_until: u64,
}

/// The log.
pub struct Log {
    pub(super) state: RefCell<LogState>,
    changed: WaitQueue,
    pub(super) records: Rc<Semaphore>,
    context_blocks_max: u64,
    /// What was done, for tests.
    #[cfg(test)]
    pub history: RefCell<crate::fs::history::History>,
}

impl Log {
    /// In `area`.
    pub fn new(area: Blocks) -> Log {
        let state = LogState {
            current: Context { id: 1, ..Context::default() },
            committing: None,
            requested: 0,
            committed: 0,
            ring: Ring::new(area),
            pending: BTreeMap::new(),
            reserved: 0,
            push_until: 0,
        };
        Log {
            state: RefCell::new(state),
            changed: WaitQueue::default(),
            records: Rc::new(Semaphore::new(RECORDS_IN_FLIGHT)),
            context_blocks_max: (area.count / LOG_PER_CONTEXT).min(CONTEXT_BLOCKS_MAX),
            #[cfg(test)]
            history: RefCell::default(),
        }
    }

    pub(super) async fn wait_change(&self, machine: &Machine) {
        self.changed.wait(&machine.executor).await;
    }

    pub(super) fn note_change(&self, machine: &Machine) {
        self.changed.wake_all(&machine.executor);
    }

    /// Sets room in the log aside for a transaction; waits for it (`xfs_log_reserve`).
    pub async fn reserve(&self, machine: &Machine) {
        loop {
            let has_room = {
                let state = self.state.borrow();
                let needed = blocks_of(state.current.bytes) + (state.reserved + 1) * RESERVATION_BLOCKS;
                state.ring.free() >= needed
            };
            if has_room {
                break;
            }
            self.request(machine, self.last_id());
            self.wait_change(machine).await;
        }
        self.state.borrow_mut().reserved += 1;
    }

    /// Takes a transaction's changes into the current context, all at once, and ends it (`xlog_cil_commit`). The blocks
    /// are in memory and no task writes them. Answers with the context's number.
    pub fn commit(&self, machine: &Machine, actor: &Actor, change: &XfsChange) -> u64 {
        let id = self.state.borrow().current.id;
        for (&item, &what) in &change.items {
            let previous = self.join(machine, actor, item, what.block, u64::from(what.bytes));
            machine.announce_block(what.block, &actor.causes, &previous);
        }
        change.forgotten.iter().for_each(|&block| self.forget(machine, block));
        let mut state = self.state.borrow_mut();
        state.current.causes.union_with(&actor.causes);
        state.current.freed.extend_from_slice(&change.freed);
        state.current.transactions += 1;
        state.reserved -= 1;
        let bytes = state.current.bytes;
        drop(state);
        if blocks_of(bytes) > self.context_blocks_max {
            self.request(machine, id);
        }
        self.note_change(machine);
        id
    }

    fn join(&self, machine: &Machine, actor: &Actor, item: Item, block: u64, bytes: u64) -> CauseSet {
        machine.set_block_pinned(block, true);
        let mut earlier = machine.withdraw_block(block);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        earlier.union_with(&state.pending.remove(&block).unwrap_or_default());
        let on_block = state.current.blocks.entry(block).or_default();
        on_block.union_with(&earlier);
        let mut previous = on_block.clone();
        previous.union_with(&state.current.log(item, block, bytes, &actor.causes));
        #[cfg(test)]
        self.history.borrow_mut().joined(block, state.current.id, machine.now());
        previous
    }

    /// A block is metadata no longer (`xfs_trans_binval`).
    fn forget(&self, machine: &Machine, block: u64) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut causes = state.pending.remove(&block).unwrap_or_default();
        causes.union_with(&state.current.forget(block));
        state.ring.forget(block);
        let committing = state.committing.as_mut().filter(|c| c.context.blocks.contains_key(&block));
        let is_committing = committing.map(|c| c.forgotten.insert(block)).is_some();
        causes.union_with(&machine.withdraw_block(block));
        let is_resident = machine.cache.borrow().flags(InodeNumber::DEVICE, block).is_some();
        if is_resident && !is_committing {
            machine.set_block_pinned(block, false);
        }
        machine.announce_block_freed(block, &causes);
        #[cfg(test)]
        self.history.borrow_mut().forgotten(block, machine.now());
    }

    /// Wants checkpoint `id`, if there is anything in it.
    pub fn request(&self, machine: &Machine, id: u64) {
        let mut state = self.state.borrow_mut();
        if id > state.requested {
            state.requested = id;
            drop(state);
            self.note_change(machine);
        }
    }

    /// The last context with anything in it.
    pub fn last_id(&self) -> u64 {
        let state = self.state.borrow();
        if state.current.transactions == 0 { state.current.id - 1 } else { state.current.id }
    }

    /// Waits until checkpoint `id` is durable, and sees to it (`xfs_log_force_seq`). Answers whether a barrier was sent
    /// meanwhile.
    pub async fn force(&self, machine: &Machine, id: u64) -> bool {
        let will_send_barrier = {
            let state = self.state.borrow();
            let is_before = |c: &Committing| c.context.id == id && !c.has_sent_barrier;
            state.current.id == id || state.committing.as_ref().is_some_and(is_before)
        };
        self.request(machine, id);
        while self.state.borrow().committed < id {
            self.wait_change(machine).await;
        }
        will_send_barrier
    }

    /// Whether the log is so full that metadata must go in place.
    pub(super) fn is_low(&self) -> bool {
        let state = self.state.borrow();
        state.ring.free() < state.ring.blocks() / LOG_PER_FREE
    }

    /// Takes out of the log's books what is in place; answers how many blocks are free after the next barrier.
    pub(super) fn clean(&self, machine: &Machine) -> u64 {
        let mut state = self.state.borrow_mut();
        let LogState { ring, pending, current, committing, .. } = &mut *state;
        let cache = machine.cache.borrow();
        ring.clean(|block| {
            let flags = cache.flags(InodeNumber::DEVICE, block).unwrap_or(0);
            let is_logged = |context: &Context| context.blocks.contains_key(&block);
            flags & (frames::DIRTY | frames::WRITEBACK) == 0
                && !pending.contains_key(&block)
                && !is_logged(current)
                && !committing.as_ref().is_some_and(|c| is_logged(&c.context))
        });
        ring.reclaimed()
    }

    /// # Panics
    /// If the log's books do not agree.
    pub fn assert_conserved(&self) {
        let state = self.state.borrow();
        state.ring.assert_conserved();
        let bytes: u64 = state.current.items.values().map(|logged| logged.bytes + ITEM_HEADER_BYTES).sum();
        assert_eq!(state.current.bytes, bytes, "bytes of the current context");
    }
}

impl Log {
    /// The current context becomes the checkpoint that is written; another one begins.
    pub(super) fn switch(&self) {
        let mut state = self.state.borrow_mut();
        let next = Context { id: state.current.id + 1, ..Context::default() };
        let context = std::mem::replace(&mut state.current, next);
        state.committing = Some(Committing { context, has_sent_barrier: false, forgotten: BTreeSet::new() });
    }
}
