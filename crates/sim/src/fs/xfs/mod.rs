//! XFS: allocation groups, delayed allocation, a log that is written late.
//!
//! ```text
//!   create, unlink, ...   writeback: allocate (unwritten)     end of I/O: written, and the size
//!          \                     |                           /
//!           +---- transactions: items gather in memory, each with its causes ----+
//!                               | force: fsync, 30 s, or full
//!          records of 32 KiB -> barrier and commit record -> xfsaild writes blocks in place
//! ```
//!
//! The rule: data first, then what says that it is there. Blocks are given out unwritten, and only when the device has
//! the data does a transaction say so and let the size grow. So a log force has no data to wait for. An fsync waits for
//! its own file's data and for the log, never for another file's data.
//!
//! The complication: the log is one for all. A force takes everything along that any task has changed so far. A task
//! that needs room in a full log waits until old changes are in place.
//!
//! [`layout`] says where things are, [`node`] which blocks a file gets and which metadata changes with it, [`log`] how
//! it becomes durable. `log/checkpoint` has the log's tasks; the machine calls `operations`. What is simplified stands
//! in `docs/simulator.md`.

pub mod layout;
pub mod log;
pub mod node;
mod operations;

use super::{Actor, Extent, FileSystem, Inode, WritebackEnd};
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan, frames};
use crate::executor::wait::Semaphore;
use crate::machine::Machine;
use async_trait::async_trait;
use layout::XfsLayout;
use log::Log;
use node::{XfsChange, XfsState};
use plimsoll_core::Class;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// How it is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct XfsOptions {
    /// Blocks of the log; `None` for what mkfs.xfs gives it.
    pub log_blocks: Option<u64>,
}

/// An XFS.
pub struct Xfs {
    state: RefCell<XfsState>,
    /// The log.
    pub log: Log,
    this: Weak<Xfs>,
}

impl Xfs {
    /// Freshly made on a device of so many bytes.
    ///
    /// # Panics
    /// If the device is too small for the log.
    pub fn new(capacity_bytes: u64, options: XfsOptions) -> Rc<Xfs> {
        let layout = XfsLayout::new(capacity_bytes / PAGE_BYTES, options.log_blocks);
        let log = Log::new(layout.log);
        let mut state = XfsState::new(layout);
        // mkfs.xfs wrote this: nothing to log.
        state.make(&mut XfsChange::default(), InodeNumber::ROOT, None, true);
        Rc::new_cyclic(|this| Xfs { state: RefCell::new(state), log, this: this.clone() })
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.state.borrow().free_blocks()
    }

    /// Where the pages of a file lie, in order.
    pub fn places(&self, inode: InodeNumber) -> Vec<super::extents::Run> {
        self.state.borrow().nodes.get(&inode).map_or(Vec::new(), |node| node.tree.extents.iter().copied().collect())
    }

    /// The block with a file's inode.
    #[cfg(test)]
    pub fn inode_block(&self, inode: InodeNumber) -> u64 {
        self.state.borrow().nodes[&inode].inode_block()
    }

    /// Every block that a file has.
    #[cfg(test)]
    pub fn owned(&self) -> Vec<super::space::Blocks> {
        self.state.borrow().nodes.values().flat_map(node::XfsNode::all_blocks).collect()
    }

    /// Whether `block` is free.
    #[cfg(test)]
    pub fn is_free(&self, block: u64) -> bool {
        self.state.borrow().is_free(block)
    }

    /// A transaction on these inodes. It takes room in the log and the inodes' locks, decides, brings the blocks in,
    /// and hands all to the log at once.
    async fn change<T>(
        &self,
        machine: &Machine,
        actor: &Actor,
        inodes: &[InodeNumber],
        decide: impl FnOnce(&mut XfsState, &mut XfsChange) -> T,
    ) -> T {
        self.log.reserve(machine).await;
        let locks = self.lock_inodes(machine, inodes).await;
        let mut change = XfsChange::default();
        let answer = decide(&mut self.state.borrow_mut(), &mut change);
        while !self.are_ready(machine, &change) {
            for item in change.items.values() {
                ready_block(machine, actor, item.block, item.is_new).await;
            }
        }
        let id = self.log.commit(machine, actor, &change);
        let mut state = self.state.borrow_mut();
        for (number, &is_for_data) in &change.inodes {
            if let Some(node) = state.nodes.get_mut(number) {
                node.sync_id = id;
                node.datasync_id = if is_for_data { id } else { node.datasync_id };
            }
        }
        drop(state);
        locks.iter().for_each(|lock| lock.release(&machine.executor));
        answer
    }

