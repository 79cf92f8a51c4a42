//! Data: times before a write, places at writeback, conversion after it, and fsync.

use super::Ext4;
use super::node::EXTENT_PAGES_MAX;
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan};
use crate::config::TICK;
use crate::fs::extents::Run;
use crate::fs::space::Blocks;
use crate::fs::{Actor, Extent, Inode, WritebackEnd, flush_bio};
use crate::machine::Machine;

fn as_extent(run: Run) -> Extent {
    Extent { device_offset: Some(run.block * PAGE_BYTES), pages: run.count }
}

impl Ext4 {
    /// A write changes the file's times, once a tick, and its size in memory when it grows. The inode joins, and causes
    /// of earlier writers stay (`file_update_time`, `ext4_dirty_inode`).
    pub(super) async fn change_times(&self, machine: &Machine, actor: &Actor, inode: &Inode, end: u64) {
        let tick = machine.now().as_nanos() / TICK.as_nanos();
        let last = self.state.borrow().nodes.get(&inode.number).map(|node| node.tick);
        let Some(last) = last else { return };
        if last == tick && end <= inode.size() {
            return;
        }
        self.change(machine, actor, |state, change| {
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

    /// Where data goes without changing any metadata before: a file with ordered data must not write to unwritten
    /// blocks unless they are converted.
    pub(super) fn place_to_write(&self, inode: &Inode, pages: PageRange) -> Extent {
        match self.look(inode.number, pages) {
            Some(Ok(run)) if self.options.dioread_nolock || !run.is_unwritten => as_extent(run),
            _ => self.place_to_read(inode, pages),
        }
    }

    /// Gives pages their places at writeback (`ext4_writepages`, `mpage_map_one_extent`). Direct writes always get
    /// unwritten ones, which are converted when the data is there; their pages are not dirty.
    pub(super) async fn allocate_pages(
        &self,
        machine: &Machine,
        actor: &Actor,
        inode: &Inode,
        pages: PageRange,
    ) -> Extent {
        let is_buffered = machine.cache.borrow().mapping(inode.number).is_some_and(|m| m.is_dirty(pages.first));
        let is_ordered = is_buffered && !self.options.dioread_nolock;
        let number = inode.number;
        match self.look(number, pages) {
            None => return Extent { device_offset: None, pages: pages.count },
            Some(Ok(run)) if !run.is_unwritten || !is_ordered => return as_extent(run),
            Some(_) => {}
        }
        let run = self
            .change(machine, actor, |state, change| {
                // Another task may have done it while the handle was waited for.
                let run = match state.nodes.get_mut(&number)?.tree.extents.find(pages) {
                    Ok(run) if run.is_unwritten && is_ordered => {
                        let node = state.nodes.get_mut(&number)?;
                        node.tree.extents.convert(PageRange { first: run.page, count: run.count });
                        state.tree_changed(change, number, run.page);
                        state.touch_inode(change, number, true);
                        run
                    }
                    Ok(run) => return Some(run),
                    Err(count) => state.allocate(change, number, PageRange { count, ..pages }, !is_ordered),
                };
                if is_ordered {
                    change.ordered = Some((number, Blocks { first: run.block, count: run.count }));
                }
                Some(run)
            })
            .await;
        run.map_or(Extent { device_offset: None, pages: pages.count }, as_extent)
    }

    /// fallocate: unwritten blocks for everything that has none (`ext4_alloc_file_blocks`).
    pub(super) async fn fill_holes(&self, machine: &Machine, actor: &Actor, inode: &Inode, pages: PageRange) {
        let mut first = pages.first;
        while first < pages.end() {
            let rest = PageRange { first, count: (pages.end() - first).min(EXTENT_PAGES_MAX) };
            first += match self.look(inode.number, rest) {
                None => return,
                Some(Ok(run)) => run.count,
                Some(Err(count)) => {
                    let hole = PageRange { first, count };
                    self.change(machine, actor, |state, change| state.allocate(change, inode.number, hole, true))
                        .await
                        .count
                }
            };
        }
    }

    /// The device has the data. A task of its own converts unwritten blocks, and the pages stay in writeback until then
    /// (`ext4_end_bio`, `ext4_end_io_rsv_work`).
    pub(super) fn convert_later(&self, machine: &Machine, written: &PageSpan) -> WritebackEnd {
        let is_unwritten = {
            let state = self.state.borrow();
            state.nodes.get(&written.inode).is_some_and(|node| node.tree.extents.has_unwritten(written.pages))
        };
        if !is_unwritten {
            return WritebackEnd::Now;
        }
        let (this, machine, written) = (self.this.clone(), machine.clone(), written.clone());
        machine.clone().spawn_kernel(async move {
            let this = this.upgrade().expect("the machine has it");
            let actor = Actor::proxy(machine.config.accounts.flusher, written.causes);
            this.convert(&machine, &actor, written.inode, written.pages).await;
            machine.end_writeback(written.inode, written.pages);
        });
        WritebackEnd::Later
    }

    /// The pages' blocks are written (`ext4_convert_unwritten_extents`).
    pub(super) async fn convert(&self, machine: &Machine, actor: &Actor, inode: InodeNumber, pages: PageRange) {
        let is_unwritten = |node: &super::Ext4Node| node.tree.extents.has_unwritten(pages);
        if !self.state.borrow().nodes.get(&inode).is_some_and(is_unwritten) {
            return;
        }
        self.change(machine, actor, |state, change| {
            if state.nodes.get_mut(&inode).is_some_and(|node| node.tree.extents.convert(pages)) {
                state.tree_changed(change, inode, pages.first);
                state.touch_inode(change, inode, true);
            }
        })
        .await;
    }

    /// Waits for the commit of transaction `id`; the device's cache is flushed by it, or here if it was over when the
    /// data came (`ext4_sync_file`).
    pub(super) async fn make_durable(&self, machine: &Machine, actor: &Actor, id: u64) {
        let needs_barrier = !self.journal.will_send_barrier(id);
        self.journal.request(machine, id);
        self.journal.wait_committed(machine, id).await;
        if needs_barrier {
            machine.perform(flush_bio(actor)).await;
        }
    }
}
