//! `static_throttle`: fixed caps by weight, for reads and for writes apart (*ST* of the WDT paper, section 2). To
//! compare with.
//!
//! **Intuition.** If each container may use its part of the device and no more, each has its part. **Rule.** Each
//! container (an account directly below the device) may read its weight's part of the device's worst case, and write as
//! much again. The presence of the others does not matter. **Complication.** That is its only fault: the unused part of
//! a tenant is lost. A tenant that reads more than it writes, or writes more, has caps that do not fit it.

use crate::request_queues::{Queue, RequestQueues};
use plimsoll_core::account::Account;
use plimsoll_core::{AccountId, BlockRequest, DeviceProfile, Dispatch, Operation, Scheduler, Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a request as the device's worst case has them.
const REQUEST_BYTES: f64 = 4096.0;
/// What a request that moves no data costs. Bytes.
const DATALESS_BYTES: u32 = 4096;
/// By how much a late dispatch is made up for: as much as under a limit (`token_bucket`).
const CATCH_UP_MAX: Span = Span::from_millis(2);
/// Queues of a container: reads, and everything else.
const QUEUES: usize = 2;

/// What is known of an account.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The number of the container that it is in.
    container: u32,
    /// Its weight, if it is one.
    weight: u32,
    has_asked: bool,
}

/// One container in one direction.
struct ContainerQueue {
    queue: Queue,
    /// When the next request may go.
    release: Time,
}

/// See the module's text.
pub struct StaticThrottle {
    /// Bytes a second of all containers together, in each direction.
    bytes_per_second: f64,
    /// Sum of the weights of all containers that ever asked.
    weight: u64,
    /// By account number.
    accounts: Vec<Place>,
    /// By container, reads first.
    lines: Vec<ContainerQueue>,
    queues: RequestQueues,
    /// The lines with requests, by release.
    waiting: BinaryHeap<Reverse<(Time, u32)>>,
}

impl StaticThrottle {
    /// A scheduler for `device`, without accounts.
    pub fn new(device: &DeviceProfile) -> StaticThrottle {
        StaticThrottle {
            bytes_per_second: device.worst_case_runs_per_second * REQUEST_BYTES,
            weight: 0,
            accounts: Vec::new(),
            lines: Vec::new(),
            queues: RequestQueues::default(),
            waiting: BinaryHeap::new(),
        }
    }

    fn set_weight(&mut self, container: usize, weight: u32) {
        let place = &mut self.accounts[container];
        if place.has_asked {
            self.weight = self.weight - u64::from(place.weight) + u64::from(weight);
        }
        place.weight = weight;
    }

    fn is_container(&self, account: AccountId) -> bool {
        account != AccountId::ROOT
            && self.accounts.get(account.index()).is_some_and(|place| place.container == account.0)
    }

    /// How long so many bytes take at a line's cap.
    fn span(&self, line: usize, bytes: u32) -> Span {
        let part = f64::from(self.accounts[line / QUEUES].weight) / self.weight as f64;
        Span::from_secs_f64(f64::from(bytes) / (self.bytes_per_second * part))
    }
}

impl Scheduler for StaticThrottle {
    fn name(&self) -> &'static str {
        "static_throttle"
    }

    fn account_opened(&mut self, _now: Time, account: &Account) {
        let index = account.id.index();
        if self.accounts.len() <= index {
            self.accounts.resize(index + 1, Place::default());
            self.lines
                .resize_with((index + 1) * QUEUES, || ContainerQueue { queue: Queue::EMPTY, release: Time::ZERO });
        }
        let parent = account.parent.unwrap_or(AccountId::ROOT);
        let (container, weight) = match parent {
            AccountId::ROOT => (account.id.0, account.allocation.weight),
            _ => (self.accounts[parent.index()].container, 0),
        };
        self.accounts[index] = Place { container, weight, has_asked: false };
        // The account that had the number before has left nothing to wait for.
        self.lines[index * QUEUES..][..QUEUES].iter_mut().for_each(|line| line.release = Time::ZERO);
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        if self.is_container(account.id) {
            self.set_weight(account.id.index(), account.allocation.weight);
        }
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        if self.is_container(account) {
            self.set_weight(account.index(), 0);
        }
    }

    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        let container = self.accounts[request.session.index()].container as usize;
        if !std::mem::replace(&mut self.accounts[container].has_asked, true) {
            self.weight += u64::from(self.accounts[container].weight);
        }
        let line = container * QUEUES + usize::from(request.operation != Operation::Read);
        let ContainerQueue { queue, release } = &mut self.lines[line];
        if queue.is_empty() {
            self.waiting.push(Reverse((*release, line as u32)));
        }
        self.queues.push(queue, request);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        let Some(&Reverse((release, number))) = self.waiting.peek() else { return Dispatch::Nothing };
        if release > now {
            return Dispatch::NotBefore(release);
        }
        self.waiting.pop();
        let line = number as usize;
        let request = self.queues.pop(&mut self.lines[line].queue).expect("a line that waits has a request");
        let bytes = match request.operation {
            Operation::Flush | Operation::Trim => DATALESS_BYTES,
            _ => request.length,
        };
        let span = self.span(line, bytes);
        let ContainerQueue { queue, release } = &mut self.lines[line];
        *release = (*release).max(now.saturating_sub(CATCH_UP_MAX)) + span;
        if !queue.is_empty() {
            self.waiting.push(Reverse((*release, number)));
        }
        Dispatch::Now(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::disk;
    use plimsoll_core::{AccountKind, Allocation, RequestId};

    const CONTAINER: AccountId = AccountId(1);

    fn open(scheduler: &mut dyn Scheduler, now: Time) {
        let (parent, allocation) = (Some(AccountId::ROOT), Allocation::default());
        let account = Account { id: CONTAINER, parent, name: "a".into(), kind: AccountKind::Session, allocation };
        scheduler.account_opened(now, &account);
    }

    /// When a read of `length` bytes that comes now may go.
    fn release(scheduler: &mut dyn Scheduler, length: u32, now: Time) -> Time {
        scheduler.request_added(now, BlockRequest::new(RequestId(1), CONTAINER, Operation::Read, 0, length, now));
        match scheduler.next(now) {
            Dispatch::Now(_) => now,
            Dispatch::NotBefore(release) => release,
            Dispatch::Nothing => panic!("a request is lost"),
        }
    }

    /// Was seen red without assumed rates: the second read was to go at the end of time.
    #[test]
    fn a_device_without_measurements_is_taken_for_a_slow_one() {
        let unknown = DeviceProfile { worst_case_runs_per_second: 0.0, ..disk(4) };
        let mut scheduler = crate::registry::build("static_throttle", &unknown).unwrap();
        open(&mut *scheduler, Time::ZERO);
        assert_eq!(release(&mut *scheduler, 4096, Time::ZERO), Time::ZERO);
        let second = release(&mut *scheduler, 4096, Time::ZERO).as_secs_f64();
        assert!((0.001..1.0).contains(&second), "{second} s");
    }

    /// Was seen red where the line kept its release: ten seconds.
    #[test]
    fn a_tenant_with_a_used_number_does_not_wait_for_the_former_one() {
        let (mut scheduler, now) = (StaticThrottle::new(&disk(4)), Time::ZERO);
        open(&mut scheduler, now);
        assert_eq!(release(&mut scheduler, 1000 * 4096, now), now);
        scheduler.account_closed(now, CONTAINER);
        open(&mut scheduler, now);
        assert_eq!(release(&mut scheduler, 4096, now), now);
    }
}
