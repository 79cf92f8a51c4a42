//! jbd2: operations change metadata in memory under *handles*; handles join the one *running* transaction; a
//! transaction is committed as a whole.
//!
//! ```text
//!   running --> locked --> flush --> commit --> committed: its blocks are dirty, and its part of the log is in use
//!               handles    ordered   log,       until every one of them is on the device (checkpoint)
//!               close      data      barrier
//! ```
//!
//! One transaction commits at a time. While it is locked no task can open a handle; from flush on, handles join the
//! next. A block that both have is written in place only after the later commit.
//!
//! Here are transactions and handles; [`commit`] is what the journal's task does, [`space`] is the log's room.

mod commit;
mod space;

use crate::cache::{InodeNumber, frames};
use crate::executor::wait::{Semaphore, WaitQueue};
use crate::fs::Actor;
use crate::fs::ring::Ring;
use crate::fs::space::Blocks;
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Span, Time};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Blocks that an open handle counts for when a transaction is nearly full. (The kernel counts each operation's own
/// number; most are below this.)
const HANDLE_CREDITS: u64 = 32;
/// A transaction may fill this part of the log (`jbd2_journal_get_max_txn_bufs`).
const LOG_PER_TRANSACTION: u64 = 4;

/// A changed block of a transaction.
#[derive(Clone, Debug, Default)]
struct Joined {
    /// The causes for which it was changed in this transaction.
    causes: CauseSet,
    /// The causes for which it was changed earlier, and is not yet written in place.
    earlier: CauseSet,
}

#[derive(Debug)]
struct Transaction {
    id: u64,
    started: Time,
    is_locked: bool,
    /// Open handles.
    handles: u64,
    blocks: BTreeMap<u64, Joined>,
    /// Files with data that must be on the device first.
    ordered: BTreeSet<InodeNumber>,
    #[cfg(test)]
    ordered_blocks: Vec<(Blocks, Time)>,
    /// All causes that joined.
    causes: CauseSet,
    /// What becomes free with the commit.
    freed: Vec<Blocks>,
}

impl Transaction {
    fn new(id: u64, started: Time) -> Transaction {
        Transaction {
            id,
            started,
            is_locked: false,
            handles: 0,
            blocks: BTreeMap::new(),
            ordered: BTreeSet::new(),
            #[cfg(test)]
            ordered_blocks: Vec::new(),
            causes: CauseSet::EMPTY,
            freed: Vec::new(),
        }
    }
}

/// The transaction that is being committed.
#[derive(Debug)]
struct CommittingTransaction {
    transaction: Transaction,
    /// Its blocks are on their way to the log: no task may change them (`BH_Shadow`).
    is_logging: bool,
    /// Its barrier has been sent: data that is completed later is not covered by it.
    has_sent_barrier: bool,
    /// Blocks that are metadata no longer since a later transaction.
    forgotten: BTreeSet<u64>,
}

struct JournalState {
    running: Option<Transaction>,
    committing: Option<CommittingTransaction>,
    /// The last transaction that was begun, that a task wants, and that is committed.
    begun: u64,
    requested: u64,
    committed: u64,
    log: Ring,
}

/// The journal.
pub struct Journal {
    superblock: u64,
    state: RefCell<JournalState>,
    /// Rung whenever anything of the state changes that a task may wait for.
    changed: WaitQueue,
    /// Held by the task that writes back old transactions' blocks (`j_checkpoint_mutex`).
    checkpointing: Semaphore,
    transaction_blocks_max: u64,
    interval: Span,
    /// What was done, for tests.
    #[cfg(test)]
    pub history: RefCell<crate::fs::history::History>,
}

impl Journal {
    /// In `area`, with the superblock as its first block; transactions are committed after `interval` at the latest.
    pub fn new(area: Blocks, interval: Span) -> Journal {
        let log = Ring::new(Blocks { first: area.first + 1, count: area.count - 1 });
        Journal {
            superblock: area.first,
            transaction_blocks_max: log.free() / LOG_PER_TRANSACTION,
            state: RefCell::new(JournalState {
                running: None,
                committing: None,
                begun: 0,
                requested: 0,
                committed: 0,
                log,
            }),
            changed: WaitQueue::default(),
            checkpointing: Semaphore::new(1),
            interval,
            #[cfg(test)]
            history: RefCell::default(),
        }
    }

    async fn wait_change(&self, machine: &Machine) {
        self.changed.wait(&machine.executor).await;
    }

    fn note_change(&self, machine: &Machine) {
        self.changed.wake_all(&machine.executor);
    }

    /// Opens a handle for `actor` in the running transaction, or begins one. Waits while it is locked or full, and
    /// while the log has no room for another (`start_this_handle`, `add_transaction_credits`).
    pub async fn start<'a>(&'a self, machine: &'a Machine, actor: &'a Actor) -> Handle<'a> {
        loop {
            let is_full = {
                let state = self.state.borrow();
                let is_full = |t: &Transaction| {
                    t.blocks.len() as u64 + HANDLE_CREDITS * (t.handles + 1) > self.transaction_blocks_max
                };
                state.running.as_ref().filter(|t| t.is_locked || is_full(t)).map(|t| t.id)
            };
            if let Some(id) = is_full {
                self.request(machine, id);
                self.wait_change(machine).await;
            } else if self.lacks_space() {
                self.make_space(machine, actor).await;
            } else {
                break;
            }
        }
        let mut state = self.state.borrow_mut();
        if state.running.is_none() {
            state.begun += 1;
            state.running = Some(Transaction::new(state.begun, machine.now()));
            self.note_change(machine);
        }
        let running = state.running.as_mut().expect("just begun");
        running.handles += 1;
        running.causes.union_with(&actor.causes);
        Handle { journal: self, machine, actor, id: running.id }
    }

    /// Wants transaction `id` to be committed, if it is not.
    pub fn request(&self, machine: &Machine, id: u64) {
        let mut state = self.state.borrow_mut();
        if id > state.requested {
            state.requested = id;
            drop(state);
            self.note_change(machine);
        }
    }

    /// Waits until transaction `id` is committed.
    pub async fn wait_committed(&self, machine: &Machine, id: u64) {
        while self.state.borrow().committed < id {
            self.wait_change(machine).await;
        }
    }

    /// The last transaction that was begun.
    pub fn last_id(&self) -> u64 {
        self.state.borrow().begun
    }

    /// Whether transaction `id` is going to send a barrier, so that a task that waits for it needs none of its own
    /// (`jbd2_trans_will_send_data_barrier`).
    pub fn will_send_barrier(&self, id: u64) -> bool {
        let state = self.state.borrow();
        let is_running = state.running.as_ref().is_some_and(|t| t.id == id);
        let is_before_barrier = |c: &CommittingTransaction| c.transaction.id == id && !c.has_sent_barrier;
        is_running || state.committing.as_ref().is_some_and(is_before_barrier)
    }

    /// # Panics
    /// If the log's books do not agree.
    pub fn assert_conserved(&self) {
        self.state.borrow().log.assert_conserved();
    }
}

