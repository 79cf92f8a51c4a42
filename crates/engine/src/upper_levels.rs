//! Levels above the block layer: causes of blocks, calls that wait at gates, dirty pages.
//!
//! Below a mount every request comes from the same kernel threads, so an engine alone can tell its volumes apart and
//! nothing finer. A split-level scheduler wants more (split-level paper, section 3): the processes that caused a block,
//! and a say when their system calls begin. Both come from outside of the engine, through two small contracts:
//!
//! ```text
//!   BlockTags    asked for each block of a request          -> causes, class, file of its pieces
//!   UpperLevels  readable descriptor, then a turn           -> Scheduler::call_entered, pages_dirtied, ...
//!                what was seen of an observed disk          -> Scheduler::request_added, request_completed
//!                which reads are kept back                  <- HeldReads, at the end of each turn
//! ```
//!
//! What is told from above may be late: an account that has closed since counts as none.
//!
//! **An observed disk** has an engine without volumes. The levels above tell it what they saw of the disk's
//! requests ([`Below::issued`], [`Below::completed`]). Everything else is as it is with a volume, from pools to
//! latencies.

use super::clock::Clock;
use super::held_reads::HeldReads;
use super::observed::{Books, ObservedRequests};
use plimsoll_core::{BlockRequest, Scheduler, Time};
use std::os::fd::BorrowedFd;

/// What the levels above use in a turn: the scheduler, and the books of observed requests.
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

    /// The kernel has sent a request to an observed disk. It calls it `key` until it is done. The number is given by
    /// the engine. Its accounts are open.
    pub fn issued(&mut self, key: u64, request: BlockRequest) {
        self.observed.issued(self.now, &mut self.books, key, request);
    }

    /// The disk has done the request that the kernel calls `key`, at `at`. An unknown key is ignored.
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

    /// A turn of the engine: tells the scheduler of events, lets released calls go on, and does what the scheduler
    /// wishes. Must not wait. `is_ready` says that the descriptor has become readable since the turn before. Answers
    /// with the time at which to come again even if nothing happens.
    fn turn(&mut self, now: Time, is_ready: bool, below: &mut Below<'_>) -> Option<Time>;

    /// The scheduler has let go in this turn what it will. Names the accounts with reads that it keeps back, and those
    /// with reads that went before it let them go. Must not wait.
    fn reads_held(&mut self, now: Time, reads: &HeldReads);

    /// A new scheduler is in charge and knows of no call and no page yet: held calls go on.
    fn scheduler_switched(&mut self, now: Time, scheduler: &mut dyn Scheduler);
}
