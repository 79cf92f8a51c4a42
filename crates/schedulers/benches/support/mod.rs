//! What the benchmarks share: a scheduler with many accounts, and a host that hands it events of one after the other.

#![allow(dead_code, reason = "each benchmark uses what it needs")]

use plimsoll_core::*;
use std::hint::black_box;

/// Virtual time between two events: 100,000 a second.
pub const GAP: Span = Span::from_micros(10);
pub const PAGE_BYTES: u64 = 4096;
/// A prime number, so that each next event is of an account far from the last one's.
const SPREAD: u64 = 7919;
const DEVICE_BYTES: u64 = 1 << 40;

/// A fast drive, so that the device never bounds what is measured.
pub fn nvme() -> DeviceProfile {
    DeviceProfile {
        name: "nvme".into(),
        capacity_bytes: DEVICE_BYTES,
        worst_case_runs_per_second: 200_000.0,
        sequential_bytes_per_second: 3e9,
        sequential_write_bytes_per_second: 3e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 64,
    }
}

/// A disk: its costs take most to work out.
pub fn disk() -> DeviceProfile {
    DeviceProfile {
        name: "disk".into(),
        worst_case_runs_per_second: 114.5,
        sequential_bytes_per_second: 138e6,
        sequential_write_bytes_per_second: 138e6,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max: 10,
        ..nvme()
    }
}

/// Where the `number`-th event is: anywhere, on a whole page.
pub fn place(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % DEVICE_BYTES / PAGE_BYTES * PAGE_BYTES
}

/// Opens an account.
pub fn open(scheduler: &mut impl Scheduler, number: u32, parent: AccountId, kind: AccountKind, allocation: Allocation) {
    let (id, name) = (AccountId(number), number.to_string());
    scheduler.account_opened(Time::ZERO, &Account { id, parent: Some(parent), name, kind, allocation });
}

/// Dispatches what is next, and completes it.
pub fn dispatch_and_complete(scheduler: &mut impl Scheduler, now: Time) {
    if let Dispatch::Now(request) = black_box(scheduler.next(now)) {
        let (id, session, runs) = (request.id, request.session, request.runs());
        scheduler.request_completed(now, &Completion { id, session, runs, service: GAP, succeeded: true });
    }
}

/// A host with accounts 1, 2, 3, … below the root, each with a file of its own.
pub struct Host<S> {
    pub scheduler: S,
    pub now: Time,
    /// Of the last event.
    pub number: u64,
    accounts: u64,
}

impl<S: Scheduler> Host<S> {
    pub fn new(mut scheduler: S, accounts: u32, allocation: impl Fn(u32) -> Allocation) -> Host<S> {
        for number in 1..=accounts {
            open(&mut scheduler, number, AccountId::ROOT, AccountKind::Session, allocation(number));
        }
        Host { scheduler, now: Time::ZERO, number: 0, accounts: u64::from(accounts) }
    }

    /// The next event's account.
    pub fn advance(&mut self) -> AccountId {
        self.number += 1;
        self.now += GAP;
        AccountId((self.number.wrapping_mul(SPREAD) % self.accounts) as u32 + 1)
    }

    pub fn call(&self, account: AccountId, kind: CallKind) -> Call {
        let (id, thread, file) = (CallId(self.number), ThreadId(account.0), FileId(u64::from(account.0)));
        Call { id, account, thread, kind, file, offset: 0, length: PAGE_BYTES, entered: self.now }
    }

    /// A page of the account's file becomes dirty. Making the set of causes is part of what is measured.
    pub fn page(&self, account: AccountId) -> PageEvent {
        let (file, offset, length) = (FileId(u64::from(account.0)), place(self.number), PAGE_BYTES);
        PageEvent { file, offset, length, causes: CauseSet::of(account), previous: CauseSet::EMPTY }
    }

    /// A request of the next account is added.
    pub fn add(&mut self, operation: Operation) {
        let account = self.advance();
        let (id, offset) = (RequestId(self.number), place(self.number));
        let request = BlockRequest::new(id, account, operation, offset, PAGE_BYTES as u32, self.now);
        let (file, causes) = (Some(FileId(u64::from(account.0))), CauseSet::of(account));
        self.scheduler.request_added(self.now, BlockRequest { file, causes, ..request });
    }

    /// A request is added, and another dispatched and completed.
    pub fn request(&mut self, operation: Operation) {
        self.add(operation);
        dispatch_and_complete(&mut self.scheduler, self.now);
    }

    /// A call enters, goes on and returns.
    pub fn enter_and_return(&mut self, call: &Call) {
        assert_eq!(self.scheduler.call_entered(self.now, black_box(call)), CallDecision::Admit);
        self.scheduler.call_returned(self.now, call);
    }

    /// A write of a page: see [`enter_and_return`](Self::enter_and_return).
    pub fn write_call(&mut self) {
        let account = self.advance();
        self.enter_and_return(&self.call(account, CallKind::Write));
    }

    /// A page is dirtied and freed again: two events.
    pub fn page_events(&mut self) {
        let account = self.advance();
        let mut event = self.page(account);
        self.scheduler.pages_dirtied(self.now, black_box(&event));
        event.previous = event.causes.clone();
        self.scheduler.pages_freed(self.now, black_box(&event));
    }
}
