//! What the machine calls: names and sizes, places at writeback, conversion after it, and fsync.

use super::Xfs;
use super::node::{EXTENT_PAGES_MAX, XfsNode};
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan};
use crate::config::TICK;
use crate::fs::extents::Run;
use crate::fs::{Actor, Extent, Inode, InodeKind, WritebackEnd, flush_bio};
use crate::machine::Machine;

fn as_extent(run: Run) -> Extent {
    Extent { device_offset: Some(run.block * PAGE_BYTES), pages: run.count }
}

impl Xfs {
    /// creat, mkdir: the new inode, its group's inode trees, the directory's block and inode (`xfs_create`).
    pub(super) async fn make(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        let is_directory = inode.kind == InodeKind::Directory;
        self.change(machine, actor, &[directory.number], |state, change| {
            state.make(change, inode.number, Some(directory.number), is_directory);
            state.add_entry(change, directory.number, inode.number);
        })
        .await;
    }

    /// Reads the entry's block and the inode's.
    pub(super) async fn find(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        let blocks = {
            let state = self.state.borrow();
            let entry = state.nodes.get(&directory.number).and_then(|node| {
                let index = node.directory.as_ref()?.find(inode.number)? as u64;
                node.tree.extents.find(PageRange { first: index, count: 1 }).ok()
            });
            [entry.map(|run| run.block), state.nodes.get(&inode.number).map(XfsNode::inode_block)]
        };
        for block in blocks.into_iter().flatten() {
            machine.read_block(actor, block).await;
        }
    }

    /// unlink, rmdir, and the inactivation that follows (`xfs_remove`, `xfs_inactive`).
    pub(super) async fn remove(&self, machine: &Machine, actor: &Actor, directory: &Inode, inode: &Inode) {
        self.change(machine, actor, &[directory.number, inode.number], |state, change| {
            state.remove_entry(change, directory.number, inode.number);
            state.cut(change, inode.number, 0);
            state.unmake(change, inode.number);
        })
        .await;
    }

    /// rename: both entries, both directories, and the inode (`xfs_rename`).
    pub(super) async fn move_entry(&self, machine: &Machine, actor: &Actor, from: &Inode, to: &Inode, inode: &Inode) {
        self.change(machine, actor, &[from.number, to.number, inode.number], |state, change| {
            state.remove_entry(change, from.number, inode.number);
            state.add_entry(change, to.number, inode.number);
            state.touch_inode(change, inode.number, false);
        })
        .await;
    }

    /// truncate (`xfs_setattr_size`).
    pub(super) async fn cut(&self, machine: &Machine, actor: &Actor, inode: &Inode, bytes: u64) {
        self.change(machine, actor, &[inode.number], |state, change| {
            let Some(node) = state.nodes.get_mut(&inode.number) else { return };
            node.size = bytes;
            state.touch_inode(change, inode.number, true);
            if bytes < inode.size() {
                state.cut(change, inode.number, bytes.div_ceil(PAGE_BYTES));
            }
        })
        .await;
    }

    /// A write changes the file's times, once a tick (`xfs_vn_update_time`).
    pub(super) async fn change_times(&self, machine: &Machine, actor: &Actor, inode: &Inode) {
        let tick = machine.now().as_nanos() / TICK.as_nanos();
        let is_old = self.state.borrow().nodes.get(&inode.number).is_some_and(|node| node.tick != tick);
        if !is_old {
            return;
        }
        self.change(machine, actor, &[inode.number], |state, change| {
            if let Some(node) = state.nodes.get_mut(&inode.number) {
                node.tick = tick;
                state.touch_inode(change, inode.number, false);
            }
        })
        .await;
    }

    fn look(&self, inode: InodeNumber, pages: PageRange) -> Option<Result<Run, u64>> {
        self.state.borrow().nodes.get(&inode).map(|node| node.tree.extents.find(pages))
    }

    /// Unwritten blocks read as zero without being read.
    pub(super) fn place_to_read(&self, inode: &Inode, pages: PageRange) -> Extent {
        match self.look(inode.number, pages) {
            Some(Ok(run)) if !run.is_unwritten => as_extent(run),
            Some(Ok(run)) => Extent { device_offset: None, pages: run.count },
            Some(Err(hole)) => Extent { device_offset: None, pages: hole },
            None => Extent { device_offset: None, pages: pages.count },
        }
    }

    /// Unwritten blocks may be written: they are converted afterwards.
    pub(super) fn place_to_write(&self, inode: &Inode, pages: PageRange) -> Extent {
        match self.look(inode.number, pages) {
            Some(Ok(run)) => as_extent(run),
            _ => self.place_to_read(inode, pages),
        }
    }

