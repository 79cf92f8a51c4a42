//! `wdt`: shares by weight through budgets of a tenth of a second (Weight-based Dynamic Throttling, HotStorage 2016).
//!
//! **Intuition.** A drive that does a million requests a second has no time for a scheduler that looks at each of them
//! beside all others. So each container gets a budget for a while and pays from it, alone. **Rule.** A request goes if
//! its container has credits left; else it waits for the next window. What is not used stays, what is overdrawn is
//! owed. How much all get together follows what the heaviest was able to use ([`governor`]).
//!
//! **Complication.** Here the throttle stands where a device's queue is seen, so two things are better than in the
//! paper. The device is given no more than it takes, and who has credits is served in turn. And a window ends when it
//! is used up: at once when the device runs dry while everybody waits for credits, and not by the clock while somebody who
//! asks has some. So an estimate that is too low costs no bandwidth, and one that is too high no shares.
//!
//! What threads share is [`throttle`], which has neither clock nor queue; this scheduler uses it with one thread.
//!
//! **Containers** are the accounts directly below the device; a pool's sessions share its credits in order of arrival.
//! So nobody gains by opening more sessions.

use crate::growth::reserve_sparingly;
use crate::request_queues::{Queue, RequestQueues};
use governor::Governor;
use plimsoll_core::account::Account;
use plimsoll_core::{AccountId, BlockRequest, Completion, DeviceProfile, Dispatch, Operation, Scheduler, Span, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use throttle::{Pocket, Throttle};

pub mod governor;
pub mod steward;
pub mod throttle;

const SECTOR_BYTES: u32 = 512;
/// What a flush or a trim costs, which move no data: a page. Sectors.
const DATALESS_SECTORS: u32 = 8;
/// The device runs dry below this part of what it should hold: the model of the paper's drive does 99.9 % of its rate
/// with 96 of 256 requests.
const DRY_PART: u32 = 2;
/// How long a window may go on after its end by the clock: a second in all, after which TotalCredit is predicted anew. Longer,
/// who weighs little would wait because a prediction was far off.
const OVERTIME_MAX: Span = Span::from_millis(900);

/// See the module's text.
pub struct Wdt {
    throttle: Throttle,
    pocket: Pocket,
    governor: Governor,
    /// By account number: the container that it is in, which has the number of an account itself.
    container_of: Vec<u32>,
    /// By container: its requests. Who has any is either ready or waiting.
    heads: Vec<Queue>,
    queues: RequestQueues,
    /// Those that may have credits, in turn.
    ready: VecDeque<u32>,
    /// Those that had none, by the window in which they have some again.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    outstanding: u32,
    outstanding_max: u32,
}

impl Wdt {
    /// A scheduler for `device`, without accounts.
    pub fn new(device: &DeviceProfile) -> Wdt {
        Wdt {
            throttle: Throttle::default(),
            pocket: Pocket::default(),
            governor: Governor::new(device.worst_case_runs_per_second),
            container_of: Vec::new(),
            heads: Vec::new(),
            queues: RequestQueues::default(),
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            outstanding: 0,
            outstanding_max: device.outstanding_max.max(1),
        }
    }

    /// Lets everyone try again who has credits in this window.
    fn wake_due(&mut self) {
        let window = self.throttle.window();
        while let Some(&Reverse((due, container))) = self.waiting.peek()
            && due <= window
        {
            self.waiting.pop();
            self.ready.push_back(container);
        }
    }

    /// The next request whose container has credits; those that have none wait.
    fn admit(&mut self) -> Option<BlockRequest> {
        while let Some(container) = self.ready.pop_front() {
            let index = container as usize;
            let queue = &mut self.heads[index];
            let request = queue.front().expect("who is ready has a request");
            if self.pocket.admit(&self.throttle, index, sectors(request)) {
                let request = self.queues.pop(queue);
                if !queue.is_empty() {
                    self.ready.push_back(container);
                }
                return request;
            }
            let windows = self.pocket.windows_until_filled(&self.throttle, index);
            self.waiting.push(Reverse((self.throttle.window() + windows, container)));
        }
        None
    }
}

fn sectors(request: &BlockRequest) -> u32 {
    match request.operation {
        Operation::Flush | Operation::Trim => DATALESS_SECTORS,
        _ => request.length.div_ceil(SECTOR_BYTES).max(1),
    }
}

impl Scheduler for Wdt {
    fn name(&self) -> &'static str {
        "wdt"
    }

    fn account_opened(&mut self, _now: Time, account: &Account) {
        let index = account.id.index();
        if self.container_of.len() <= index {
            reserve_sparingly(&mut self.container_of, index + 1);
            reserve_sparingly(&mut self.heads, index + 1);
            self.container_of.resize(index + 1, 0);
            self.heads.resize_with(index + 1, || Queue::EMPTY);
        }
        let is_container = account.parent.is_none_or(|parent| parent == AccountId::ROOT);
        self.container_of[index] = match account.parent {
            Some(parent) if !is_container => self.container_of[parent.index()],
            _ => account.id.0,
        };
        if is_container {
            self.throttle.open(index, account.allocation.weight);
            self.pocket.open(index);
        }
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        if self.container_of[account.id.index()] == account.id.0 {
            self.throttle.set_weight(account.id.index(), account.allocation.weight);
        }
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        if self.container_of.get(account.index()) == Some(&account.0) {
            self.throttle.set_weight(account.index(), 0);
        }
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        if self.ready.is_empty() && self.waiting.is_empty() {
            // Nobody has asked meanwhile; the clock went on.
            self.governor.end_due(now, &self.throttle);
        }
        let container = self.container_of[request.session.index()];
        let queue = &mut self.heads[container as usize];
        if queue.is_empty() {
            self.ready.push_back(container);
        }
        self.queues.push(queue, request);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if self.outstanding >= self.outstanding_max {
            return Dispatch::Nothing;
        }
        if now >= self.governor.window_ends() + OVERTIME_MAX {
            self.governor.end_window(now, 1, &self.throttle);
            self.wake_due();
        }
        loop {
            if let Some(request) = self.admit() {
                self.outstanding += 1;
                return Dispatch::Now(request);
            }
            let Some(&Reverse((due, _))) = self.waiting.peek() else { return Dispatch::Nothing };
            let is_dry = self.outstanding < self.outstanding_max.div_ceil(DRY_PART);
            if !is_dry && now < self.governor.window_ends() {
                return Dispatch::NotBefore(self.governor.window_ends());
            }
            let windows = if is_dry { due.saturating_sub(self.throttle.window()).max(1) } else { 1 };
            self.governor.end_window(now, windows, &self.throttle);
            self.wake_due();
        }
    }

    fn request_completed(&mut self, _now: Time, _completion: &Completion) {
        self.outstanding -= 1;
    }
}
