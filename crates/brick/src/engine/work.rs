//! Steps of a request that take a processor's time: service threads do them, under the rules of the request executor.
//!
//! ```text
//!   engine's thread: dispatch -> PieceWork --spawn--> queues -> service thread: page, checkpoint, page, checkpoint ...
//!                    piece_done <-- told <-- eventfd <----------------------------------------------------+
//! ```
//!
//! **Rule.** A piece of a read or write of a compressed volume is a request to the [`Executor`], page by page, and may be preempted
//! between two pages. Everything else of it (socket, scheduler, accounts, model) stays on the engine's thread. A request
//! without such steps never comes here. **Complication.** The engine hears of a burst once: who tells it first writes to the
//! eventfd, the others find that said. A piece whose work panics, or that the executor drops, ends with an error and is not
//! waited for; what the executor has no room for, and everything where there is no executor, the engine's thread does itself.

use super::core::Core;
use super::error::EngineError;
use super::ring::Owner;
use crate::backend::{CompressedMemory, Damaged, PAGE_BYTES};
use crossbeam_queue::SegQueue;
use plimsoll_core::Operation;
use plimsoll_executor::{Executor, Kind, checkpoint};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;
use std::task::{Context, Poll, Waker};

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

/// A piece's pages, to be compressed or decompressed one after the other.
pub struct PieceWork {
    memory: Arc<CompressedMemory>,
    bytes: Bytes,
    is_read: bool,
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
            match self.is_read {
                true => self.memory.read(self.next_page, &mut *page).map_err(|Damaged| Errno::IO)?,
                false => self.memory.write(self.next_page, &*page),
            }
        }
        self.next_page += 1;
        self.pages_left -= 1;
        Ok(())
    }
}

impl Future for PieceWork {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
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

/// An engine's side of it.
pub(super) struct Work {
    executor: Option<Arc<Executor<PieceWork>>>,
    told: Arc<Told>,
    /// The ring watches the eventfd, since the first work.
    is_watched: bool,
}

impl Work {
    pub(super) fn new(executor: Option<Arc<Executor<PieceWork>>>) -> Result<Work, EngineError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| EngineError::System { action: "make an eventfd", source: errno.into() })?;
        let told = Told { done: SegQueue::new(), is_said: AtomicBool::new(false), wake };
        Ok(Work { executor, told: Arc::new(told), is_watched: false })
    }

    /// Gives it to the service threads, or does it here.
    fn begin(&self, kind: Kind, work: PieceWork) {
        let refused = match &self.executor {
            Some(executor) => executor.spawn(kind, None, work).err().map(|full| full.request),
            None => Some(work),
        };
        if let Some(mut work) = refused {
            // Outside of an executor's threads it is not preempted, so this is once.
            while Pin::new(&mut work).poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }
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
        let is_read = self.requests[piece.request].operation == Operation::Read;
        let work = PieceWork {
            memory,
            bytes: Bytes(data),
            is_read,
            next_page: offset / PAGE_BYTES as u64,
            pages_left: u64::from(piece.length) / PAGE_BYTES as u64,
            // Unless it is done it failed.
            answer: Answer { piece: index, result: Err(Errno::IO), told: self.work.told.clone() },
        };
        self.work.begin(if is_read { Kind::Read } else { Kind::Write }, work);
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
            self.backend_done(index, result.err());
        }
    }
}
