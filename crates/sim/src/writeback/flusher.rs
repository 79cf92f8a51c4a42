//! The flusher: the kernel's thread that writes dirty pages of one device (Linux `fs/fs-writeback.c`).
//!
//! It writes while more is dirty than the background threshold, and every five seconds what has been dirty for thirty.
//! It takes files in the order in which they became dirty, and of each a chunk; a file that has more goes behind the
//! others. Three queues give the next file. They are `dirty` (became dirty, oldest first), `io` (to be written in this
//! round) and `more_io` (had their chunk, to be written in the next).
//!
//! The flusher is a proxy: it submits in the name of its own session, and requests carry the causes of the pages.

use super::WriteFile;
use crate::cache::{InodeNumber, PageRange};
use crate::executor::{Executor, TaskId};
use crate::fs::{Actor, Inode};
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Span, Time};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A chunk is a multiple of so many pages: 4 MiB (`MIN_WRITEBACK_PAGES`).
const CHUNK_PAGES_MIN: u64 = 1024;
/// A chunk is at most this part of what may be dirty (`DIRTY_SCOPE`).
const CHUNKS_PER_LIMIT: u64 = 8;
/// After so long in one round the thresholds are looked at again (`writeback_sb_inodes`: a tenth of a second).
const ROUND: Span = Span::from_millis(100);

/// The files that are next.
#[derive(Default)]
pub(crate) struct Queues {
    dirty: VecDeque<InodeNumber>,
    io: VecDeque<InodeNumber>,
    more_io: VecDeque<InodeNumber>,
}

impl Queues {
    fn remove(&mut self, inode: InodeNumber) {
        for queue in [&mut self.dirty, &mut self.io, &mut self.more_io] {
            queue.retain(|&queued| queued != inode);
        }
    }
}

/// How the flusher sleeps: until a time, or until a task needs it.
#[derive(Default)]
pub(crate) struct Nap {
    is_needed: Cell<bool>,
    task: Cell<Option<TaskId>>,
}

impl Nap {
    fn end(&self, executor: &Executor) {
        if let Some(task) = self.task.get()
            && !self.is_needed.replace(true)
        {
            executor.wake(task);
        }
    }
}

struct Napping<'a> {
    nap: &'a Nap,
    executor: &'a Executor,
    until: Time,
}

impl Future for Napping<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let is_over = self.nap.is_needed.replace(false) || self.executor.now() >= self.until;
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Why a round is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// More is dirty than the background threshold.
    Background,
    /// Some is too old.
    Periodic,
}

impl Machine {
    /// A file has dirty pages: if it had none, it is queued.
    pub(crate) fn note_inode_dirty(&self, number: InodeNumber) {
        let Some(inode) = self.find_inode(number) else { return };
        if inode.dirtied_at.get().is_none() {
            inode.dirtied_at.set(Some(self.now()));
            self.writeback.queues.borrow_mut().dirty.push_back(number);
        }
    }

    /// A deleted file leaves the queues, and its number.
    pub(crate) fn forget_inode(&self, inode: &Inode) {
        if inode.dirtied_at.take().is_some() {
            self.writeback.queues.borrow_mut().remove(inode.number);
        }
        self.names.borrow_mut().forget(inode.number);
    }

    /// Lets the flusher look at the background threshold.
    pub(crate) fn wake_flusher(&self) {
        self.writeback.nap.end(&self.executor);
    }

    pub(crate) fn start_flusher(&self) {
        if !self.config.has_flusher {
            return;
        }
        let machine = self.clone();
        let task = self.spawn_kernel(async move {
            let interval = machine.config.dirty_writeback_interval;
            let mut periodic_at = machine.now() + interval;
            loop {
                machine.write_rounds(Reason::Background).await;
                if machine.now() >= periodic_at {
                    periodic_at = machine.now() + interval;
                    machine.write_rounds(Reason::Periodic).await;
                }
                machine.executor.wake_at(periodic_at, machine.executor.current());
                Napping { nap: &machine.writeback.nap, executor: &machine.executor, until: periodic_at }.await;
            }
        });
        self.writeback.nap.task.set(Some(task));
    }

