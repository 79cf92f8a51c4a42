//! The machine: its rooms, and how they reach each other. [`crate::simulation`] moves its time.

use crate::block::{BioEnd, BlockLayer};
use crate::cache::{Cache, InodeNumber, PageChange, PageRange};
use crate::calls::Gate;
use crate::calls::names::{NameError, Names};
use crate::config::MachineConfig;
use crate::executor::wait::{Semaphore, WaitQueue};
use crate::executor::{Executor, TaskId};
use crate::fs::{FileSystem, Inode, InodeKind, WritebackEnd};
use crate::process::cpu::Cpu;
use crate::statistics::Statistics;
use crate::trace::{Event, Trace};
use crate::writeback::Writeback;
use plimsoll_core::{AccountTree, CauseSet, Operation, PageEvent, Scheduler, Span, Time, Wish};
use plimsoll_devices::DeviceModel;
use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;

/// Queues that share the pages among them by hash (Linux: `page_wait_table`).
const PAGE_QUEUES: usize = 256;

/// A handle to the machine; clones are the same machine.
#[derive(Clone)]
pub struct Machine(Rc<Rooms>);

/// What a machine is made of.
pub struct Rooms {
    /// Its configuration.
    pub config: MachineConfig,
    /// Tasks and time, which are those of all machines of a simulation.
    pub executor: Rc<Executor>,
    /// What happened, as a number.
    pub trace: Trace,
    /// Scheduler and device.
    pub block: RefCell<BlockLayer>,
    /// Pages.
    pub cache: RefCell<Cache>,
    /// The file system.
    pub file_system: Rc<dyn FileSystem>,
    /// Names and inodes.
    pub(crate) names: RefCell<Names>,
    /// Calls between entry and return.
    pub(crate) gate: Gate,
    /// Dirty inodes and the throttling of processes that dirty.
    pub(crate) writeback: Writeback,
    /// Cores.
    pub(crate) cpu: Cpu,
    /// What processes experienced.
    pub statistics: Statistics,
    request_slots: [Semaphore; 2],
    page_queues: Vec<WaitQueue>,
    page_waiters: Cell<u64>,
    memory_queue: WaitQueue,
    is_unsettled: Cell<bool>,
    wake_at: Cell<Time>,
    /// Kept for their memory.
    ends: RefCell<Vec<BioEnd>>,
    changes: RefCell<Vec<PageChange>>,
}

impl Deref for Machine {
    type Target = Rooms;
    fn deref(&self) -> &Rooms {
        &self.0
    }
}

impl Machine {
    /// A machine with a mounted file system and a running flusher. The scheduler learns every account of `accounts`.
    pub(crate) fn boot(
        executor: Rc<Executor>,
        config: MachineConfig,
        mut scheduler: Box<dyn Scheduler>,
        device: Box<dyn DeviceModel>,
        file_system: Rc<dyn FileSystem>,
        accounts: &AccountTree,
    ) -> Machine {
        accounts.iter().for_each(|account| scheduler.account_opened(executor.now(), account));
        let dirty_bytes_max = config.memory_bytes / 100 * u64::from(config.dirty_ratio);
        scheduler.dirty_memory_limited(executor.now(), dirty_bytes_max);
        let has_flusher = config.has_flusher && !scheduler.owns_writeback();
        let config = MachineConfig { has_flusher, ..config };
        let machine = Machine::new(executor, config, BlockLayer::new(scheduler, device), file_system);
        {
            let mut names = machine.names.borrow_mut();
            names.add(InodeKind::File);
            names.add(InodeKind::Directory);
        }
        machine.file_system.clone().mount(&machine);
        machine.start_flusher();
        machine
    }

    fn new(
        executor: Rc<Executor>,
        config: MachineConfig,
        block: BlockLayer,
        file_system: Rc<dyn FileSystem>,
    ) -> Machine {
        let slots = || Semaphore::new(u64::from(config.requests_max));
        let rooms = Rooms {
            executor,
            trace: Trace::default(),
            block: RefCell::new(block),
            cache: RefCell::new(Cache::new(config.memory_bytes)),
            file_system,
            names: RefCell::new(Names::new()),
            gate: Gate::default(),
            writeback: Writeback::new(&config),
            cpu: Cpu::new(config.cores),
            statistics: Statistics::default(),
            request_slots: [slots(), slots()],
            page_queues: (0..PAGE_QUEUES).map(|_| WaitQueue::default()).collect(),
            page_waiters: Cell::new(0),
            memory_queue: WaitQueue::default(),
            is_unsettled: Cell::new(true),
            wake_at: Cell::new(Time::MAX),
            ends: RefCell::default(),
            changes: RefCell::default(),
            config,
        };
        Machine(Rc::new(rooms))
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.executor.now()
    }

