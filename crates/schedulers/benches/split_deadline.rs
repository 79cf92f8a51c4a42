//! What a block request, a call and a page event cost `split_deadline` at 10 and 1,000 accounts, each with an fsync under way
//! or held and with dirty pages.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::split_deadline::{SplitDeadline, Writeback};
use std::hint::black_box;

/// Virtual time between two events: 100,000 a second.
const GAP: Span = Span::from_micros(10);
const PAGE_BYTES: u64 = 4096;
/// Dirty pages of each account when it begins.
const DIRTY_PAGES: u64 = 16;

struct Host {
    scheduler: SplitDeadline,
    now: Time,
    number: u64,
    accounts: u64,
}

impl Host {
    /// Each account has dirty pages, a request queued and an fsync, held or under way.
    fn new(accounts: u64) -> Host {
        let device = DeviceProfile {
            name: "nvme".into(),
            capacity_bytes: 1 << 40,
            worst_case_runs_per_second: 200_000.0,
            sequential_bytes_per_second: 3e9,
            is_rotational: false,
            outstanding_max: 64,
        };
        let mut scheduler = SplitDeadline::new(&device, Writeback::Own);
        for id in 1..=accounts {
            let fsync = Some(Span::from_millis(5 + id % 100));
            let deadlines = Deadlines { fsync, ..Deadlines::default() };
            let (parent, name, kind) = (Some(AccountId::ROOT), id.to_string(), AccountKind::Session);
            let allocation = Allocation { deadlines, ..Allocation::default() };
            let account = Account { id: AccountId(id as u32), parent, name, kind, allocation };
            scheduler.account_opened(Time::ZERO, &account);
        }
        let mut host = Host { scheduler, now: Time::ZERO, number: accounts, accounts };
        for account in 1..=accounts {
            (0..DIRTY_PAGES).for_each(|_| host.dirty(account));
            let call = host.call(account, CallKind::Fsync, account);
            host.scheduler.call_entered(host.now, &call);
            let request = host.request(account, Operation::Read);
            host.scheduler.request_added(host.now, request);
        }
        host
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.now += GAP;
        self.number.wrapping_mul(7919) % self.accounts + 1
    }

    fn place(&self) -> u64 {
        (self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) / PAGE_BYTES * PAGE_BYTES
    }

    fn call(&self, account: u64, kind: CallKind, id: u64) -> Call {
        let (file, thread) = (FileId(account), ThreadId(account as u32));
        let (id, account, entered) = (CallId(id), AccountId(account as u32), self.now);
        Call { id, account, thread, kind, file, offset: 0, length: PAGE_BYTES, entered }
    }

    fn request(&self, account: u64, operation: Operation) -> BlockRequest {
        let (id, session) = (RequestId(self.number), AccountId(account as u32));
        let request = BlockRequest::new(id, session, operation, self.place(), PAGE_BYTES as u32, self.now);
        let file = Some(FileId(account));
        BlockRequest { file, causes: CauseSet::of(AccountId(account.min(60) as u32)), ..request }
    }

    fn event(&self, account: u64) -> PageEvent {
        let (causes, previous) = (CauseSet::of(AccountId(account.min(60) as u32)), CauseSet::EMPTY);
        PageEvent { file: FileId(account), offset: self.place(), length: PAGE_BYTES, causes, previous }
    }

    fn dirty(&mut self, account: u64) {
        let event = self.event(account);
        self.scheduler.pages_dirtied(self.now, &event);
    }

    /// A page is dirtied and freed again: two events.
    fn page_events(&mut self) {
        let account = self.next();
        let event = self.event(account);
        self.scheduler.pages_dirtied(self.now, black_box(&event));
        self.scheduler.pages_freed(self.now, black_box(&event));
    }

    /// A write of a page enters and returns.
    fn write_call(&mut self) {
        let account = self.next();
        let call = self.call(account, CallKind::Write, self.number);
        black_box(self.scheduler.call_entered(self.now, black_box(&call)));
        self.scheduler.call_returned(self.now, &call);
    }

    /// An fsync of a clean file enters, goes on and returns.
    fn fsync_call(&mut self) {
        let account = self.next();
        let call = Call { file: FileId(1 << 32 | account), ..self.call(account, CallKind::Fsync, self.number) };
        black_box(self.scheduler.call_entered(self.now, black_box(&call)));
        self.scheduler.call_returned(self.now, &call);
    }

    /// A request is added, and another dispatched and completed.
    fn request_turn(&mut self) {
        let account = self.next();
        let operation = if self.number.is_multiple_of(2) { Operation::Read } else { Operation::Write };
        let request = self.request(account, operation);
        self.scheduler.request_added(self.now, request);
        if let Dispatch::Now(request) = black_box(self.scheduler.next(self.now)) {
            let (id, session, runs) = (request.id, request.session, request.runs());
            let completion = Completion { id, session, runs, service: GAP, succeeded: true };
            self.scheduler.request_completed(self.now, &completion);
        }
    }
}

/// What is measured.
type Turn = fn(&mut Host);

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("split_deadline");
    for accounts in [10, 1_000] {
        let turns: [(&str, Turn); 4] = [
            ("request: add+dispatch+complete", Host::request_turn),
            ("page: dirtied+freed", Host::page_events),
            ("write: enter+return", Host::write_call),
            ("fsync: enter+return", Host::fsync_call),
        ];
        for (name, turn) in turns {
            let mut host = Host::new(accounts);
            group.bench_function(BenchmarkId::new(name, accounts), |bencher| bencher.iter(|| turn(&mut host)));
        }
    }
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