    async fn write_rounds(&self, reason: Reason) {
        let actor = Actor::proxy(self.config.accounts.flusher, CauseSet::EMPTY);
        loop {
            let is_over = self.cache.borrow().dirty() > self.writeback.bandwidth.borrow().background_pages;
            if reason == Reason::Background && !is_over {
                return;
            }
            let before = match reason {
                Reason::Background => Time::MAX,
                Reason::Periodic => self.now().saturating_sub(self.config.dirty_expire),
            };
            self.queue_io(before);
            let written = self.write_round(&actor).await;
            if written == 0 && self.writeback.queues.borrow().more_io.is_empty() {
                return;
            }
        }
    }

    /// Fills the round's queue, if it is empty, with those that had their chunk and those that became dirty by
    /// `before`.
    fn queue_io(&self, before: Time) {
        let mut queues = self.writeback.queues.borrow_mut();
        if !queues.io.is_empty() {
            return;
        }
        let queues = &mut *queues;
        queues.io.append(&mut queues.more_io);
        while let Some(&number) = queues.dirty.front() {
            let since = self.find_inode(number).and_then(|inode| inode.dirtied_at.get());
            if since.is_some_and(|since| since > before) {
                break;
            }
            queues.dirty.pop_front();
            queues.io.push_back(number);
        }
    }

    /// Writes a chunk of each file in the round's queue, for a while. Answers how many pages.
    async fn write_round(&self, actor: &Actor) -> u64 {
        let (started, mut written) = (self.now(), 0);
        loop {
            let Some(number) = self.writeback.queues.borrow_mut().io.pop_front() else { break };
            if let Some(inode) = self.find_inode(number) {
                written += self.write_chunk(actor, &inode).await;
            }
            if self.now().since(started) > ROUND {
                break;
            }
        }
        written
    }

    /// Writes up to so many pages of a file from where the last ones ended (`range_cyclic`). Answers how many.
    pub(crate) async fn write_on(&self, actor: &Actor, inode: &Inode, count_max: u64) -> u64 {
        let start = inode.writeback_index.get();
        let tail = PageRange { first: start, count: u64::MAX - start };
        let what = WriteFile { pages: tail, count_max, ..WriteFile::WHOLE };
        let mut wrote = self.write_file(actor, inode, what).await;
        if wrote.count < count_max && start > 0 {
            let head = PageRange { first: 0, count: start };
            let what = WriteFile { pages: head, count_max: count_max - wrote.count, ..WriteFile::WHOLE };
            let first = wrote.count;
            wrote = self.write_file(actor, inode, what).await;
            wrote.count += first;
        }
        inode.writeback_index.set(if wrote.count < count_max { 0 } else { wrote.next });
        wrote.count
    }

    /// Writes a chunk of a file, and queues the file again if it has more.
    async fn write_chunk(&self, actor: &Actor, inode: &Inode) -> u64 {
        let chunk = self.chunk_pages();
        let written = self.write_on(actor, inode, chunk).await;
        if inode.is_deleted() {
            return written;
        }
        let is_dirty = self.cache.borrow().mapping(inode.number).is_some_and(|mapping| mapping.dirty > 0);
        let mut queues = self.writeback.queues.borrow_mut();
        if !is_dirty {
            inode.dirtied_at.set(None);
        } else if written >= chunk {
            queues.more_io.push_back(inode.number);
        } else {
            inode.dirtied_at.set(Some(self.now()));
            queues.dirty.push_back(inode.number);
        }
        written
    }

    /// Half a second's worth of writing, rounded to whole 4 MiB and at least one (`writeback_chunk_size`).
    fn chunk_pages(&self) -> u64 {
        let bandwidth = self.writeback.bandwidth.borrow();
        let pages = (bandwidth.average_pages_per_second / 2).min(bandwidth.limit_pages / CHUNKS_PER_LIMIT);
        (pages + CHUNK_PAGES_MIN) / CHUNK_PAGES_MIN * CHUNK_PAGES_MIN
    }
}
