//! Steps of a request that take processor time. Service threads do them under the executor's rules.
//!
//! ```text
//!   a page in memory, compressed      dispatch -> (new) pages -> done
//!   a write to an encrypted file      dispatch -> (new) encrypt pages -> ring: write -> done
//!   a read of one                     dispatch -> ring: read -> (resumed) decrypt pages -> done
//!
//!   engine's thread: PieceWork --spawn--> queues -> service thread: page, checkpoint, page, checkpoint ...
//!                    step_completed <-- told <-- eventfd <------------------------------------------+
//! ```
//!
//! **Rule.** A piece of a read or write goes from step to step, and a step is the ring's or a processor's. One that is
//! a processor's is a request to the [`Executor`], page by page, and may be preempted between two pages. It comes as
//! new unless the disk had the piece before. Then the engine's thread has begun the request, the disk suspended it, and
//! it comes as resumed. Everything else of it (socket, scheduler, accounts, model) stays on the engine's thread. A
//! request without such steps never comes here. What clients write to compressed memory is kept as it is and answered.
//! A request of the maintenance queue compresses it afterwards; the engine begins that request when it hears of the
//! piece.
//!
//! **Complication.** The engine hears of a burst once: the first thread that tells it writes to the eventfd, the others
//! find that said. It waits for none of them ([`basket`](super::basket)). What a cache's syncer copies is the
//! maintenance queue's already, and is compressed at once. It gives way after each page, so that no client waits for
//! more than one. A piece ends with an error if its work panics or the executor drops it; no request waits for it. What
//! the executor has no room for stands in a line, in its order, until something is done. It does not keep the engine's
//! thread, which serves others too. Where there is no executor, that thread does everything itself, and compresses at
//! once, too. What is written encrypted is so in memory of its own ([`scratch`](super::scratch)), what is read is
//! decrypted where it was read to.

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;

use super::basket::{Basket, Node};
use super::error::EngineError;
use super::ring::{Owner, Ring};
use super::scratch::Scratch;
use crate::backend::{CompressedMemory, Compressing, Damaged, NotCompressed, PAGE_BYTES, SECTOR_BYTES, SectorCipher};
use plimsoll_core::{Span, Time};
use plimsoll_executor::{Arrival, Executor, Kind, checkpoint, give_way};
use plimsoll_linux::WakeEvent;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// When the engine tries again what the executor had no room for. Other engines may have the places, and do not tell it
/// when they leave them.
const TRY_AGAIN: Span = Span::from_millis(10);

/// A piece, and what came of it.
type Outcome = (u32, Result<(), Errno>);

/// What service threads have done, for the engine.
pub(super) struct Told {
    done: Basket<Outcome>,
    wake: WakeEvent,
}

/// Says what came of a piece, once: at the latest when it is dropped.
struct Answer {
    /// Until it is said.
    node: Option<Box<Node<Outcome>>>,
    told: Arc<Told>,
}

impl Answer {
    fn is(&mut self, result: Result<(), Errno>) {
        self.node.as_mut().expect("it is said at the end").content.1 = result;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A thread that finds others there leaves it to the first of them to wake the engine.
        if self.node.take().is_some_and(|node| self.told.done.put(node)) {
            self.told.wake.wake();
        }
    }
}

/// The bytes of a piece, of which those before are done.
pub(super) struct Bytes(pub(super) *mut u8);

// SAFETY: they lie in the payload of a request, which keeps it for this piece alone until the engine has heard its
// answer, or in the piece's own scratch buffer, which it keeps as long.
unsafe impl Send for Bytes {}

impl Bytes {
    /// The next so many.
    ///
    /// # Safety
    /// There are so many, no other code uses them, and what is made of them is used no more when this is called again.
    unsafe fn next<'used>(&mut self, length: usize) -> &'used mut [u8] {
        let start = self.0;
        // SAFETY: the caller's promise; behind the last one nothing is used.
        unsafe {
            self.0 = start.add(length);
            std::slice::from_raw_parts_mut(start, length)
        }
    }

    /// The next page.
    ///
    /// # Safety
    /// As for [`next`](Self::next).
    unsafe fn next_page<'used>(&mut self) -> &'used mut [u8; PAGE_BYTES] {
        // SAFETY: the caller's promise.
        unsafe { self.next(PAGE_BYTES) }.try_into().expect("a page has that length")
    }
}

