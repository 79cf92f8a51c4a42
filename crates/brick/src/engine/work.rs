//! Steps of a request that take a processor's time: service threads do them, under the rules of the request executor.
//!
//! ```text
//!   engine's thread: dispatch -> PieceWork --spawn--> queues -> service thread: page, checkpoint, page, checkpoint ...
//!                    piece_done <-- told <-- eventfd <----------------------------------------------------+
//! ```
//!
//! **Rule.** A piece of a read or write of a compressed volume is a request to the [`Executor`], page by page, and may be preempted
//! between two pages. Everything else of it (socket, scheduler, accounts, model) stays on the engine's thread. A request
//! without such steps never comes here. What clients write is kept as it is and answered; a request of the maintenance queue compresses it
//! afterwards, which the engine begins when it hears of the piece. **Complication.** The engine hears of a burst once: who tells it
//! first writes to the eventfd, the others find that said. What a cache's syncer copies is the maintenance queue's already, and is compressed at
//! once. A piece whose work panics, or that the executor drops, ends with an error and is not waited for; what the executor has
//! no room for, and everything where there is no executor, the engine's thread does itself, and compresses at once, too.

use super::core::Core;
use super::error::EngineError;
use super::ring::Owner;
use crate::backend::{Backend, CompressedMemory, Compressing, Damaged, PAGE_BYTES};
use crossbeam_queue::SegQueue;
use plimsoll_core::{Operation, Span, Time};
use plimsoll_executor::{Executor, Kind, checkpoint, give_way};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;
use std::task::{Context, Poll, Waker};

/// When the engine tries again to have a backlog compressed, for which the executor had no room.
const TRY_AGAIN: Span = Span::from_millis(10);

/// What service threads have done, for the engine.
pub(super) struct Told {
    done: SegQueue<(u32, Result<(), Errno>)>,
    /// The engine was woken and has not looked since.
    is_said: AtomicBool,
    wake: OwnedFd,
}

/// Says what came of a piece, once: at the latest when it is dropped.
struct Answer {
    piece: u32,
    result: Result<(), Errno>,
    told: Arc<Told>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.told.done.push((self.piece, self.result));
        if !self.told.is_said.swap(true, AcqRel) {
            // An eventfd that is full needs no more waking.
            let _ = rustix::io::write(&self.told.wake, &1u64.to_ne_bytes());
        }
    }
}

/// The bytes of a piece.
struct Bytes(*mut u8);

// SAFETY: they lie in the payload of a request, which keeps it for this piece alone until the engine has heard its answer.
unsafe impl Send for Bytes {}

/// What service threads do for engines.
pub struct ServiceRequest(Service);

enum Service {
    Piece(PieceWork),
    /// What writes have left to do.
    Backlog(Compressing),
}

/// What is done with a page.
#[derive(Clone, Copy)]
enum Step {
    Read,
    Write,
    WriteBehind,
}

/// A piece's pages, to be compressed or decompressed one after the other.
struct PieceWork {
    memory: Arc<CompressedMemory>,
    bytes: Bytes,
    step: Step,
    next_page: u64,
    pages_left: u64,
    answer: Answer,
}

