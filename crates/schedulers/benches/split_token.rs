//! What `split_token` costs among a thousand limited accounts: a request, a call, a stretch of pages dirtied and freed.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::split_token::SplitToken;
use std::hint::black_box;

const SESSIONS: u32 = 1_000;
/// Virtual time between two events.
const GAP: Span = Span::from_micros(10);
/// Never used up at that pace: nobody waits.
const LIMIT: Rate = Rate::BytesPerSecond(1e15);

fn open() -> SplitToken {
    let device = DeviceProfile {
        name: "disk".into(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: 114.5,
        sequential_bytes_per_second: 138e6,
        is_rotational: true,
        outstanding_max: 10,
    };
    let mut scheduler = SplitToken::new(&device);
    let root = AccountTree::new(device);
    scheduler.account_opened(Time::ZERO, root.get(AccountId::ROOT).unwrap());
    for number in 1..=SESSIONS {
        let allocation = Allocation { limit: Some(LIMIT), ..Allocation::default() };
        let (id, parent) = (AccountId(number), Some(AccountId::ROOT));
        let account = Account { id, parent, name: number.to_string(), kind: AccountKind::Session, allocation };
        scheduler.account_opened(Time::ZERO, &account);
    }
    scheduler
}

fn session(number: u64) -> AccountId {
    AccountId(1 + (number.wrapping_mul(7919) % u64::from(SESSIONS)) as u32)
}

fn place(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 40) / 4096 * 4096
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("split_token");
    group.throughput(Throughput::Elements(1));
    let (mut scheduler, mut number, mut now) = (open(), 0u64, Time::ZERO);
    group.bench_function("request", |bencher| {
        bencher.iter(|| {
            (number, now) = (number + 1, now + GAP);
            let id = RequestId(number);
            let request = BlockRequest::new(id, session(number), Operation::Write, place(number), 4096, now);
            scheduler.request_added(now, BlockRequest { file: Some(FileId(number % 512)), ..request });
            if let Dispatch::Now(request) = black_box(scheduler.next(now)) {
                let (id, session, runs) = (request.id, request.session, request.runs());
                let completion = Completion { id, session, runs, service: GAP, succeeded: true };
                scheduler.request_completed(now, &completion);
            }
        });
    });
    group.bench_function("call", |bencher| {
        let mut released = Vec::new();
        bencher.iter(|| {
            (number, now) = (number + 1, now + GAP);
            let (id, account, thread, file) = (CallId(number), session(number), ThreadId(1), FileId(number % 512));
            let kind = CallKind::Write;
            let call = Call { id, account, thread, kind, file, offset: 0, length: 4096, entered: now };
            black_box(scheduler.call_entered(now, &call));
            scheduler.released_calls(now, &mut released);
            scheduler.call_returned(now, &call);
        });
    });
    group.bench_function("pages dirtied and freed", |bencher| {
        bencher.iter(|| {
            (number, now) = (number + 1, now + GAP);
            let (file, offset, length) = (FileId(number % 512), place(number), 4096);
            // Below 64 a set of causes has no memory of its own to be allocated here.
            let causes = CauseSet::of(AccountId(1 + number as u32 % 63));
            let mut event = PageEvent { file, offset, length, causes, previous: CauseSet::EMPTY };
            scheduler.pages_dirtied(now, black_box(&event));
            event.previous = event.causes.clone();
            scheduler.pages_freed(now, black_box(&event));
        });
    });
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches }
criterion_main!(all);
