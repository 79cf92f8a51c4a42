//! read: from the page cache; what is missing is read, and something beyond it.
//!
//! Two readers of the same page wait for the same I/O. The first puts the page in locked, the second waits until it is
//! unlocked.

use super::File;
use crate::block::{Bio, BioEnd, Plug};
use crate::cache::{PAGE_BYTES, PageRange, PageSpan, frames};
use crate::calls::read_ahead::Window;
use crate::fs::class_of;
use plimsoll_core::{CallKind, CauseSet, Operation};

impl File {
    /// Reads up to `length` bytes at `offset`; answers how many there were.
    pub async fn read(&self, offset: u64, length: u64) -> u64 {
        let (process, inode) = (self.process(), self.inode());
        process.machine().cache.borrow().expect_place(inode.number, offset / PAGE_BYTES);
        let call = process.enter(CallKind::Read, inode, offset, length).await;
        let mut length = length.min(inode.size().saturating_sub(offset));
        if length > 0 && self.is_direct() {
            self.read_direct(offset, length).await;
        } else if length > 0 {
            let end = self.read_pages(PageRange::of_bytes(offset, length)).await;
            length = length.min((end * PAGE_BYTES).saturating_sub(offset));
        }
        process.leave(&call, length);
        length
    }

    /// Uses the pages one after the other, as soon as each is there. Answers the page at which it stopped. That is the
    /// end of `pages`, or the first page that is not in memory and lies behind the file's end, since another process
    /// truncated the file.
    pub(crate) async fn read_pages(&self, pages: PageRange) -> u64 {
        let (process, number) = (self.process(), self.inode().number);
        let machine = process.machine();
        let max = machine.config.read_ahead_bytes / PAGE_BYTES;
        let (mut page, mut copied) = (pages.first, 0);
        while page < pages.end() {
            let flags = machine.cache.borrow_mut().touch(number, page);
            let is_marked = flags.is_some_and(|flags| flags & frames::READ_AHEAD != 0);
            if flags.is_none() && page >= self.inode().pages() {
                break;
            }
            if flags.is_none() || is_marked {
                let wanted = PageRange { first: page, count: pages.end() - page };
                let window = self.with_read_ahead(|state| state.next(wanted, is_marked, max));
                self.read_window(window).await;
                if flags.is_none() {
                    machine.cache.borrow_mut().totals.misses += 1;
                    continue;
                }
            }
            if flags.is_some_and(|flags| flags & frames::LOCKED != 0) {
                process.compute(machine.config.cpu.page_read * std::mem::take(&mut copied)).await;
                let is_locked = machine.cache.borrow().flags(number, page).is_some_and(|f| f & frames::LOCKED != 0);
                if is_locked {
                    machine.wait_page(number, page).await;
                }
                continue;
            }
            self.with_read_ahead(|state| state.used(page));
            (page, copied) = (page + 1, copied + 1);
        }
        machine.cache.borrow_mut().totals.hits += page - pages.first;
        process.compute(machine.config.cpu.page_read * copied).await;
        page
    }

    /// Starts reading what of a window is not in memory; the pages are locked until it is.
    async fn read_window(&self, window: Window) {
        let (process, inode) = (self.process(), self.inode());
        let machine = process.machine();
        let end = window.pages.end().min(inode.pages());
        let mut plug = Plug::default();
        let mut from = window.pages.first;
        while let Some(missing) = self.next_missing(from, end) {
            from = missing.end();
            machine.reserve_memory(missing.count).await;
            // Others may have put some in while this task waited for memory.
            let mut rest = missing.first;
            while let Some(run) = self.next_missing(rest, missing.end()) {
                self.insert_locked(run, window.mark);
                self.plug_reads(run, &mut plug).await;
                rest = run.end();
            }
        }
        machine.unplug(&mut plug).await;
    }

    fn next_missing(&self, from: u64, end: u64) -> Option<PageRange> {
        let cache = self.process().machine().cache.borrow();
        let is_missing = |page: u64| cache.flags(self.inode().number, page).is_none();
        let first = (from..end).find(|&page| is_missing(page))?;
        let count = (first..end).take_while(|&page| is_missing(page)).count() as u64;
        Some(PageRange { first, count })
    }

    fn insert_locked(&self, pages: PageRange, mark: Option<u64>) {
        let mut cache = self.process().machine().cache.borrow_mut();
        for page in pages.first..pages.end() {
            let flags = frames::LOCKED | if mark == Some(page) { frames::READ_AHEAD } else { 0 };
            cache.insert(self.inode().number, page, flags);
        }
    }

    /// One bio for each extent; holes are filled at once.
    async fn plug_reads(&self, mut pages: PageRange, plug: &mut Plug) {
        let (process, inode) = (self.process(), self.inode());
        let (machine, actor) = (process.machine(), process.actor());
        while pages.count > 0 {
            let extent = process.file_system().map(machine, actor, inode, pages).await;
            let here = PageRange { first: pages.first, count: extent.pages };
            let span = PageSpan { inode: inode.number, pages: here, causes: CauseSet::EMPTY };
            match extent.device_offset {
                None => machine.end_bio(BioEnd::Pages(span, None), Operation::Read),
                Some(offset) => plug.add(Bio {
                    session: actor.session,
                    causes: actor.causes.clone(),
                    class: self.class().unwrap_or_else(|| class_of(process.file_system(), inode, here.first)),
                    operation: Operation::Read,
                    offset,
                    length: (here.count * PAGE_BYTES) as u32,
                    is_sync: true,
                    is_forced: false,
                    file: Some(inode.number.file()),
                    end: BioEnd::Pages(span, None),
                }),
            }
            pages = PageRange { first: here.end(), count: pages.count - here.count };
        }
    }
}
