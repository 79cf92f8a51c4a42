//! write: into the page cache, folio by folio; before each it is looked whether the dirtier must be throttled.
//!
//! A folio is the piece of memory that is taken, filled and dirtied at once. It is a page, or as many as the write
//! fills from an aligned place on, up to the file system's largest folio. A page that is written in part, is not in
//! memory and exists on the device is read first. How many pages a process may dirty before it is looked at again is
//! [`crate::writeback::throttle`]'s business.

use super::File;
use crate::cache::{PAGE_BYTES, PageRange, frames};
use plimsoll_core::CallKind;

/// Folios of one page that are copied in one piece of processor time: time is not simulated finer than this.
const COPY_PAGES_MAX: u64 = 32;

/// Pages of the folio that a write of `bytes` takes at `page` (`__filemap_get_folio`, `fgf_set_order`). It is a power
/// of two that the write fills, as `page` is aligned.
fn folio_pages(page: u64, bytes: u64, folio_bytes_max: u64) -> u64 {
    let filled = 1 << (bytes.min(folio_bytes_max) / PAGE_BYTES).max(1).ilog2();
    if page.is_multiple_of(filled) { filled } else { 1 << page.trailing_zeros() }
}

impl File {
    /// Writes `length` bytes at `offset`.
    pub async fn write(&self, offset: u64, length: u64) {
        let (process, inode) = (self.process(), self.inode());
        process.machine().cache.borrow().expect_place(inode.number, offset / PAGE_BYTES);
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
        if self.class().is_some() {
            inode.class.set(self.class());
        }
        process.file_system().before_write(machine, process.actor(), inode, offset, length).await;
        if self.is_direct() {
            return self.write_direct(offset, length).await;
        }
        let (end, mut at) = (offset + length, offset);
        while at < end {
            machine.balance_dirty_pages(process.dirtier()).await;
            let folio = folio_pages(at / PAGE_BYTES, end - at, machine.config.folio_bytes_max);
            let pages_max = if folio > 1 { folio } else { self.single_pages_max() };
            let piece_end = end.min((at / PAGE_BYTES + pages_max) * PAGE_BYTES);
            let pages = PageRange::of_bytes(at, piece_end - at);
            for page in [pages.first, pages.end() - 1] {
                let lacks_tail = (page + 1) * PAGE_BYTES > piece_end && piece_end < inode.size();
                if page * PAGE_BYTES < at || lacks_tail {
                    self.fill_page(page).await;
                }
            }
            machine.cache.borrow().expect_frame(inode.number, pages.first);
            process.compute(machine.config.cpu.page_write * pages.count).await;
            self.prepare(pages).await;
            process.dirtier().count(machine.dirty(inode.number, pages, &process.actor().causes));
            inode.set_size(inode.size().max(piece_end));
            at = piece_end;
        }
    }

    /// Folios of one page that are taken one after the other without a look between them.
    fn single_pages_max(&self) -> u64 {
        let process = self.process();
        if process.machine().config.folio_bytes_max > PAGE_BYTES {
            return 1;
        }
        process.dirtier().allowance().min(COPY_PAGES_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a write, in pages, as the loop takes them.
    fn pieces(first: u64, pages: u64, folio_pages_max: u64) -> Vec<u64> {
        let (mut at, end, mut pieces) = (first, first + pages, Vec::new());
        while at < end {
            pieces.push(folio_pages(at, (end - at) * PAGE_BYTES, folio_pages_max * PAGE_BYTES));
            at += pieces.last().expect("just pushed");
        }
        assert_eq!(at, end, "a folio is filled");
        pieces
    }

    #[test]
    fn a_folio_is_as_large_as_the_write_fills_and_its_place_is_aligned() {
        assert_eq!(pieces(0, 256, 512), [256], "1 MiB at a multiple of it");
        assert_eq!(pieces(256, 1024, 512), [256, 512, 256], "at most 2 MiB");
        assert_eq!(pieces(3, 10, 512), [1, 4, 4, 1]);
        assert_eq!(pieces(1, 3, 512), [1, 2]);
        assert_eq!(pieces(7, 3, 1), [1, 1, 1]);
        assert_eq!(folio_pages(8, 100, 2 << 20), 1, "a part of a page takes a page");
    }
}
