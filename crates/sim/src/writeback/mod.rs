//! Writeback: dirty pages on their way to the device, whichever task sends them.
//!
//! | task | when | module |
//! | --- | --- | --- |
//! | the flusher | too much is dirty, or it is too old | [`flusher`] |
//! | fsync, sync, direct I/O | a process asks and waits | [`Machine::write_file`] |
//! | a scheduler | it wishes so ([`plimsoll_core::Wish::StartWriteback`]) | `start_writeback` |
//! | a journal | ordered data before a commit | [`Machine::write_file`], [`Extents::Mapped`] |
//!
//! All go through [`Machine::write_file`]. [`throttle`] slows down processes that dirty faster than the device writes.

pub mod bandwidth;
pub mod flusher;
pub mod throttle;

use crate::block::{Bio, BioEnd, Plug};
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan};
use crate::config::{MachineConfig, TICK};
use crate::fs::{ALLOCATE_PAGES_MAX, Actor, Extent, Extents, Inode, class_of};
use crate::machine::Machine;
use bandwidth::{Bandwidth, PageTotals};
use flusher::Queues;
use plimsoll_core::{CauseSet, Operation, Scheduler, Time, Wish};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

/// Bios that a plug collects before it is emptied (Linux `BLK_MAX_REQUEST_COUNT`).
const PLUG_BIOS_MAX: usize = 32;

/// What of a file to write.
#[derive(Clone, Copy, Debug)]
pub struct WriteFile {
    /// The pages that may be written.
    pub pages: PageRange,
    /// How many at the most.
    pub count_max: u64,
    /// Also those that have no place yet?
    pub extents: Extents,
    /// A process waits. Requests are synchronous, and a page that was dirtied again while it is written is waited for
    /// and written once more.
    pub is_sync: bool,
}

impl WriteFile {
    /// The whole file, no process waits.
    pub const WHOLE: WriteFile = WriteFile {
        pages: PageRange { first: 0, count: u64::MAX },
        count_max: u64::MAX,
        extents: Extents::All,
        is_sync: false,
    };
}

/// What was written of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Pages that began to be written.
    pub count: u64,
    /// The page after the last of them.
    pub next: u64,
}

/// Dirty inodes, and what is known of the device's speed.
pub(crate) struct Writeback {
    pub(crate) queues: RefCell<Queues>,
    pub(crate) bandwidth: RefCell<Bandwidth>,
    pub(crate) nap: flusher::Nap,
    pub(crate) written: Cell<u64>,
    wishes: RefCell<Vec<Wish>>,
}

impl Writeback {
    pub(crate) fn new(config: &MachineConfig) -> Writeback {
        Writeback {
            queues: RefCell::default(),
            bandwidth: RefCell::new(Bandwidth::new(config)),
            nap: flusher::Nap::default(),
            written: Cell::new(0),
            wishes: RefCell::default(),
        }
    }

    pub(crate) fn count_written(&self, pages: u64) {
        self.written.set(self.written.get() + pages);
    }

    pub(crate) fn hear_wishes(&self, now: Time, scheduler: &mut dyn Scheduler, mut hear: impl FnMut(Wish)) {
        let mut wishes = self.wishes.take();
        scheduler.wishes(now, &mut wishes);
        wishes.drain(..).for_each(&mut hear);
        self.wishes.replace(wishes);
    }
}

impl Machine {
    /// Begins the writing of dirty pages and does not wait until the device has them: see
    /// [`wait_writeback`](Self::wait_writeback). It does wait for allocation and for free requests.
    pub async fn write_file(&self, actor: &Actor, inode: &Inode, what: WriteFile) -> Wrote {
        let is_idle = self.cache.borrow().writeback() == 0;
        self.writeback.bandwidth.borrow_mut().begin(self.now_ticks(), self.totals(), is_idle);
        let wrote = self.write_pages(actor, inode, what).await;
        self.writeback.bandwidth.borrow_mut().end(self.now_ticks(), self.totals());
        wrote
    }

    /// The kernel's clock: ticks since the start.
    pub(crate) fn now_ticks(&self) -> u64 {
        self.now().as_nanos() / TICK.as_nanos()
    }

    fn totals(&self) -> PageTotals {
        PageTotals { written: self.writeback.written.get(), dirtied: self.cache.borrow().totals.dirtied }
    }

    async fn write_pages(&self, actor: &Actor, inode: &Inode, what: WriteFile) -> Wrote {
        let end = what.pages.first.saturating_add(what.pages.count);
        let mut wrote = Wrote { count: 0, next: what.pages.first };
        let mut plug = Plug::default();
        while wrote.count < what.count_max {
            if what.is_sync {
                self.wait_dirty_again(inode.number, wrote.next, end).await;
            }
            let count_max = (what.count_max - wrote.count).min(ALLOCATE_PAGES_MAX);
            let run = self.cache.borrow().next_dirty_run(inode.number, wrote.next, end, count_max);
            let Some(run) = run else { break };
            let extent = self.place_plugged(actor, inode, run, what.extents, &mut plug).await;
            let here = PageRange { first: run.first, count: extent.pages.min(run.count) };
            if let Some(offset) = extent.device_offset {
                wrote.count += self.plug_writes(actor, inode, here, offset, what.is_sync, &mut plug);
            }
            wrote.next = here.end();
            if plug.len() >= PLUG_BIOS_MAX {
                self.unplug(&mut plug).await;
            }
        }
        self.unplug(&mut plug).await;
        wrote
    }

