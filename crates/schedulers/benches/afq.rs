//! What `afq` costs at 1,000 accounts that all want something: a read that is added, dispatched and completed; a write
//! by the flusher; a call that enters and returns; a page that becomes dirty.
//!
//! Goals: 300 ns a block request, 150 ns a call or a page event.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::afq::Afq;
use std::hint::black_box;

const ACCOUNTS: u32 = 1_000;
/// Virtual time between two events.
const GAP: Span = Span::from_micros(10);

/// A scheduler, its accounts at all levels, and what was done so far.
struct Bench {
    afq: Afq,
    now: Time,
    number: u64,
}

impl Bench {
    fn new() -> Bench {
        let device = DeviceProfile {
            name: "nvme".into(),
            capacity_bytes: 1 << 40,
            worst_case_runs_per_second: 200_000.0,
            sequential_bytes_per_second: 3e9,
            is_rotational: false,
            outstanding_max: 64,
        };
        let mut afq = Afq::new(&device);
        for number in 1..=ACCOUNTS {
            let allocation = Allocation { priority: Priority::Level((number % 8) as u8), ..Allocation::default() };
            let (id, name, kind) = (AccountId(number), number.to_string(), AccountKind::Session);
            afq.account_opened(Time::ZERO, &Account { id, parent: Some(AccountId::ROOT), name, kind, allocation });
        }
        Bench { afq, now: Time::ZERO, number: 0 }
    }

    /// The next event's number and its account.
    fn advance(&mut self) -> (u64, AccountId) {
        self.number += 1;
        self.now += GAP;
        (self.number, AccountId((self.number.wrapping_mul(7919) % u64::from(ACCOUNTS)) as u32 + 1))
    }

    fn add(&mut self, operation: Operation) {
        let (number, account) = self.advance();
        let offset = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40);
        let request = BlockRequest::new(RequestId(number), account, operation, offset, 4096, self.now);
        let file = Some(FileId(u64::from(account.0)));
        self.afq.request_added(self.now, BlockRequest { causes: CauseSet::of(account), file, ..request });
    }

    fn request(&mut self, operation: Operation) {
        self.add(operation);
        if let Dispatch::Now(request) = black_box(self.afq.next(self.now)) {
            let (id, session) = (request.id, request.session);
            let completion = Completion { id, session, runs: 1, service: GAP, succeeded: true };
            self.afq.request_completed(self.now, &completion);
        }
    }

    fn call(&mut self) {
        let (number, account) = self.advance();
        let (id, file, thread) = (CallId(number), FileId(u64::from(account.0)), ThreadId(account.0));
        let entered = self.now;
        let call = Call { id, account, thread, kind: CallKind::Write, file, offset: 0, length: 4096, entered };
        if black_box(self.afq.call_entered(self.now, &call)) == CallDecision::Admit {
            self.afq.call_returned(self.now, &call);
        }
    }

    fn dirty(&mut self) {
        let (number, account) = self.advance();
        let (file, causes) = (FileId(u64::from(account.0)), CauseSet::of(account));
        let event = PageEvent { file, offset: number << 12, length: 4096, causes, previous: CauseSet::EMPTY };
        self.afq.pages_dirtied(self.now, black_box(&event));
    }
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("afq/1000");
    group.throughput(Throughput::Elements(1));
    let mut reads = Bench::new();
    (0..ACCOUNTS).for_each(|_| reads.add(Operation::Read));
    group.bench_function("read", |bencher| bencher.iter(|| reads.request(Operation::Read)));
    let mut writes = Bench::new();
    group.bench_function("write", |bencher| bencher.iter(|| writes.request(Operation::Write)));
    let mut calls = Bench::new();
    group.bench_function("call", |bencher| bencher.iter(|| calls.call()));
    let mut pages = Bench::new();
    group.bench_function("page", |bencher| bencher.iter(|| pages.dirty()));
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