/// An operation's part of a transaction, which is not committed while it is open.
#[must_use = "a handle that is not stopped holds up the commit for ever"]
pub struct Handle<'a> {
    journal: &'a Journal,
    machine: &'a Machine,
    actor: &'a Actor,
    /// The transaction.
    pub id: u64,
}

impl Handle<'_> {
    fn with_transaction<T>(&self, change: impl FnOnce(&mut Transaction) -> T) -> T {
        let mut state = self.journal.state.borrow_mut();
        let running = state.running.as_mut().filter(|running| running.id == self.id);
        change(running.expect("a transaction with an open handle is not committed"))
    }

    /// A block changes: brings it into memory, unless it is new, waits until no task writes it, and takes it into the
    /// transaction (`jbd2_journal_get_write_access`).
    pub async fn join(&self, block: u64, is_new: bool) {
        let (machine, journal) = (self.machine, self.journal);
        loop {
            if is_new {
                machine.create_block(block).await;
            } else {
                machine.read_block(self.actor, block).await;
            }
            let is_written = |flags| flags & frames::WRITEBACK != 0;
            let is_busy = machine.cache.borrow().flags(InodeNumber::DEVICE, block).map(is_written);
            match is_busy {
                None => {}
                Some(true) => machine.wait_page(InodeNumber::DEVICE, block).await,
                Some(false) if journal.is_logging(block) => journal.wait_change(machine).await,
                Some(false) => break,
            }
        }
        machine.set_block_pinned(block, true);
        let withdrawn = machine.withdraw_block(block);
        #[cfg(test)]
        journal.history.borrow_mut().joined(block, self.id, machine.now());
        let previous = self.with_transaction(|transaction| {
            let joined = transaction.blocks.entry(block).or_default();
            joined.earlier.union_with(&withdrawn);
            let mut previous = joined.earlier.clone();
            previous.union_with(&joined.causes);
            joined.causes.union_with(&self.actor.causes);
            previous
        });
        machine.announce_block(block, &self.actor.causes, &previous);
    }

    /// Data of this file must be on the device before the commit (`ext4_jbd2_inode_add_write`).
    pub fn order(&self, inode: InodeNumber, blocks: Blocks) {
        let _ = blocks;
        self.with_transaction(|transaction| {
            transaction.ordered.insert(inode);
            #[cfg(test)]
            transaction.ordered_blocks.push((blocks, self.machine.now()));
        });
    }

    /// These blocks are free once the transaction is committed (`ext4_free_data_in_buddy`).
    pub fn free(&self, blocks: &[Blocks]) {
        self.with_transaction(|transaction| transaction.freed.extend_from_slice(blocks));
    }

    /// A block is metadata no longer, and is not written any more (`jbd2_journal_forget`, `jbd2_journal_revoke`).
    pub fn forget(&self, block: u64) {
        let joined = self.with_transaction(|transaction| transaction.blocks.remove(&block));
        let mut state = self.journal.state.borrow_mut();
        state.log.forget(block);
        let committing = state.committing.as_mut().filter(|c| c.transaction.blocks.contains_key(&block));
        let is_committing = committing.map(|c| c.forgotten.insert(block)).is_some();
        drop(state);
        let mut causes = self.machine.withdraw_block(block);
        if let Some(joined) = joined {
            causes.union_with(&joined.causes);
            causes.union_with(&joined.earlier);
            if !is_committing {
                self.machine.set_block_pinned(block, false);
            }
        }
        self.machine.announce_block_freed(block, &causes);
        #[cfg(test)]
        self.journal.history.borrow_mut().forgotten(block, self.machine.now());
    }

    /// Closes it.
    pub fn stop(self) {
        self.with_transaction(|transaction| transaction.handles -= 1);
        self.journal.note_change(self.machine);
    }
}
