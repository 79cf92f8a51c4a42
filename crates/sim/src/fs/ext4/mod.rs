//! ext4: ordered mode, delayed allocation, one journal that all changes go through together.
//!
//! ```text
//!   create, unlink, ...   write: before_write    writeback: allocate      end of I/O: conversion
//!          \                     |                      |                     /
//!           +----- handles of the running transaction: which metadata blocks, and causes --+
//!                                        | commit
//!          ordered data of every file in it -> log -> barrier -> commit block -> flusher writes blocks in place
//! ```
//!
//! The rule: a commit makes everything durable that has joined the transaction. Its order ensures that no file ever
//! shows blocks that its data has not reached. So an fsync of one file waits for the data of others with blocks chosen
//! in the same transaction (split-level paper, figures 4 and 5).
//!
//! The complication is `dioread_nolock`, which buffered writes use by default since Linux 5.6. Blocks are allocated as
//! *unwritten*, and a later transaction marks them as written once the device has the data. Then a commit has no data
//! to wait for. Both are here: [`Ext4Options::dioread_nolock`].
//!
//! [`layout`] says where things are, [`allocator`] which blocks a file gets, [`node`] which metadata changes with it,
//! [`journal`] how it becomes durable. The machine calls `operations` and `writing`. What is simplified stands in
//! `docs/simulator.md`.

pub mod allocator;
mod check;
pub mod journal;
pub mod layout;
pub mod node;
mod operations;
mod writing;

use super::space::Blocks;
use super::{Actor, Extent, FileSystem, Inode, WritebackEnd};
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan};
use crate::machine::Machine;
use allocator::Allocator;
use async_trait::async_trait;
use journal::Journal;
use layout::{Ext4Layout, ROOT_SLOT};
use node::{Ext4Change, Ext4Node, Ext4State};
use plimsoll_core::{Class, Span};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// Age at which a transaction is committed (mount option `commit=`, `JBD2_DEFAULT_MAX_COMMIT_AGE`).
const COMMIT_INTERVAL: Span = Span::from_secs(5);

/// How it is made and mounted.
#[derive(Clone, Copy, Debug)]
pub struct Ext4Options {
    /// Blocks are given out unwritten and converted when the data is there, instead of ordering data before the commit.
    pub dioread_nolock: bool,
    /// Blocks of the journal; `None` for what mke2fs gives it.
    pub journal_blocks: Option<u64>,
    /// Age at which a transaction is committed.
    pub commit_interval: Span,
}

impl Ext4Options {
    /// As until Linux 5.5, and with `dioread_lock` today: data is ordered before the commit.
    pub const ORDERED: Ext4Options =
        Ext4Options { dioread_nolock: false, journal_blocks: None, commit_interval: COMMIT_INTERVAL };
    /// As Linux mounts it by default since 5.6.
    pub const NOLOCK: Ext4Options = Ext4Options { dioread_nolock: true, ..Ext4Options::ORDERED };
}

/// An ext4.
pub struct Ext4 {
    options: Ext4Options,
    state: RefCell<Ext4State>,
    /// The journal.
    pub journal: Journal,
    this: Weak<Ext4>,
}

impl Ext4 {
    /// Freshly made on a device of so many bytes.
    ///
    /// # Panics
    /// If the device is smaller than 256 MiB, or the journal does not fit.
    pub fn new(capacity_bytes: u64, options: Ext4Options) -> Rc<Ext4> {
        let layout = Ext4Layout::new(capacity_bytes / PAGE_BYTES, options.journal_blocks);
        let allocator = Allocator::new(&layout);
        let journal = Journal::new(layout.journal, options.commit_interval);
        let mut state = Ext4State { layout, allocator, nodes: BTreeMap::new(), classes: BTreeMap::new() };
        state.nodes.insert(InodeNumber::ROOT, Ext4Node::new(ROOT_SLOT, true));
        // mke2fs wrote this one: nothing to journal.
        state.add_directory_block(&mut Ext4Change::default(), InodeNumber::ROOT, 0);
        Rc::new_cyclic(|this| Ext4 { options, state: RefCell::new(state), journal, this: this.clone() })
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.state.borrow().allocator.free_blocks()
    }

    /// Where the pages of a file lie, in order: first page, first block, pages, whether unwritten.
    pub fn places(&self, inode: InodeNumber) -> Vec<super::extents::Run> {
        self.state.borrow().nodes.get(&inode).map_or(Vec::new(), |node| node.tree.extents.iter().copied().collect())
    }

