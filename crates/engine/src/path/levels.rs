//! The levels above the block layer, and the requests of an observed disk: both use the scheduler beside the pieces.

use super::ground::Ground;
use crate::clock::Clock;
use crate::observed::ObservedRequests;
use crate::ring::{Owner, Ring};
use crate::upper_levels::{Below, UpperLevels};
use crate::urgency;
use plimsoll_core::{AccountId, RequestId, Scheduler, Time};
use std::os::fd::AsRawFd;

/// System calls and the page cache, where they can be seen.
#[derive(Default)]
pub(crate) struct Levels {
    above: Option<Box<dyn UpperLevels>>,
    /// When they want to be asked again.
    pub(crate) ask_again: Option<Time>,
    /// Their descriptor has become readable.
    is_ready: bool,
    /// Requests of an observed disk, where the levels above see them.
    observed: ObservedRequests,
}

impl Levels {
    /// Whether there are any.
    pub(crate) fn are_there(&self) -> bool {
        self.above.is_some()
    }

    /// Puts `levels` above the scheduler, and gives those that were there before.
    pub(crate) fn set(
        &mut self,
        ground: &mut Ground,
        ring: &mut Ring,
        levels: Option<Box<dyn UpperLevels>>,
    ) -> Option<Box<dyn UpperLevels>> {
        if self.above.is_some() {
            ring.cancel(Owner::UpperLevels);
        }
        if levels.is_some() {
            urgency::before_normal_threads();
        }
        self.ask_again = None;
        self.observed.forget(&mut ground.meters, &mut ground.reads);
        let before = std::mem::replace(&mut self.above, levels);
        self.watch(ring);
        before
    }

    /// The levels above have something to say, in this turn.
    pub(crate) fn are_ready(&mut self, ring: &mut Ring, is_still_watched: bool) {
        self.is_ready = true;
        if !is_still_watched {
            self.watch(ring);
        }
    }

    /// Hears of what happens in the levels above, beginning with what happened before.
    fn watch(&mut self, ring: &mut Ring) {
        self.is_ready = true;
        if let Some(levels) = &self.above {
            ring.watch(levels.descriptor().as_raw_fd(), Owner::UpperLevels);
        }
    }

    /// Lets the levels above report events to the scheduler and act on its answers.
    pub(crate) fn hear(&mut self, ground: &mut Ground, clock: &Clock, scheduler: &mut dyn Scheduler) {
        if let Some(levels) = &mut self.above {
            let (now, is_ready) = (ground.now, std::mem::take(&mut self.is_ready));
            let mut below = Below { now, clock, observed: &mut self.observed, books: ground.books(scheduler) };
            self.ask_again = levels.turn(now, is_ready, &mut below);
        }
    }

    /// The scheduler has let a request go that was only seen.
    pub(crate) fn dispatched(&mut self, ground: &mut Ground, scheduler: &mut dyn Scheduler, id: RequestId) {
        let now = ground.now;
        self.observed.dispatched(now, &mut ground.books(scheduler), id);
    }

    /// Another scheduler is about to be in charge.
    pub(crate) fn scheduler_switched(&mut self, ground: &mut Ground, scheduler: &mut dyn Scheduler) {
        if let Some(levels) = &mut self.above {
            levels.scheduler_switched(ground.now, scheduler);
        }
        self.observed.forget(&mut ground.meters, &mut ground.reads);
    }

    /// Tells the levels above which accounts have reads that wait.
    pub(crate) fn tell_of_reads(&mut self, ground: &Ground) {
        if let Some(levels) = &mut self.above {
            levels.reads_held(ground.now, &ground.reads);
        }
    }

    /// Requests that were seen and are not completed.
    pub(crate) fn observed(&self) -> &ObservedRequests {
        &self.observed
    }

    /// An account is closed.
    pub(crate) fn closed(&mut self, account: AccountId) {
        self.observed.unflushed.remove(account);
    }
}
