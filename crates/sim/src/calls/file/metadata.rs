//! Calls that change the size of a file or make it durable.

use super::File;
use crate::cache::{PAGE_BYTES, PageRange};
use crate::fs::Extents;
use crate::writeback::WriteFile;
use plimsoll_core::CallKind;

impl File {
    /// Makes the file durable.
    pub async fn fsync(&self) {
        self.make_durable(CallKind::Fsync).await;
    }

    /// Makes the file's data durable, and of its metadata what is needed to find it.
    pub async fn fdatasync(&self) {
        self.make_durable(CallKind::Fdatasync).await;
    }

    async fn make_durable(&self, kind: CallKind) {
        let (process, inode) = (self.process(), self.inode());
        let call = process.enter(kind, inode, 0, 0).await;
        let (machine, actor) = (process.machine(), process.actor());
        machine.write_file(actor, inode, WriteFile { extents: Extents::All, is_sync: true, ..WriteFile::WHOLE }).await;
        machine.wait_writeback(inode.number, PageRange { first: 0, count: u64::MAX }).await;
        process.file_system().sync(machine, actor, inode, kind == CallKind::Fdatasync).await;
        process.leave(&call, 0);
    }

    /// Sets the file's size.
    pub async fn truncate(&self, bytes: u64) {
        let (process, inode) = (self.process(), self.inode());
        let call = process.enter(CallKind::Truncate, inode, bytes, 0).await;
        let machine = process.machine();
        inode.lock.acquire(&machine.executor).await;
        if bytes < inode.size() {
            machine.drop_pages(inode, bytes.div_ceil(PAGE_BYTES)).await;
        }
        process.file_system().truncate(machine, process.actor(), inode, bytes).await;
        inode.set_size(bytes);
        inode.lock.release(&machine.executor);
        process.leave(&call, 0);
    }

    /// Gives the bytes blocks, and the file a size that includes them.
    pub async fn allocate(&self, offset: u64, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        let call = process.enter(CallKind::Allocate, inode, offset, length).await;
        let machine = process.machine();
        inode.lock.acquire(&machine.executor).await;
        let pages = PageRange::of_bytes(offset, length);
        process.file_system().preallocate(machine, process.actor(), inode, pages).await;
        inode.set_size(inode.size().max(offset + length));
        inode.lock.release(&machine.executor);
        process.leave(&call, 0);
    }

    /// Gives the file a size of `bytes` and blocks that are written, as direct writes would have left them: a file with
    /// data, for an experiment that starts with one. No data moves.
    pub async fn fill(&self, bytes: u64) {
        self.allocate(0, bytes).await;
        let (process, inode) = (self.process(), self.inode());
        let pages = PageRange::of_bytes(0, bytes);
        process.file_system().direct_write_completed(process.machine(), process.actor(), inode, pages, bytes).await;
    }
}