/// What service threads do for engines.
pub struct ServiceRequest(Service);

enum Service {
    Piece(PieceWork),
    /// Compression that writes have left to do.
    Backlog(Compressing),
}

/// What is done with a page.
pub(super) enum PageStep {
    Unpack(Arc<CompressedMemory>),
    Pack(Arc<CompressedMemory>),
    /// Kept as it is, and packed afterwards.
    PackBehind(Arc<CompressedMemory>),
    /// Made of zeroes, or of the request's bytes, in memory of its own.
    Encrypt(Arc<SectorCipher>, Bytes),
    Decrypt(Arc<SectorCipher>),
}

/// A step of a piece that is done page by page.
pub(super) struct PieceWork {
    step: PageStep,
    /// The request's own; a write-zeroes has none.
    bytes: Option<Bytes>,
    /// The next page's first byte in the volume.
    offset: u64,
    bytes_left: usize,
    /// Whether the work gives way after each page: no client waits for it, and other work may wait.
    gives_way: bool,
    answer: Answer,
}

impl PieceWork {
    fn one_page(&mut self) -> Result<(), Errno> {
        let length = self.bytes_left.min(PAGE_BYTES);
        let (page, sector) = (self.offset / PAGE_BYTES as u64, self.offset / SECTOR_BYTES as u64);
        // SAFETY: `bytes_left` bytes from here on are this piece's part of a payload, and of its scratch buffer, that
        // no other code uses; those of compressed memory are whole pages.
        unsafe {
            match (&mut self.step, &mut self.bytes) {
                (PageStep::Unpack(memory), Some(bytes)) => {
                    memory.read(page, bytes.next_page()).map_err(|Damaged| {
                        tracing::error!(page, "a page in memory is not what was written");
                        Errno::IO
                    })?;
                }
                (PageStep::Pack(memory), Some(bytes)) => {
                    memory.write(page, bytes.next_page()).map_err(|NotCompressed| Errno::IO)?;
                }
                (PageStep::PackBehind(memory), Some(bytes)) => {
                    memory.write_behind(page, bytes.next_page()).map_err(|NotCompressed| Errno::IO)?;
                }
                (PageStep::Encrypt(cipher, target), source) => {
                    let target = target.next(length);
                    match source {
                        Some(source) => target.copy_from_slice(source.next(length)),
                        None => target.fill(0),
                    }
                    cipher.encrypt(sector, target);
                }
                (PageStep::Decrypt(cipher), Some(bytes)) => cipher.decrypt(sector, bytes.next(length)),
                (_, None) => unreachable!("reads and writes have bytes"),
            }
        }
        self.offset += length as u64;
        self.bytes_left -= length;
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.bytes_left > 0 {
            if let Err(errno) = self.one_page() {
                self.answer.is(Err(errno));
                return Poll::Ready(());
            }
            let mut stop = if self.gives_way { give_way() } else { checkpoint() };
            if self.bytes_left > 0 && Pin::new(&mut stop).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.answer.is(Ok(()));
        Poll::Ready(())
    }

    /// Does all of it, on this thread.
    fn do_here(mut self) {
        if let PageStep::PackBehind(memory) = self.step {
            self.step = PageStep::Pack(memory);
        }
        // Outside of an executor's threads it stops nowhere, so this is once.
        while self.poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
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
#[expect(clippy::vec_box, reason = "nodes are handed on and used again where they are")]
pub(super) struct Work {
    executor: Option<Arc<Executor<ServiceRequest>>>,
    told: Arc<Told>,
    /// What was told last, while the engine hears it; and nodes for what comes.
    heard: Vec<Box<Node<Outcome>>>,
    nodes: Vec<Box<Node<Outcome>>>,
    /// The ring watches the eventfd, since the first work.
    is_watched: bool,
    /// What is written to encrypted volumes is encrypted into it; since the first of them.
    scratch: Option<Scratch>,
    /// Steps for which the executor had no room, in the order in which they came.
    line: VecDeque<(Kind, Arrival, PieceWork)>,
    /// Time of the next try, if the executor had no room for them or for compressing a backlog.
    pub(super) try_again: Option<Time>,
}

impl Work {
    pub(super) fn new(executor: Option<Arc<Executor<ServiceRequest>>>) -> Result<Work, EngineError> {
        let wake = WakeEvent::new().map_err(|source| EngineError::System { action: "make an eventfd", source })?;
        let (told, line) = (Arc::new(Told { done: Basket::default(), wake }), VecDeque::new());
        let [heard, nodes] = [Vec::new(), Vec::new()];
        Ok(Work { executor, told, heard, nodes, is_watched: false, scratch: None, line, try_again: None })
    }

    /// For a piece: unless it is done it has failed.
    fn answer(&mut self, piece: u32) -> Answer {
        let outcome = (piece, Err(Errno::IO));
        let node = match self.nodes.pop() {
            Some(mut node) => {
                node.content = outcome;
                node
            }
            None => Node::new(outcome),
        };
        Answer { node: Some(node), told: self.told.clone() }
    }

    /// Has the ring watch for what service threads say, before the first work.
    pub(super) fn watch(&mut self, ring: &mut Ring) {
        if !std::mem::replace(&mut self.is_watched, true) {
            ring.watch(self.told.wake.as_fd().as_raw_fd(), Owner::Work);
        }
    }

    /// A step of a piece, and the bytes of its request that it covers: the first one in the volume, and how many.
    pub(super) fn piece(
        &mut self,
        piece: u32,
        kind: Kind,
        step: PageStep,
        bytes: Option<Bytes>,
        (offset, bytes_left): (u64, usize),
    ) -> PieceWork {
        PieceWork { step, bytes, offset, bytes_left, gives_way: kind == Kind::Maintenance, answer: self.answer(piece) }
    }

    /// Takes what service threads have told: the caller hears it and [gives the list back](Self::heard_all).
    #[expect(clippy::vec_box, reason = "nodes are handed on and used again where they are")]
    pub(super) fn take_heard(&mut self, ring: &mut Ring, is_still_watched: bool) -> Vec<Box<Node<Outcome>>> {
        let _ = rustix::io::read(&self.told.wake, &mut [0u8; 8]);
        if !is_still_watched {
            ring.watch(self.told.wake.as_fd().as_raw_fd(), Owner::Work);
        }
        // After that: a thread that tells something from now on finds nothing there, and says so again.
        let mut heard = std::mem::take(&mut self.heard);
        self.told.done.take_into(&mut heard);
        heard
    }

    /// Keeps a node that was heard, for another piece.
    pub(super) fn keep_node(&mut self, node: Box<Node<Outcome>>) {
        self.nodes.push(node);
    }

    /// All that was told has been heard: the executor has room again.
    #[expect(clippy::vec_box, reason = "nodes are handed on and used again where they are")]
    pub(super) fn heard_all(&mut self, heard: Vec<Box<Node<Outcome>>>, now: Time) {
        self.heard = heard;
        self.hand_over(now);
    }

    /// Prepares for volumes that are encrypted.
    pub(super) fn make_scratch(&mut self) -> Result<(), EngineError> {
        if self.scratch.is_none() {
            let made = Scratch::new();
            self.scratch = Some(made.map_err(|source| EngineError::System { action: "reserve buffers", source })?);
        }
        Ok(())
    }

    pub(super) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("it was made with the first volume that is encrypted")
    }

    /// Gives the work to the service threads, behind steps that wait for room. Without service threads, does it here.
    pub(super) fn begin(&mut self, now: Time, kind: Kind, came: Arrival, work: PieceWork) {
        if self.executor.is_none() {
            return work.do_here();
        }
        self.line.push_back((kind, came, work));
        self.hand_over(now);
    }

    /// Gives the service threads the steps in the line, as far as there is room.
    pub(super) fn hand_over(&mut self, now: Time) {
        let Some(executor) = &self.executor else { return };
        while let Some((kind, came, work)) = self.line.pop_front() {
            let request = ServiceRequest(Service::Piece(work));
            let Err(full) = executor.spawn_as(kind, came, None, request) else { continue };
            let Service::Piece(work) = full.request.0 else { unreachable!("it is given back as it was") };
            self.line.push_front((kind, came, work));
            self.try_again.get_or_insert(now + TRY_AGAIN);
            return;
        }
    }

    /// Starts compressing a backlog, now or when the executor has room.
    pub(super) fn compress(&mut self, now: Time, memory: &Arc<CompressedMemory>) {
        if self.begin_compressing(memory) {
            self.try_again.get_or_insert(now + TRY_AGAIN);
        }
    }

    /// Starts compressing a backlog. The answer is true if the executor has no room.
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
