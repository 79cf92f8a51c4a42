//! `noop`: no policy. Requests go to the device in the order in which they come, as many as there are.
//!
//! It is the yardstick: what the device does when no scheduler intervenes.

use plimsoll_core::{BlockRequest, Dispatch, Scheduler, Time};
use std::collections::VecDeque;

/// First come, first served. O(1) per request.
#[derive(Default)]
pub struct Noop {
    queue: VecDeque<BlockRequest>,
}

impl Scheduler for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        self.queue.push_back(request);
    }

    fn next(&mut self, _now: Time) -> Dispatch {
        self.queue.pop_front().map_or(Dispatch::Nothing, Dispatch::Now)
    }
}
