//! `wdt`: shares by weight through budgets of a tenth of a second (Weight-based Dynamic Throttling, HotStorage 2016).
//!
//! **Intuition.** A drive that does a million requests a second has no time for a scheduler that looks at each of them
//! beside all others. So each container gets a budget for a while and pays from it, alone. **Rule.** A request goes if
//! its container has credits left; else it waits for the next window. What is not used stays, what is overdrawn is
//! owed. How much all get together follows what the heaviest was able to use ([`governor`]).
//!
//! **Complication.** Here the throttle stands where a device's queue is seen, so two things are better than in the
//! paper. The device gets no more than it takes. Of the containers with credits the one with the least use for its
//! weight goes first. So all use up a window side by side, and not the lightest first. A window also ends when it is
//! used up. It ends at once when the device runs dry while all wait for credits, and not by the clock while an asking
//! container has some. So an estimate that is too low costs no bandwidth, and one that is too high no shares.
//!
//! What threads share is [`throttle`], which has neither clock nor queue; this scheduler uses it with one thread.
//!
//! **Containers** are the accounts directly below the device; a pool's sessions share its credits in order of arrival.
//! So a pool gains nothing by opening more sessions.

use crate::growth::reserve_sparingly;
use crate::request_queues::{Queue, RequestQueues};
use governor::Governor;
use plimsoll_core::account::Account;
use plimsoll_core::{AccountId, BlockRequest, Completion, DeviceProfile, Dispatch, Operation, Scheduler, Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use throttle::{Pocket, Throttle};

pub mod governor;
pub mod steward;
pub mod throttle;

const SECTOR_BYTES: u32 = 512;
/// What a flush or a trim costs, which move no data: a page. Sectors.
const DATALESS_SECTORS: u32 = 8;
/// Part of its full queue below which the device runs dry. The model of the paper's drive does 99.9 % of its rate with
/// 96 of 256 requests.
const DRY_PART: u32 = 2;
/// How long a window may go on after its end by the clock: a second in all, after which TotalCredit is predicted anew.
/// Longer, a container of little weight would wait because a prediction was far off.
const OVERTIME_MAX: Span = Span::from_millis(900);

/// How far a sector takes a container of weight 1, as a power of two.
const STEP_BITS: u32 = 32;
/// Of that, what a pass does not keep: at 1 GB/s, all for weight 1, the last one is 34 years away.
const PASS_SHIFT: u32 = 18;

/// A container's requests, and how far it has come: the container furthest behind goes first.
struct Container {
    requests: Queue,
    /// Sectors by weight.
    pass: u64,
    /// How far a sector takes it.
    step: u64,
}

impl Container {
    const NEW: Container = Container { requests: Queue::EMPTY, pass: 0, step: 0 };
}

/// See the module's text.
pub struct Wdt {
    throttle: Throttle,
    pocket: Pocket,
    governor: Governor,
    /// By account number: the container that it is in, which has the number of an account itself.
    container_of: Vec<u32>,
    /// By account number. A container with requests is either ready or waiting.
    containers: Vec<Container>,
    queues: RequestQueues,
    /// Those that may have credits, by how far they have come.
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    /// How far the last one that was served had come: a container that comes back begins there.
    floor: u64,
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
            containers: Vec::new(),
            queues: RequestQueues::default(),
            ready: BinaryHeap::new(),
            floor: 0,
            waiting: BinaryHeap::new(),
            outstanding: 0,
            outstanding_max: device.outstanding_max.max(1),
        }
    }

    /// Lets every container with credits in this window try again.
    fn wake_due(&mut self) {
        let window = self.throttle.window();
        while let Some(&Reverse((due, container))) = self.waiting.peek()
            && due <= window
        {
            self.waiting.pop();
            self.make_ready(container);
        }
    }

    fn make_ready(&mut self, container: u32) {
        let one = &mut self.containers[container as usize];
        one.pass = one.pass.max(self.floor);
        self.ready.push(Reverse((one.pass, container)));
    }

    /// The next request of a container with credits; those that have none wait.
    fn admit(&mut self) -> Option<BlockRequest> {
        while let Some(Reverse((pass, container))) = self.ready.pop() {
            let index = container as usize;
            let one = &mut self.containers[index];
            let sectors = sectors(one.requests.front().expect("an account that is ready has a request"));
            if self.pocket.admit(&self.throttle, index, sectors) {
                self.floor = pass;
                one.pass = pass + ((u64::from(sectors) * one.step) >> PASS_SHIFT);
                let request = self.queues.pop(&mut one.requests);
                if !one.requests.is_empty() {
                    self.ready.push(Reverse((one.pass, container)));
                }
                return request;
            }
            let windows = self.pocket.windows_until_filled(&self.throttle, index);
            self.waiting.push(Reverse((self.throttle.window() + windows, container)));
        }
        None
    }
}

fn step(weight: u32) -> u64 {
    (1 << STEP_BITS) / u64::from(weight.max(1))
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
            reserve_sparingly(&mut self.containers, index + 1);
            self.container_of.resize(index + 1, 0);
            self.containers.resize_with(index + 1, || Container::NEW);
        }
        let is_container = account.parent.is_none_or(|parent| parent == AccountId::ROOT);
        self.container_of[index] = match account.parent {
            Some(parent) if !is_container => self.container_of[parent.index()],
            _ => account.id.0,
        };
        if is_container {
            self.throttle.open(index, account.allocation.weight);
            self.pocket.open(index);
            let one = &mut self.containers[index];
            (one.pass, one.step) = (0, step(account.allocation.weight));
        }
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        if self.container_of[account.id.index()] == account.id.0 {
            self.throttle.set_weight(account.id.index(), account.allocation.weight);
            self.containers[account.id.index()].step = step(account.allocation.weight);
        }
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        if self.container_of.get(account.index()) == Some(&account.0) {
            self.throttle.set_weight(account.index(), 0);
        }
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        if self.ready.is_empty() && self.waiting.is_empty() {
            // No container has asked meanwhile; the clock went on.
            self.governor.end_due(now, &self.throttle);
        }
        let container = self.container_of[request.session.index()];
        if self.containers[container as usize].requests.is_empty() {
            self.make_ready(container);
        }
        self.queues.push(&mut self.containers[container as usize].requests, request);
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