    /// The block with a file's inode.
    #[cfg(test)]
    pub fn inode_block(&self, inode: InodeNumber) -> u64 {
        let state = self.state.borrow();
        state.layout.inode_block(state.nodes[&inode].slot)
    }

    /// Every block that a file has or keeps.
    #[cfg(test)]
    pub fn owned(&self) -> Vec<Blocks> {
        self.state.borrow().nodes.values().flat_map(Ext4Node::all_blocks).collect()
    }

    /// Whether `block` is free.
    #[cfg(test)]
    pub fn is_free(&self, block: u64) -> bool {
        self.state.borrow().allocator.is_free(block)
    }

    /// Decides a change and journals it in one handle. What is decided is decided at once; then each block is brought
    /// in and joins.
    async fn change<T>(
        &self,
        machine: &Machine,
        actor: &Actor,
        decide: impl FnOnce(&mut Ext4State, &mut Ext4Change) -> T,
    ) -> T {
        let handle = self.journal.start(machine, actor).await;
        let mut change = Ext4Change { id: handle.id, ..Ext4Change::default() };
        let answer = decide(&mut self.state.borrow_mut(), &mut change);
        if let Some((inode, blocks)) = change.ordered {
            handle.order(inode, blocks);
        }
        for (block, is_new) in change.blocks {
            handle.join(block, is_new).await;
        }
        change.forgotten.iter().for_each(|&block| handle.forget(block));
        handle.free(&change.freed);
        handle.stop();
        answer
    }

    async fn run_journal(self: Rc<Ext4>, machine: Machine) {
        loop {
            let freed: Vec<Blocks> = self.journal.commit_next(&machine).await;
            let mut state = self.state.borrow_mut();
            freed.into_iter().for_each(|blocks| state.allocator.release(blocks));
        }
    }
}

#[async_trait(?Send)]
impl FileSystem for Ext4 {
    fn name(&self) -> &'static str {
        if self.options.dioread_nolock { "ext4 (dioread_nolock)" } else { "ext4 (dioread_lock)" }
    }

    fn mount(self: Rc<Self>, machine: &Machine) {
        machine.spawn_kernel(self.clone().run_journal(machine.clone()));
        let watched = machine.clone();
        machine.spawn_kernel(async move { self.journal.watch_age(&watched).await });
    }

    async fn create(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.make(machine, actor, directory, inode).await
    }

    async fn lookup(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.find(machine, actor, directory, inode).await
    }

    async fn read_directory(&self, machine: &Machine, actor: &Actor, directory: &Inode) {
        let blocks: Vec<u64> = {
            let state = self.state.borrow();
            let runs = state.nodes.get(&directory.number).into_iter().flat_map(|node| node.tree.extents.iter());
            runs.flat_map(|run| run.block..run.block + run.count).collect()
        };
        for block in blocks {
            machine.read_block(actor, block).await;
        }
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

    async fn before_write(&self, machine: &Machine, actor: &Actor, inode: &Inode, offset: u64, length: u64) {
        self.change_times(machine, actor, inode, offset + length).await
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
        _size_bytes: u64,
    ) {
        self.convert(machine, actor, inode.number, pages).await
    }

    async fn sync(&self, machine: &Machine, actor: &Actor, inode: &Inode, is_data_only: bool) {
        let id = {
            let state = self.state.borrow();
            let node = state.nodes.get(&inode.number);
            node.map(|node| if is_data_only { node.datasync_id } else { node.sync_id })
        };
        if let Some(id) = id {
            self.make_durable(machine, actor, id).await;
        }
    }

    fn start_commit(&self, machine: &Machine) {
        self.journal.request(machine, self.journal.last_id());
    }

    async fn sync_all(&self, machine: &Machine, actor: &Actor) {
        self.make_durable(machine, actor, self.journal.last_id()).await
    }

    fn class_of_block(&self, page: u64) -> Class {
        let state = self.state.borrow();
        let moving = || state.classes.get(&page).copied();
        state.layout.class_of(page).or_else(moving).unwrap_or(Class::UNCLASSIFIED)
    }

    fn check_order(&self) -> Vec<PageRange> {
        self.blocks_to_check()
    }

    fn assert_conserved(&self) {
        self.journal.assert_conserved();
    }
}
