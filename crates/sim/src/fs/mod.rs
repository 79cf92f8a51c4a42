//! File systems: where the blocks of files lie, what else must be written so that they are found again, and in which
//! order.
//!
//! The machine does what Linux does above and around a file system. That covers system calls and their gate, names, the
//! page cache, read-ahead, the flusher, throttling and the block layer. A file system implements [`FileSystem`];
//! [`raw`] is the smallest one that is real. What is called when:
//!
//! | a process calls | the machine does | and calls |
//! | --- | --- | --- |
//! | creat, mkdir | gate, directory's lock, makes the [`Inode`] | [`create`](FileSystem::create) |
//! | open, stat | finds the inode | [`lookup`](FileSystem::lookup): reads the directory's and the inode's block |
//! | unlink | gate, lock, takes the name away; drops the pages | [`unlink`](FileSystem::unlink) |
//! | rename | gate, both directories' locks, moves the name | [`rename`](FileSystem::rename), `unlink` of an old one |
//! | truncate | gate, lock, waits for writeback, drops pages | [`truncate`](FileSystem::truncate), then sets the size |
//! | fallocate | gate, lock | [`preallocate`](FileSystem::preallocate), then sets the size if it grows |
//! | write, append | gate, lock; dirties pages, sets the size, throttles | [`before_write`](FileSystem::before_write) |
//! | read | per page: hit, wait, or read-ahead | [`map`](FileSystem::map) for each stretch that is not in memory |
//! | fsync, fdatasync | gate; writes the file's dirty pages as the caller, waits | [`sync`](FileSystem::sync) |
//! | sync (all) | writes every file, waits | [`sync_all`](FileSystem::sync_all) |
//! | (flusher, fsync, a scheduler's wish) | takes the next dirty pages of a file | [`allocate`](FileSystem::allocate) |
//! | (the device is done) | ends their writeback | [`write_completed`](FileSystem::write_completed) |
//!
//! **Actors.** An [`Actor`] does everything. Its *session* is the submitter of its I/O (as CFQ sees it). Its *causes*
//! are the accounts that the I/O is for (as a split-level scheduler charges). A process acts for itself. The flusher
//! and a journal's task are *proxies*. Their session is an account of the configuration
//! ([`crate::config::KernelAccounts`]), their causes are those of the tasks that they serve. When `allocate` is called,
//! `actor.causes` is already the union of the sets of the pages that are about to be written (split-level paper,
//! section 3.1). So metadata that `allocate` dirties is dirtied for `actor.causes`. A journal keeps for each
//! transaction the union of the causes of all that joined and commits as `Actor::proxy(journal account, that union)`.
//!
//! **Delayed allocation.** A buffered write allocates nothing: `before_write` may reserve, join a transaction (the
//! inode's times change) and wait for one that is locked. Blocks are chosen in `allocate`, at writeback, for up to
//! [`ALLOCATE_PAGES_MAX`] neighbouring dirty pages at once. It answers with a prefix of them that lies in one piece,
//! and is called again for the rest. A file system without delayed allocation reserves in `before_write` and answers in
//! `allocate` with what it has.
//!
//! **A page on its way.** dirty -> `allocate` (may wait) ->
//! [`Cache::begin_writeback`](crate::cache::Cache::begin_writeback) (the page loses its causes to the request) -> one
//! bio for each extent, the submitter's session, `is_sync` if a task waits (fsync, a journal's ordered data), class by
//! file size, `file` set -> device -> `write_completed`: answer [`WritebackEnd::Now`], or [`WritebackEnd::Later`] to
//! keep the pages in writeback until the file system calls [`Machine::end_writeback`] (conversion of unwritten extents,
//! a size that must reach the log first). A task that waits for writeback then waits for that too.
//!
//! **Metadata blocks** are pages of the file [`InodeNumber::DEVICE`]: page n is the device's n-th 4 KiB. See
//! [`metadata`]: read one, pin one while a transaction has it, announce that it was dirtied, hand it to the flusher, or
//! write it now. What is not to be seen by the flusher yet (a block in a running transaction) is pinned and not dirty.
//! The class of a metadata page is [`class_of_block`](FileSystem::class_of_block).
//!
//! **A journal** spawns its task in [`mount`](FileSystem::mount) with `machine.spawn_kernel(future)`, and builds its
//! own [`Bio`](crate::block::Bio)s. `machine.perform(bio)` waits for the device. `machine.unplug(&mut plug)` merges and
//! submits many, with a [`Group`](crate::executor::wait::Group) to wait for. A barrier is [`flush_bio`], a block that
//! must be durable has `is_forced`. Ordered data of a transaction takes [`Machine::write_file`] with
//! [`Extents::Mapped`], then [`Machine::wait_writeback`]. The first writes only pages with a place, so that a commit
//! never needs a handle of its own transaction. **A commit may wait** for the device, for free requests, for pages in
//! writeback (of any file), and for handles to close. It must not wait for `allocate`, for memory, or for a lock of an
//! inode, since the lock's holder may wait for the commit. For the same reason `before_write` and `allocate` close
//! their handle before they return.
//!
//! **Waiting** is done by [`crate::executor::wait`]; no `RefCell` may be borrowed across an `await`. The time is
//! `machine.now()`; chance, if any, is drawn from a stream that is seeded from `machine.config.seed`.
//!
//! **Space.** A full device is a mistake of the experiment: file systems panic with one line that says how full it is.

