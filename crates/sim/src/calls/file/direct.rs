//! Direct I/O: between the process and the device, past the page cache.

use super::File;
use crate::block::{Bio, BioEnd, Plug};
use crate::cache::{PAGE_BYTES, PageRange};
use crate::executor::wait::Group;
use crate::fs::{Extent, Extents, class_of};
use crate::writeback::WriteFile;
use plimsoll_core::Operation;

impl File {
    /// Writes what is cached of the file first, as Linux does, then the bytes; the blocks are allocated at once.
    pub(crate) async fn write_direct(&self, offset: u64, length: u64) {
        self.flush_cached().await;
        self.transfer(Operation::Write, offset, length).await;
        let (process, inode) = (self.process(), self.inode());
        let (pages, size) = (PageRange::of_bytes(offset, length), inode.size().max(offset + length));
        process.file_system().direct_write_completed(process.machine(), process.actor(), inode, pages, size).await;
        inode.set_size(size);
    }

    pub(crate) async fn read_direct(&self, offset: u64, length: u64) {
        self.flush_cached().await;
        self.transfer(Operation::Read, offset, length).await;
    }

    async fn flush_cached(&self) {
        let (process, inode) = (self.process(), self.inode());
        let (machine, actor) = (process.machine(), process.actor());
        let has_dirty = machine.cache.borrow().mapping(inode.number).is_some_and(|m| m.dirty + m.writeback > 0);
        if has_dirty {
            let whole = WriteFile { extents: Extents::All, is_sync: true, ..WriteFile::WHOLE };
            machine.write_file(actor, inode, whole).await;
            machine.wait_writeback(inode.number, PageRange { first: 0, count: u64::MAX }).await;
        }
    }

    async fn transfer(&self, operation: Operation, offset: u64, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        let (machine, actor) = (process.machine(), process.actor());
        let mut pages = PageRange::of_bytes(offset, length);
        let (mut plug, group) = (Plug::default(), Group::default());
        while pages.count > 0 {
            let extent: Extent = match operation {
                Operation::Read => process.file_system().map(machine, actor, inode, pages).await,
                _ => process.file_system().allocate(machine, actor, inode, pages).await,
            };
            if let Some(device_offset) = extent.device_offset {
                group.add();
                plug.add(Bio {
                    session: actor.session,
                    causes: actor.causes.clone(),
                    class: self.class().unwrap_or_else(|| class_of(process.file_system(), inode, pages.first)),
                    operation,
                    offset: device_offset,
                    length: (extent.pages * PAGE_BYTES) as u32,
                    is_sync: true,
                    is_forced: false,
                    file: Some(inode.number.file()),
                    end: BioEnd::Group(group.clone()),
                });
            }
            pages = PageRange { first: pages.first + extent.pages, count: pages.count - extent.pages };
        }
        machine.unplug(&mut plug).await;
        group.wait(&machine.executor).await;
    }
}
