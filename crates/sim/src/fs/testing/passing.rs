//! A block scheduler that lets everything pass before one tenant's data: a process that waits all the same waits for
//! that data, and not in a queue behind it.

use plimsoll_core::{AccountId, BlockRequest, Completion, Dispatch, Scheduler, Time};
use std::collections::VecDeque;

/// The scheduler; one request at a time.
pub struct Passing {
    /// The tenant with the data that waits.
    last: AccountId,
    /// Until when it waits even if nothing else is there.
    held_until: Time,
    data: VecDeque<BlockRequest>,
    others: VecDeque<BlockRequest>,
    is_busy: bool,
}

impl Passing {
    pub fn new(last: AccountId, held_until: Time) -> Passing {
        Passing { last, held_until, data: VecDeque::new(), others: VecDeque::new(), is_busy: false }
    }
}

impl Scheduler for Passing {
    fn name(&self) -> &'static str {
        "passing"
    }

    fn request_added(&mut self, _: Time, request: BlockRequest) {
        // Whichever task submits it: a commit's ordered data is still the tenant's.
        let is_data = super::is_data(&request) && request.causes.iter().any(|cause| cause == self.last);
        if is_data { &mut self.data } else { &mut self.others }.push_back(request);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if self.is_busy {
            return Dispatch::Nothing;
        }
        if self.others.is_empty() && !self.data.is_empty() && now < self.held_until {
            return Dispatch::NotBefore(self.held_until);
        }
        let request = self.others.pop_front().or_else(|| self.data.pop_front());
        self.is_busy = request.is_some();
        request.map_or(Dispatch::Nothing, Dispatch::Now)
    }

    fn request_completed(&mut self, _: Time, _: &Completion) {
        self.is_busy = false;
    }
}