pub mod directory;
pub mod ext4;
pub mod extent_tree;
pub mod extents;
#[cfg(test)]
pub(crate) mod history;
pub mod inode;
pub mod metadata;
pub mod raw;
pub mod ring;
pub mod space;
#[cfg(test)]
mod testing;
pub mod xfs;

pub use inode::{Inode, InodeKind};

use crate::block::{Bio, BioEnd};
use crate::cache::{InodeNumber, PageRange, PageSpan};
use crate::machine::Machine;
use async_trait::async_trait;
use plimsoll_core::{AccountId, CauseSet, Class, Operation};
use std::rc::Rc;

/// Pages that one call of [`FileSystem::allocate`] is offered at the most: 8 MiB (ext4 `MAX_WRITEPAGES_EXTENT_LEN`).
pub const ALLOCATE_PAGES_MAX: u64 = 2048;

/// Classes as `classes/ext4.toml` numbers them (Differentiated Storage Services, table 3).
pub mod class {
    use plimsoll_core::Class;

    const fn class(number: u8) -> Class {
        Class::new(number).expect("five bits")
    }

    /// The superblock.
    pub const SUPERBLOCK: Class = class(1);
    /// Group descriptors.
    pub const GROUP_DESCRIPTOR: Class = class(2);
    /// Block and inode bitmaps.
    pub const BITMAP: Class = class(3);
    /// Inode tables.
    pub const INODE: Class = class(4);
    /// Indirect and extent blocks.
    pub const INDIRECT: Class = class(5);
    /// Directories.
    pub const DIRECTORY: Class = class(6);
    /// The journal.
    pub const JOURNAL: Class = Class::JOURNAL;
    /// Files of at most 4 KiB; the next ten classes each allow four times as much, the last any size.
    const FILE_SMALLEST: u8 = 8;
    const FILE_LARGEST: u8 = 18;
    const FILE_SMALLEST_BYTES: u64 = 4096;

    /// The class of a file of `bytes`.
    pub fn of_file(bytes: u64) -> Class {
        let (mut number, mut limit) = (FILE_SMALLEST, FILE_SMALLEST_BYTES);
        while bytes > limit && number < FILE_LARGEST {
            (number, limit) = (number + 1, limit * 4);
        }
        class(number)
    }
}

/// The session that submits an I/O, and the causes that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The session that submits I/O.
    pub session: AccountId,
    /// The accounts that cause it.
    pub causes: CauseSet,
}

impl Actor {
    /// A process of this session, which acts for itself.
    pub fn process(session: AccountId) -> Actor {
        Actor { session, causes: CauseSet::of(session) }
    }

    /// A kernel task of this session, which acts for others.
    pub fn proxy(session: AccountId, causes: CauseSet) -> Actor {
        Actor { session, causes }
    }
}

/// A stretch of a file that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte on the device; `None` for a hole, or where blocks are not chosen yet.
    pub device_offset: Option<u64>,
    /// Pages, from the one that was asked for.
    pub pages: u64,
}

/// Which dirty pages [`Machine::write_file`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extents {
    /// All: what has no place yet gets one from [`FileSystem::allocate`].
    All,
    /// Those that have their place ([`FileSystem::mapped`]).
    Mapped,
}

/// When the writeback of pages ends that the device has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritebackEnd {
    /// At once.
    Now,
    /// When the file system calls [`Machine::end_writeback`].
    Later,
}

/// A file system. See the module's documentation for what is called when.
#[async_trait(?Send)]
pub trait FileSystem {
    /// What people call it, with its options.
    fn name(&self) -> &'static str;