    /// Gives pages their places at writeback (`xfs_bmapi_convert_delalloc`).
    pub(super) async fn allocate_pages(
        &self,
        machine: &Machine,
        actor: &Actor,
        inode: &Inode,
        pages: PageRange,
    ) -> Extent {
        let number = inode.number;
        match self.look(number, pages) {
            None => return Extent { device_offset: None, pages: pages.count },
            Some(Ok(run)) => return as_extent(run),
            Some(Err(_)) => {}
        }
        let run = self
            .change(machine, actor, &[number], |state, change| {
                // Another task may have done it while the lock was waited for.
                match state.nodes.get(&number)?.tree.extents.find(pages) {
                    Ok(run) => Some(run),
                    Err(count) => Some(state.allocate(change, number, PageRange { count, ..pages })),
                }
            })
            .await;
        run.map_or(Extent { device_offset: None, pages: pages.count }, as_extent)
    }

    /// fallocate: unwritten blocks for everything that has none, and the size (`xfs_alloc_file_space`).
    pub(super) async fn fill_holes(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) {
        let mut first = pages.first;
        while first < pages.end() {
            let rest = PageRange { first, count: (pages.end() - first).min(EXTENT_PAGES_MAX) };
            first += match self.look(inode.number, rest) {
                None => return,
                Some(Ok(run)) => run.count,
                Some(Err(count)) => {
                    let hole = PageRange { first, count };
                    self.change(machine, actor, &[inode.number], |state, change| {
                        let node = state.nodes.get_mut(&inode.number).expect("the caller holds the file");
                        node.size = node.size.max(hole.end() * PAGE_BYTES);
                        state.allocate(change, inode.number, hole).count
                    })
                    .await
                }
            };
        }
    }

    /// The device has the data. A task of its own, in a transaction, converts unwritten blocks or sets the larger size;
    /// the pages stay in writeback until then (`xfs_end_io`).
    pub(super) fn convert_later(&self, machine: &Machine, written: &PageSpan) -> WritebackEnd {
        let Some(inode) = machine.find_inode(written.inode) else { return WritebackEnd::Now };
        let size = inode.size().min(written.pages.end() * PAGE_BYTES);
        if !self.is_conversion_needed(written.inode, written.pages, size) {
            return WritebackEnd::Now;
        }
        let (this, machine, written) = (self.this.clone(), machine.clone(), written.clone());
        machine.clone().spawn_kernel(async move {
            let this = this.upgrade().expect("the machine has it");
            let actor = Actor::proxy(machine.config.accounts.flusher, written.causes);
            this.convert(&machine, &actor, written.inode, written.pages, size).await;
            machine.end_writeback(written.inode, written.pages);
        });
        WritebackEnd::Later
    }

    fn is_conversion_needed(&self, inode: InodeNumber, pages: PageRange, size: u64) -> bool {
        let state = self.state.borrow();
        state.nodes.get(&inode).is_some_and(|node| node.size < size || node.tree.extents.has_unwritten(pages))
    }

    /// The pages' blocks are written, and the file is at least `size` bytes (`xfs_iomap_write_unwritten`,
    /// `xfs_setfilesize`).
    pub(super) async fn convert(
        &self,
        machine: &Machine,
        actor: &Actor,
        inode: InodeNumber,
        pages: PageRange,
        size: u64,
    ) {
        if !self.is_conversion_needed(inode, pages, size) {
            return;
        }
        self.change(machine, actor, &[inode], |state, change| {
            let Some(node) = state.nodes.get_mut(&inode) else { return };
            node.size = node.size.max(size);
            if node.tree.extents.convert(pages) {
                state.tree_changed(change, inode, pages.first);
            }
            state.touch_inode(change, inode, true);
        })
        .await;
    }

    /// fsync: the log up to the file's last change, or the device's cache if that is there already (`xfs_file_fsync`).
    pub(super) async fn sync_file(&self, machine: &Machine, actor: &Actor, inode: InodeNumber, is_data_only: bool) {
        let locks = self.lock_inodes(machine, &[inode]).await;
        locks.iter().for_each(|lock| lock.release(&machine.executor));
        let id = {
            let state = self.state.borrow();
            state.nodes.get(&inode).map_or(0, |node| if is_data_only { node.datasync_id } else { node.sync_id })
        };
        self.make_durable(machine, actor, id).await;
    }

    /// Waits for checkpoint `id`; the device's cache is flushed by it, or here.
    pub(super) async fn make_durable(&self, machine: &Machine, actor: &Actor, id: u64) {
        if !self.log.force(machine, id).await {
            machine.perform(flush_bio(actor)).await;
        }
    }
}