impl PieceWork {
    fn one_page(&mut self) -> Result<(), Errno> {
        let page = self.bytes.0.cast::<[u8; PAGE_BYTES]>();
        // SAFETY: `pages_left` pages from here on are this piece's part of a payload that nobody else uses; behind the last one
        // nothing is used.
        unsafe {
            self.bytes.0 = self.bytes.0.add(PAGE_BYTES);
            match self.step {
                Step::Read => self.memory.read(self.next_page, &mut *page).map_err(|Damaged| Errno::IO)?,
                Step::Write => self.memory.write(self.next_page, &*page),
                Step::WriteBehind => self.memory.write_behind(self.next_page, &*page),
            }
        }
        self.next_page += 1;
        self.pages_left -= 1;
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.pages_left > 0 {
            if let Err(errno) = self.one_page() {
                tracing::error!(page = self.next_page, "a page in memory is not what was written");
                self.answer.result = Err(errno);
                return Poll::Ready(());
            }
            if self.pages_left > 0 && Pin::new(&mut checkpoint()).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.answer.result = Ok(());
        Poll::Ready(())
    }
}

impl Future for ServiceRequest {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.get_mut().0 {
            Service::Piece(piece) => piece.poll(context),
            Service::Backlog(compressing) => {
                while compressing.one_page() {
                    if Pin::new(&mut give_way()).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(())
            }
        }
    }
}

/// An engine's side of it.
pub(super) struct Work {
    executor: Option<Arc<Executor<ServiceRequest>>>,
    told: Arc<Told>,
    /// The ring watches the eventfd, since the first work.
    is_watched: bool,
    /// The executor had no room for those who compress a backlog: when it is tried again.
    pub(super) try_again: Option<Time>,
}

impl Work {
    pub(super) fn new(executor: Option<Arc<Executor<ServiceRequest>>>) -> Result<Work, EngineError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| EngineError::System { action: "make an eventfd", source: errno.into() })?;
        let told = Told { done: SegQueue::new(), is_said: AtomicBool::new(false), wake };
        Ok(Work { executor, told: Arc::new(told), is_watched: false, try_again: None })
    }

    /// Gives it to the service threads, or does it here.
    fn begin(&self, kind: Kind, work: PieceWork) {
        let request = ServiceRequest(Service::Piece(work));
        let refused = match &self.executor {
            Some(executor) => executor.spawn(kind, None, request).err().map(|full| full.request),
            None => Some(request),
        };
        if let Some(ServiceRequest(Service::Piece(mut work))) = refused {
            if let Step::WriteBehind = work.step {
                work.step = Step::Write;
            }
            // Outside of an executor's threads it is not preempted, so this is once.
            while work.poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
    }

    /// Sees to it that a backlog is compressed; says whether the executor has no room for it.
    fn begin_compressing(&self, memory: &Arc<CompressedMemory>) -> bool {
        let Some(executor) = &self.executor else { return false };
        while let Some(compressing) = Compressing::begin(memory, executor.thread_count()) {
            let request = ServiceRequest(Service::Backlog(compressing));
            if executor.spawn(Kind::Maintenance, None, request).is_err() {
                return true;
            }
        }
        false
    }
}

impl Core {
    /// Lets a piece of a read or write of a compressed volume be done; `data` is where its bytes are.
    pub(super) fn begin_work(&mut self, index: u32, memory: Arc<CompressedMemory>, offset: u64, data: *mut u8) {
        if !std::mem::replace(&mut self.work.is_watched, true) {
            self.ring.watch(self.work.told.wake.as_raw_fd(), Owner::Work);
        }
        let piece = &mut self.pieces[index];
        piece.waits.for_backend = true;
        let request = &self.requests[piece.request];
        let (kind, step) = match request.operation {
            Operation::Read if request.is_maintenance => (Kind::Maintenance, Step::Read),
            Operation::Read => (Kind::Read, Step::Read),
            _ if request.is_maintenance => (Kind::Maintenance, Step::Write),
            _ => (Kind::Write, Step::WriteBehind),
        };
        let work = PieceWork {
            memory,
            bytes: Bytes(data),
            step,
            next_page: offset / PAGE_BYTES as u64,
            pages_left: u64::from(piece.length) / PAGE_BYTES as u64,
            // Unless it is done it failed.
            answer: Answer { piece: index, result: Err(Errno::IO), told: self.work.told.clone() },
        };
        self.work.begin(kind, work);
    }

    /// Service threads have done something.
    pub(super) fn hear_of_work(&mut self, is_still_watched: bool) {
        let _ = rustix::io::read(&self.work.told.wake, &mut [0u8; 8]);
        if !is_still_watched {
            self.ring.watch(self.work.told.wake.as_raw_fd(), Owner::Work);
        }
        // Before looking: who tells something from now on says so again.
        self.work.told.is_said.swap(false, AcqRel);
        while let Some((index, result)) = self.work.told.done.pop() {
            let request = &self.requests[self.pieces[index].request];
            if request.operation == Operation::Write {
                self.compress_backlog(request.volume);
            }
            self.backend_done(index, result.err());
        }
    }

    fn compress_backlog(&mut self, volume: u32) {
        if let Backend::Compressed(memory) = &self.volumes[volume].volume.backend
            && self.work.begin_compressing(memory)
        {
            self.work.try_again = Some(self.now + TRY_AGAIN);
        }
    }

    /// Tries again what the executor had no room for.
    pub(super) fn compress_again(&mut self) {
        if self.work.try_again.take_if(|at| *at <= self.now).is_some() {
            let volumes: Vec<u32> = self.volumes.iter().map(|(index, _)| index).collect();
            volumes.into_iter().for_each(|volume| self.compress_backlog(volume));
        }
    }
}