    async fn lock_inodes(&self, machine: &Machine, inodes: &[InodeNumber]) -> Vec<Rc<Semaphore>> {
        let mut numbers = inodes.to_vec();
        numbers.sort();
        numbers.dedup();
        let mut locks = Vec::with_capacity(numbers.len());
        for number in numbers {
            let lock = self.state.borrow().nodes.get(&number).map(|node| node.lock.clone());
            if let Some(lock) = lock {
                lock.acquire(&machine.executor).await;
                locks.push(lock);
            }
        }
        locks
    }

    fn are_ready(&self, machine: &Machine, change: &XfsChange) -> bool {
        let cache = machine.cache.borrow();
        change.items.values().all(|item| {
            let flags = cache.flags(InodeNumber::DEVICE, item.block);
            flags.is_some_and(|flags| flags & (frames::WRITEBACK | frames::LOCKED) == 0)
        })
    }

    async fn run_log(self: Rc<Xfs>, machine: Machine) {
        loop {
            let freed = self.log.write_next(&machine).await;
            let mut state = self.state.borrow_mut();
            freed.into_iter().for_each(|blocks| state.release(blocks));
        }
    }
}

/// Brings a block into memory and waits until no task writes it.
async fn ready_block(machine: &Machine, actor: &Actor, block: u64, is_new: bool) {
    if is_new {
        machine.create_block(block).await;
    } else {
        machine.read_block(actor, block).await;
    }
    while machine.cache.borrow().flags(InodeNumber::DEVICE, block).is_some_and(|flags| flags & frames::WRITEBACK != 0) {
        machine.wait_page(InodeNumber::DEVICE, block).await;
    }
}

#[async_trait(?Send)]
impl FileSystem for Xfs {
    fn name(&self) -> &'static str {
        "xfs"
    }

    fn mount(self: Rc<Self>, machine: &Machine) {
        machine.spawn_kernel(self.clone().run_log(machine.clone()));
        let (this, pushed) = (self.clone(), machine.clone());
        machine.spawn_kernel(async move { this.log.push_in_place(&pushed).await });
        let worked = machine.clone();
        machine.spawn_kernel(async move { self.log.work_periodically(&worked).await });
    }

    async fn create(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.make(machine, actor, directory, inode).await
    }

    async fn lookup(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.find(machine, actor, directory, inode).await
    }

    async fn unlink(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.remove(machine, actor, directory, inode).await
    }

    async fn rename(&self, machine: &Machine, actor: &Actor, from: &Inode, to: &Inode, inode: &Inode) {
        self.move_entry(machine, actor, from, to, inode).await
    }

    async fn truncate(&self, machine: &Machine, actor: &Actor, inode: &Inode, bytes: u64) {
        self.cut(machine, actor, inode, bytes).await
    }

    async fn preallocate(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) {
        self.fill_holes(machine, actor, inode, pages).await
    }

    async fn before_write(&self, machine: &Machine, actor: &Actor, inode: &Inode, _offset: u64, _length: u64) {
        self.change_times(machine, actor, inode).await
    }

    async fn map(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) -> Extent {
        let leaf = self.state.borrow().nodes.get(&inode.number).and_then(|node| node.tree.leaf(pages.first));
        if let Some(leaf) = leaf {
            machine.read_block(actor, leaf).await;
        }
        self.place_to_read(inode, pages)
    }

    fn mapped(&self, inode: &Inode, pages: PageRange) -> Extent {
        self.place_to_write(inode, pages)
    }

    async fn allocate(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) -> Extent {
        self.allocate_pages(machine, actor, inode, pages).await
    }

    fn write_completed(&self, machine: &Machine, written: &PageSpan) -> WritebackEnd {
        self.convert_later(machine, written)
    }

    async fn direct_write_completed(
        &self,
        machine: &Machine,
        actor: &Actor,
        inode: &Inode,
        pages: PageRange,
        size_bytes: u64,
    ) {
        self.convert(machine, actor, inode.number, pages, size_bytes).await
    }

    async fn sync(&self, machine: &Machine, actor: &Actor, inode: &Inode, is_data_only: bool) {
        self.sync_file(machine, actor, inode.number, is_data_only).await
    }

    fn start_commit(&self, machine: &Machine) {
        self.log.request(machine, self.log.last_id());
    }

    async fn sync_all(&self, machine: &Machine, actor: &Actor) {
        self.make_durable(machine, actor, self.log.last_id()).await
    }

    fn class_of_block(&self, page: u64) -> Class {
        let state = self.state.borrow();
        let moving = || state.classes.get(&page).copied();
        state.layout.class_of(page).or_else(moving).unwrap_or(Class::UNCLASSIFIED)
    }

    fn assert_conserved(&self) {
        self.log.assert_conserved();
    }
}