    /// Called once, before anything else: sets up what it needs of the machine and spawns its tasks.
    fn mount(self: Rc<Self>, machine: &Machine) {
        let _ = machine;
    }

    /// A file or directory (`inode.kind`) is made in `directory`.
    async fn create(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode);

    /// Brings what is needed to know `inode` in `directory` into memory.
    async fn lookup(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode);

    /// Brings all names of `directory` into memory.
    async fn read_directory(&self, machine: &Machine, actor: &Actor, directory: &Inode) {
        let _ = (machine, actor, directory);
    }

    /// `inode` has lost its name in `directory` and its pages; its blocks become free.
    async fn unlink(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode);

    /// `inode` moves from the directory `from` to `to`, which may be the same.
    async fn rename(&self, machine: &Machine, actor: &Actor, from: &Inode, to: &Inode, inode: &Inode);

    /// The file gets a size of `bytes`; its pages behind that are gone. `inode.size()` is still the old size.
    async fn truncate(&self, machine: &Machine, actor: &Actor, inode: &Inode, bytes: u64);

    /// The pages get blocks now, which read as zero until they are written.
    async fn preallocate(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange);

    /// A process is going to dirty these bytes of the file. `inode.size()` is the size before. Called for buffered and
    /// direct writes.
    async fn before_write(&self, machine: &Machine, actor: &Actor, inode: &Inode, offset: u64, length: u64);

    /// Where the first of `pages` lies, and how many after it go on there (at most `pages.count`, at least 1). May read
    /// metadata.
    async fn map(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) -> Extent;

    /// As [`map`](Self::map), at once and from memory alone: a stretch with blocks that are not chosen yet, or not
    /// known, has no place.
    fn mapped(&self, inode: &Inode, pages: PageRange) -> Extent;

    /// As [`map`](Self::map) for pages that are going to be written: what has no blocks gets them.
    async fn allocate(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) -> Extent;

    /// The device has written these pages. Called outside of any task: must not wait, may spawn.
    fn write_completed(&self, machine: &Machine, written: &PageSpan) -> WritebackEnd {
        let _ = (machine, written);
        WritebackEnd::Now
    }

    /// Direct writes to these pages are done: their blocks are written, and a size that grows is `size_bytes` (ext4
    /// `ext4_dio_write_end_io`, XFS `xfs_dio_write_end_io`).
    async fn direct_write_completed(
        &self,
        machine: &Machine,
        actor: &Actor,
        inode: &Inode,
        pages: PageRange,
        size_bytes: u64,
    ) {
        let _ = (machine, actor, inode, pages, size_bytes);
    }

    /// Makes durable what is needed to find the file's data, all of which the device has completed; `is_data_only` for
    /// fdatasync. Answers for the device's cache too: without a journal, by a flush.
    async fn sync(&self, machine: &Machine, actor: &Actor, inode: &Inode, is_data_only: bool);

    /// Begins to make durable whatever metadata has changed, and does not wait. Called outside of any task.
    fn start_commit(&self, machine: &Machine) {
        let _ = machine;
    }

    /// Makes all metadata durable.
    async fn sync_all(&self, machine: &Machine, actor: &Actor);

    /// The class of a page of [`InodeNumber::DEVICE`].
    fn class_of_block(&self, page: u64) -> Class;

    /// The blocks that a check of the whole file system reads, in the order in which it does; those of one range at
    /// once. None where no checker is modelled.
    fn check_order(&self) -> Vec<PageRange> {
        Vec::new()
    }

    /// # Panics
    /// If its books do not agree; called at the end of every run.
    fn assert_conserved(&self) {}
}

/// A barrier: what completed before becomes durable.
pub fn flush_bio(actor: &Actor) -> Bio {
    Bio {
        session: actor.session,
        causes: actor.causes.clone(),
        class: Class::UNCLASSIFIED,
        operation: Operation::Flush,
        offset: 0,
        length: 0,
        is_sync: true,
        is_forced: false,
        file: None,
        end: BioEnd::Nothing,
    }
}

/// The class of a file's pages: the application's, if it says one (Differentiated Storage Services, section 3.4).
pub(crate) fn class_of(file_system: &dyn FileSystem, inode: &Inode, page: u64) -> Class {
    match inode.kind {
        _ if inode.number == InodeNumber::DEVICE => file_system.class_of_block(page),
        InodeKind::Directory => class::DIRECTORY,
        InodeKind::File => inode.class.get().unwrap_or_else(|| class::of_file(inode.size())),
    }
}