    /// The scheduler, to change accounts while a run goes on; it is asked again what may go.
    pub fn scheduler(&self) -> RefMut<'_, dyn Scheduler> {
        self.mark_unsettled();
        RefMut::map(self.block.borrow_mut(), |block| &mut *block.scheduler)
    }

    /// Processor time that all processes together have had.
    pub fn cpu_busy(&self) -> Span {
        self.cpu.busy()
    }

    /// Spawns a task of the kernel.
    pub fn spawn_kernel(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        self.executor.spawn(task)
    }

    /// The inode numbered `number`.
    ///
    /// # Panics
    /// If there is none.
    pub fn inode(&self, number: InodeNumber) -> Rc<Inode> {
        self.names.borrow().inode(number)
    }

    /// The number of the file or directory called `path`.
    ///
    /// # Errors
    /// If there is none.
    pub fn inode_of(&self, path: &str) -> Result<InodeNumber, NameError> {
        self.names.borrow().find_existing(path).map(|(_, inode)| inode.number)
    }

    /// The inode numbered `number`, unless it has been deleted.
    pub(crate) fn find_inode(&self, number: InodeNumber) -> Option<Rc<Inode>> {
        self.names.borrow().get(number)
    }

    pub(crate) fn request_slots(&self, is_sync: bool) -> &Semaphore {
        &self.request_slots[usize::from(is_sync)]
    }

    /// Something happened that the scheduler may answer to.
    pub(crate) fn mark_unsettled(&self) {
        self.is_unsettled.set(true);
    }

    /// Waits until the state of a page may have changed; the caller looks again.
    pub async fn wait_page(&self, inode: InodeNumber, page: u64) {
        self.page_waiters.set(self.page_waiters.get() + 1);
        self.page_queue(inode, page).wait(&self.executor).await;
        self.page_waiters.set(self.page_waiters.get() - 1);
    }

    fn page_queue(&self, inode: InodeNumber, page: u64) -> &WaitQueue {
        let mixed = (u64::from(inode.0) << 32 ^ page).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.page_queues[(mixed >> 56) as usize % PAGE_QUEUES]
    }

    fn wake_pages(&self, inode: InodeNumber, pages: PageRange) {
        if self.page_waiters.get() > 0 {
            for page in pages.first..pages.end() {
                self.page_queue(inode, page).wake_all(&self.executor);
            }
        }
        self.memory_queue.wake_all(&self.executor);
    }

    /// Waits until there is room for so many pages more. It is only sure until the next `await`.
    pub async fn reserve_memory(&self, pages: u64) {
        self.executor.count_step();
        while !self.cache.borrow_mut().make_room(pages) {
            self.memory_queue.wait(&self.executor).await;
        }
    }

    /// Ends the writeback of pages that the device has written: by the machine, or by a file system that answered
    /// [`WritebackEnd::Later`].
    pub fn end_writeback(&self, inode: InodeNumber, pages: PageRange) {
        self.cache.borrow_mut().end_writeback(inode, pages);
        self.writeback.count_written(pages.count);
        self.wake_pages(inode, pages);
    }

    pub(crate) fn end_bio(&self, end: BioEnd, operation: Operation) {
        match end {
            BioEnd::Nothing => {}
            BioEnd::Group(group) => group.done(&self.executor),
            BioEnd::Task(task) => self.executor.wake(task),
            BioEnd::Pages(span, group) => {
                if operation == Operation::Read {
                    self.cache.borrow_mut().end_read(span.inode, span.pages);
                    self.wake_pages(span.inode, span.pages);
                } else if span.inode == InodeNumber::DEVICE
                    || self.file_system.write_completed(self, &span) == WritebackEnd::Now
                {
                    self.end_writeback(span.inode, span.pages);
                }
                if let Some(group) = group {
                    group.done(&self.executor);
                }
            }
        }
    }

    /// Pages in memory become dirty for `causes`; the scheduler hears of it, and the flusher when the file was clean.
    /// Answers how many were not dirty before.
    pub(crate) fn dirty(&self, inode: InodeNumber, pages: PageRange, causes: &CauseSet) -> u64 {
        let mut changes = self.changes.take();
        let mut cache = self.cache.borrow_mut();
        let before = cache.totals.dirtied;
        let number = cache.causes.number(causes);
        cache.dirty_pages(inode, pages, number, &mut changes);
        for change in changes.drain(..) {
            let previous = cache.causes.set(change.previous).clone();
            self.announce_dirtied(inode, change.pages, causes, previous);
        }
        let dirtied = cache.totals.dirtied - before;
        drop(cache);
        self.changes.replace(changes);
        self.note_inode_dirty(inode);
        dirtied
    }

    pub(crate) fn announce_dirtied(&self, inode: InodeNumber, pages: PageRange, causes: &CauseSet, previous: CauseSet) {
        self.trace.record(Event::Dirtied, self.now(), u64::from(inode.0) << 32 | pages.first, pages.count);
        let event = page_event(inode, pages, causes.clone(), previous);
        self.block.borrow_mut().scheduler.pages_dirtied(self.now(), &event);
        self.mark_unsettled();
    }

    pub(crate) fn announce_freed(&self, inode: InodeNumber, pages: PageRange, causes: &CauseSet) {
        self.trace.record(Event::Freed, self.now(), u64::from(inode.0) << 32 | pages.first, pages.count);
        let event = page_event(inode, pages, causes.clone(), causes.clone());
        self.block.borrow_mut().scheduler.pages_freed(self.now(), &event);
        self.mark_unsettled();
    }

    /// Drops a file's pages from `first` on, after waiting for those that are read or written.
    pub(crate) async fn drop_pages(&self, inode: &Inode, first: u64) {
        let (allocating, inode) = (&inode.allocating, inode.number);
        loop {
            allocating.wait(&self.executor).await;
            let busy = {
                let cache = self.cache.borrow();
                cache.mapping(inode).and_then(|mapping| {
                    let locked = |page| cache.flags(inode, page).is_some_and(|f| f & crate::cache::frames::LOCKED != 0);
                    let mut page = first;
                    while let Some(resident) = mapping.next_resident(page, u64::MAX) {
                        if mapping.is_writeback(resident) || locked(resident) {
                            return Some(resident);
                        }
                        page = resident + 1;
                    }
                    None
                })
            };
            match busy {
                Some(page) => self.wait_page(inode, page).await,
                None => break,
            }
        }
        let mut freed = Vec::new();
        self.cache.borrow_mut().truncate(inode, first, &mut freed);
        for change in freed {
            let causes = self.cache.borrow().causes.set(change.previous).clone();
            self.announce_freed(inode, change.pages, &causes);
        }
        self.memory_queue.wake_all(&self.executor);
    }

    /// Gives up every clean page (`/proc/sys/vm/drop_caches`): after a [`sync`](crate::Process::sync), as if the file
    /// system had just been mounted.
    pub fn drop_caches(&self) {
        self.cache.borrow_mut().evict_clean();
    }

    /// Whether something happened since the scheduler was asked.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_unsettled.get()
    }

    /// Asks the scheduler, if something happened since it was asked.
    pub(crate) fn settle(&self) {
        if !self.is_unsettled.replace(false) {
            return;
        }
        let now = self.now();
        let mut block = self.block.borrow_mut();
        self.gate.release(now, &mut *block.scheduler, &self.executor);
        self.writeback.hear_wishes(now, &mut *block.scheduler, |wish| match wish {
            Wish::StartWriteback { file, bytes_max } => self.start_writeback(InodeNumber(file.0 as u32), bytes_max),
            Wish::Commit => self.file_system.start_commit(self),
            Wish::WakeAt(at) => self.wake_at.set(self.wake_at.get().min(at)),
        });
        block.dispatch(now, &self.trace);
    }

    /// Goes on to `now`, to which the executor has gone on: ends what the device has done.
    pub(crate) fn advance(&self, now: Time) {
        if self.wake_at.get() <= now {
            self.wake_at.set(Time::MAX);
            self.mark_unsettled();
        }
        if self.block.borrow().next_event() <= now {
            self.mark_unsettled();
        }
        let mut ends = self.ends.take();
        loop {
            let done = self.block.borrow_mut().complete(now, &mut ends, &self.trace);
            let Some((is_sync, operation)) = done else { break };
            self.request_slots(is_sync).release(&self.executor);
            ends.drain(..).for_each(|end| self.end_bio(end, operation));
        }
        self.ends.replace(ends);
    }

    /// When something happens next that is no task's timer.
    pub(crate) fn next_event(&self) -> Time {
        self.block.borrow().next_event().min(self.wake_at.get())
    }

    /// # Panics
    /// If anything was lost on its way through a layer, or Little's law does not hold in the block layer.
    pub(crate) fn assert_conserved(&self) {
        self.block.borrow_mut().assert_conserved(self.now());
        self.cache.borrow().assert_conserved();
        self.gate.assert_conserved();
        self.file_system.assert_conserved();
    }
}

fn page_event(inode: InodeNumber, pages: PageRange, causes: CauseSet, previous: CauseSet) -> PageEvent {
    use crate::cache::PAGE_BYTES;
    let (offset, length) = (pages.first * PAGE_BYTES, pages.count * PAGE_BYTES);
    PageEvent { file: inode.file(), offset, length, causes, previous }
}