    /// As [`place`](Self::place). If it has to wait, the plug is emptied first, so that no task waits for pages in it.
    /// (Linux empties a task's plug when the task sleeps: `blk_flush_plug` in `schedule`.)
    async fn place_plugged(
        &self,
        actor: &Actor,
        inode: &Inode,
        run: PageRange,
        extents: Extents,
        plug: &mut Plug,
    ) -> Extent {
        let mut placing = std::pin::pin!(self.place(actor, inode, run, extents));
        let first = std::future::poll_fn(|context| Poll::Ready(placing.as_mut().poll(context))).await;
        match first {
            Poll::Ready(extent) => extent,
            Poll::Pending => {
                self.unplug(plug).await;
                placing.await
            }
        }
    }

    /// Where the pages are written. While it is asked, no process may cut the file.
    async fn place(&self, actor: &Actor, inode: &Inode, run: PageRange, extents: Extents) -> Extent {
        if inode.number == InodeNumber::DEVICE {
            return Extent { device_offset: Some(run.first * PAGE_BYTES), pages: run.count };
        }
        if extents == Extents::Mapped {
            return self.file_system.mapped(inode, run);
        }
        let causes: CauseSet = self.cache.borrow_mut().causes_in(inode.number, run);
        inode.allocating.add();
        let actor = Actor::proxy(actor.session, causes);
        let extent = self.file_system.allocate(self, &actor, inode, run).await;
        inode.allocating.done(&self.executor);
        extent
    }

    /// Makes bios for those of the pages that are dirty still; `offset` is the first page's place. Answers how many.
    fn plug_writes(
        &self,
        actor: &Actor,
        inode: &Inode,
        pages: PageRange,
        offset: u64,
        is_sync: bool,
        plug: &mut Plug,
    ) -> u64 {
        let (mut from, mut count) = (pages.first, 0);
        let pages_max = u64::from(self.config.request_bytes_max) / PAGE_BYTES;
        let mut cache = self.cache.borrow_mut();
        while let Some(run) = cache.next_dirty_run(inode.number, from, pages.end(), pages_max) {
            let causes = cache.begin_writeback(inode.number, run);
            plug.add(Bio {
                session: actor.session,
                causes: causes.clone(),
                class: class_of(&*self.file_system, inode, run.first),
                operation: Operation::Write,
                offset: offset + (run.first - pages.first) * PAGE_BYTES,
                length: (run.count * PAGE_BYTES) as u32,
                is_sync,
                is_forced: false,
                file: Some(inode.number.file()),
                end: BioEnd::Pages(PageSpan { inode: inode.number, pages: run, causes }, None),
            });
            (from, count) = (run.end(), count + run.count);
        }
        count
    }

    /// Waits while the next dirty page is being written: it was dirtied again meanwhile, and is to be written once
    /// more.
    async fn wait_dirty_again(&self, inode: InodeNumber, from: u64, end: u64) {
        loop {
            let again = {
                let cache = self.cache.borrow();
                let mapping = cache.mapping(inode);
                mapping.and_then(|m| m.next_dirty(from).filter(|&page| page < end && m.is_writeback(page)))
            };
            match again {
                Some(page) => self.wait_page(inode, page).await,
                None => return,
            }
        }
    }

    /// Waits until none of the pages is being written.
    pub async fn wait_writeback(&self, inode: InodeNumber, pages: PageRange) {
        let (mut from, end) = (pages.first, pages.first.saturating_add(pages.count));
        loop {
            let next = self.cache.borrow().mapping(inode).and_then(|mapping| mapping.next_writeback(from));
            let Some(page) = next.filter(|&page| page < end) else { return };
            self.wait_page(inode, page).await;
            from = page;
        }
    }

    /// Writes every file and metadata block that is dirty, and waits.
    pub(crate) async fn write_all(&self, actor: &Actor) {
        let unwritten: Vec<_> = {
            let (names, cache) = (self.names.borrow(), self.cache.borrow());
            let is_unwritten = |inode: &Rc<Inode>| {
                cache.mapping(inode.number).is_some_and(|mapping| mapping.dirty + mapping.writeback > 0)
            };
            names.all().filter(|inode| is_unwritten(inode)).cloned().collect()
        };
        for inode in &unwritten {
            self.write_file(actor, inode, WriteFile { is_sync: true, ..WriteFile::WHOLE }).await;
        }
        for inode in &unwritten {
            self.wait_writeback(inode.number, WriteFile::WHOLE.pages).await;
        }
    }

    /// A scheduler wishes the writeback of a file's dirty pages, from the end of the last one: in the flusher's name,
    /// without a waiting process.
    pub(crate) fn start_writeback(&self, number: InodeNumber, bytes_max: u64) {
        let Some(inode) = self.find_inode(number) else { return };
        let machine = self.clone();
        self.spawn_kernel(async move {
            let actor = Actor::proxy(machine.config.accounts.flusher, CauseSet::EMPTY);
            machine.write_on(&actor, &inode, bytes_max.div_ceil(PAGE_BYTES)).await;
        });
    }
}
