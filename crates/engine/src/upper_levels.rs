//! What is above the block layer: the causes of blocks, the calls that wait at gates, the dirty pages.
//!
//! Below a mount every request comes from the same kernel threads, so an engine alone can tell its volumes apart and
//! nothing finer. A split-level scheduler wants more (split-level paper, section 3): the processes that caused a block,
//! and a say when their system calls begin. Both come from outside of the engine, through two small contracts:
//!
//! ```text
//!   BlockTags    asked for each block of a request          -> causes, class, file of its pieces
//!   UpperLevels  readable descriptor, then a turn           -> Scheduler::call_entered, pages_dirtied, released_calls, ...
//!                what was seen of a disk that is not ours   -> Scheduler::request_added, request_completed
//!                which reads are kept back                  <- HeldReads, at the end of each turn
//! ```
//!
//! **Pieces end where causes change**, so that the account that caused most of a merged request pays for most of it.
//! But they are at least a run long ([`RUN_BYTES_MAX`]); else pages that two tenants wrote in turns would make a
//! request of each page. Within a piece the causes share its cost equally (split-level paper, section 3.2).
//!
//! **A flush** has no blocks. The accounts that caused what was written since the one before, and so is made durable,
//! have caused it. It stands in its sender's queue all the same, for a flush that is held holds a whole file system.
//!
//! **The session of a piece** is its only cause, where there is just one, and otherwise the mount or connection that it
//! came through. So a scheduler that goes by session sees tenants, and one that goes by cause sees all accounts.
//!
//! What is told from above may be late: an account that has closed since counts as none.
//!
//! **A disk that is not ours** has an engine without volumes. The levels above tell it what they saw of the disk's
//! requests ([`Below::issued`], [`Below::completed`]). Everything else is as it is with a volume, from pools to
//! latencies.

use super::clock::Clock;
use super::held_reads::HeldReads;
use super::observed::{Books, ObservedRequests};
use super::request::Request;
use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{AccountId, AccountTree, BlockRequest, CauseSet, Class, FileId, Operation, Scheduler, Time};
use std::os::fd::BorrowedFd;

/// Bytes of a block that has a tag of its own: a page.
pub const TAG_BLOCK_BYTES: u32 = 4096;

/// What is known of a block that is read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTag {
    /// The accounts of the engine that caused it. Empty where none is known.
    pub causes: CauseSet,
    /// What it means to the file system.
    pub class: Class,
    /// The file that it belongs to; [`FileId::DEVICE`] for metadata in its place.
    pub file: Option<FileId>,
    /// A caller waits for it.
    pub is_sync: bool,
}

impl BlockTag {
    /// That of a flush, which makes durable what was written: the accounts that caused those writes caused it.
    pub(super) fn of_flush(unflushed: &mut CauseSet) -> BlockTag {
        BlockTag { causes: std::mem::take(unflushed), ..BlockTag::default() }
    }
}

/// The causes of what reaches a volume, block by block.
pub trait BlockTags: Send {
    /// What is known of the newest `operation` on the block of [`TAG_BLOCK_BYTES`] at `offset` bytes of the volume, a
    /// multiple of that size. Asked on the engine's thread once for each block that is read or written: it must neither
    /// wait nor allocate.
    fn tag(&self, operation: Operation, offset: u64) -> BlockTag;
}

/// What the levels above speak with in a turn: the scheduler, and the books of requests that are only seen.
pub struct Below<'engine> {
    pub(super) now: Time,
    pub(super) clock: &'engine Clock,
    pub(super) observed: &'engine mut ObservedRequests,
    pub(super) books: Books<'engine>,
}

impl Below<'_> {
    /// The device's scheduler.
    pub fn scheduler(&mut self) -> &mut dyn Scheduler {
        self.books.scheduler
    }

    /// The engine's time of a reading of CLOCK_MONOTONIC, nanoseconds; no later than now.
    pub fn time_of(&self, monotonic_ns: u64) -> Time {
        self.clock.time_of(monotonic_ns).min(self.now)
    }

    /// The kernel has sent a request to a disk that is not ours; it calls it `key` until it is done. The number is given by
    /// the engine. Its accounts are open.
    pub fn issued(&mut self, key: u64, request: BlockRequest) {
        self.observed.issued(self.now, &mut self.books, key, request);
    }

    /// The disk has done, at `at`, the request that the kernel calls `key`; one that was not seen is ignored.
    pub fn completed(&mut self, key: u64, at: Time, succeeded: bool) {
        self.observed.completed(self.now, &mut self.books, key, at, succeeded);
    }

    /// Supposes that the disk has done what it had for too long. O(requests): now and then.
    pub fn give_up_lost(&mut self) {
        self.observed.give_up_lost(self.now, &mut self.books);
    }
}

/// System calls and the page cache, as the engine's scheduler should hear of them.
pub trait UpperLevels: Send {
    /// Becomes readable when something happened that shall not wait for the next turn.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// A turn of the engine: tell the scheduler what happened, let go on the calls that it releases, and do what it
    /// wishes. Must not wait. `is_ready` says that the descriptor has become readable since the turn before. Answers
    /// with the time at which to come again even if nothing happens.
    fn turn(&mut self, now: Time, is_ready: bool, below: &mut Below<'_>) -> Option<Time>;

    /// The scheduler has let go in this turn what it will. Names the accounts with reads that it keeps back, and those
    /// with reads that went before it let them go. Must not wait.
    fn reads_held(&mut self, now: Time, reads: &HeldReads);

    /// Another scheduler is in charge, which knows of no call and no page yet: a call that is held goes on.
    fn scheduler_switched(&mut self, now: Time, scheduler: &mut dyn Scheduler);
}

/// The next piece's tag and how much of the request it covers: from `start` on, at most `length_max` bytes. O(blocks).
pub(super) fn tag_piece(
    tags: &dyn BlockTags,
    tree: &AccountTree,
    request: &Request,
    start: u32,
    length_max: u32,
) -> (BlockTag, u32) {
    let begin = request.offset + u64::from(start);
    let end = begin + u64::from(length_max);
    let mut at = begin - begin % u64::from(TAG_BLOCK_BYTES);
    let mut tag = tags.tag(request.operation, at);
    loop {
        at += u64::from(TAG_BLOCK_BYTES);
        if at >= end {
            break;
        }
        let next = tags.tag(request.operation, at);
        if at - begin >= RUN_BYTES_MAX && (&next.causes, next.file) != (&tag.causes, tag.file) {
            break;
        }
        tag.causes.union_with(&next.causes);
        tag.is_sync |= next.is_sync;
    }
    let closed: Vec<AccountId> = tag.causes.iter().filter(|&cause| tree.get(cause).is_none()).collect();
    closed.into_iter().for_each(|cause| tag.causes.remove(cause));
    (tag, (at.min(end) - begin) as u32)
}

/// The session in whose queue a piece stands: that of its only cause, or else `submitter`.
pub fn session_of(causes: &CauseSet, submitter: AccountId) -> AccountId {
    let mut causes = causes.iter();
    match (causes.next(), causes.next()) {
        (Some(only), None) => only,
        _ => submitter,
    }
}
