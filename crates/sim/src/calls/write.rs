//! write: into the page cache, page by page, until the dirtier must be throttled.
//!
//! A page that is written in part, is not in memory and exists on the device is read first. How many pages a process may
//! dirty before it is looked at again is [`crate::writeback::throttle`]'s business.

use crate::cache::{PAGE_BYTES, PageRange, frames};
use crate::process::File;
use plimsoll_core::CallKind;

/// Pages that are copied in one piece of processor time: time is not simulated finer than this.
const COPY_PAGES_MAX: u64 = 32;

impl File {
    /// Writes `length` bytes at `offset`.
    pub async fn write(&self, offset: u64, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        let call = process.enter(CallKind::Write, inode, offset, length).await;
        inode.lock.acquire(&process.machine().executor).await;
        self.write_locked(offset, length).await;
        inode.lock.release(&process.machine().executor);
        process.leave(&call, length);
    }

    /// Writes `length` bytes at the file's end.
    pub async fn append(&self, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        let call = process.enter(CallKind::Write, inode, inode.size(), length).await;
        inode.lock.acquire(&process.machine().executor).await;
        self.write_locked(inode.size(), length).await;
        inode.lock.release(&process.machine().executor);
        process.leave(&call, length);
    }

    async fn write_locked(&self, offset: u64, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        let machine = process.machine();
        process.file_system().before_write(machine, process.actor(), inode, offset, length).await;
        if self.is_direct() {
            return self.write_direct(offset, length).await;
        }
        let (end, mut at) = (offset + length, offset);
        while at < end {
            let pages_max = process.dirtier().allowance().min(COPY_PAGES_MAX);
            let piece_end = end.min((at / PAGE_BYTES + pages_max) * PAGE_BYTES);
            let pages = PageRange::of_bytes(at, piece_end - at);
            for page in [pages.first, pages.end() - 1] {
                let lacks_tail = (page + 1) * PAGE_BYTES > piece_end && piece_end < inode.size();
                if page * PAGE_BYTES < at || lacks_tail {
                    self.fill_page(page).await;
                }
            }
            process.compute(machine.config.cpu.page_write * pages.count).await;
            self.prepare(pages).await;
            machine.dirty(inode.number, pages, &process.actor().causes);
            inode.set_size(inode.size().max(piece_end));
            at = piece_end;
            machine.balance_dirty_pages(process, pages.count).await;
        }
    }

    /// Reads a page that is written in part, if there is anything to read.
    async fn fill_page(&self, page: u64) {
        let inode = self.inode();
        let is_absent = self.process().machine().cache.borrow().flags(inode.number, page).is_none();
        if is_absent && page * PAGE_BYTES < inode.size() {
            self.read_pages(PageRange { first: page, count: 1 }).await;
        }
    }

    /// Brings the pages into memory, empty if they were not there, and waits for those that must not be changed now.
    async fn prepare(&self, pages: PageRange) {
        let (machine, number) = (self.process().machine(), self.inode().number);
        let busy = frames::LOCKED | if machine.config.has_stable_pages { frames::WRITEBACK } else { 0 };
        'again: loop {
            machine.reserve_memory(pages.count).await;
            for page in pages.first..pages.end() {
                let flags = machine.cache.borrow().flags(number, page);
                match flags {
                    Some(flags) if flags & busy != 0 => {
                        machine.wait_page(number, page).await;
                        continue 'again;
                    }
                    Some(_) => {}
                    None => machine.cache.borrow_mut().insert(number, page, 0),
                }
            }
            return;
        }
    }
}
