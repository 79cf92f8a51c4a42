//! What a decision costs: one request added and one dispatched and completed, at 10 to a million sessions.
//!
//! `all_active`: every session has a request queued all the time. `one_percent`: one session in a hundred ever asks,
//! and each request finds its session idle, so that activation and deactivation are part of the cost. `depth`: one
//! session has so many requests queued. `open+turn+close`: a session more is opened, asks once, is served and closed
//! again.

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::zygaria::Zygaria;
use support::{GAP, dispatch_and_complete, nvme, place};

const SESSIONS_PER_POOL: usize = 100;
const SESSIONS: [usize; 5] = [10, 1_000, 10_000, 100_000, 1_000_000];

/// A scheduler and its sessions, a hundred to a pool; a third has a reserve, a third a limit that seldom holds.
fn open(sessions: usize) -> (Zygaria, Vec<AccountId>) {
    let device = nvme();
    let mut scheduler = Zygaria::new(&device);
    let root = AccountTree::new(device);
    scheduler.account_opened(Time::ZERO, root.get(AccountId::ROOT).unwrap());
    let mut number = 0;
    let mut open = |parent, kind, allocation| {
        number += 1;
        support::open(&mut scheduler, number, parent, kind, allocation);
        AccountId(number)
    };
    let mut ids = Vec::new();
    for _ in 0..sessions.div_ceil(SESSIONS_PER_POOL) {
        let pool = open(AccountId::ROOT, AccountKind::Pool, Allocation::default());
        for session in 0..SESSIONS_PER_POOL.min(sessions) {
            let part = 100_000.0 / sessions as f64;
            let mut allocation = Allocation::default();
            match session % 3 {
                0 => allocation.reserve = Rate::RunsPerSecond(part / 2.0),
                1 => allocation.limit = Some(Rate::RunsPerSecond(part * 3.0)),
                _ => {}
            }
            ids.push(open(pool, AccountKind::Session, allocation));
        }
    }
    (scheduler, ids)
}

/// One request through the scheduler: added, whatever is due dispatched, and completed.
fn turn(scheduler: &mut Zygaria, now: Time, number: u64, session: AccountId) {
    let request = BlockRequest::new(RequestId(number), session, Operation::Read, place(number), 4096, now);
    scheduler.request_added(now, request);
    dispatch_and_complete(scheduler, now);
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("zygaria/add+dispatch+complete");
    group.throughput(Throughput::Elements(1));
    for sessions in SESSIONS {
        for (name, stride, queued) in [("all_active", 1, 1), ("one_percent", 100.min(sessions), 0)] {
            let (mut scheduler, ids) = open(sessions);
            let asking: Vec<_> = ids.iter().copied().step_by(stride).collect();
            let (mut now, mut number) = (Time::ZERO, 0u64);
            for &session in asking.iter().filter(|_| queued > 0) {
                number += 1;
                let request = BlockRequest::new(RequestId(number), session, Operation::Read, number << 20, 4096, now);
                scheduler.request_added(now, request);
            }
            group.bench_function(BenchmarkId::new(name, sessions), |bencher| {
                bencher.iter(|| {
                    number += 1;
                    now += GAP;
                    let spread = (number as usize).wrapping_mul(7919) % asking.len();
                    turn(&mut scheduler, now, number, asking[spread]);
                });
            });
        }
    }
    group.finish();
}

/// A decision does not depend on how many requests wait.
fn depth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("zygaria/add+dispatch+complete");
    for depth in [1, 100, 10_000] {
        let (mut scheduler, ids) = open(1_000);
        let mut number = 0u64;
        for &session in ids.iter().chain(std::iter::repeat_n(&ids[7], depth - 1)) {
            number += 1;
            let request =
                BlockRequest::new(RequestId(number), session, Operation::Read, number << 20, 4096, Time::ZERO);
            scheduler.request_added(Time::ZERO, request);
        }
        let mut now = Time::ZERO;
        group.bench_function(BenchmarkId::new("depth", depth), |bencher| {
            bencher.iter(|| {
                number += 1;
                now += GAP;
                turn(&mut scheduler, now, number, ids[number as usize * 7919 % ids.len()]);
            });
        });
    }
    group.finish();
}

/// A tenant more among so many that are idle: opened in the host's tree and in the scheduler, served once, closed.
fn opening(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("zygaria/open+turn+close");
    for sessions in SESSIONS {
        let (mut scheduler, _) = open(sessions);
        let mut tree = AccountTree::new(nvme());
        let kind = AccountKind::Session;
        (0..sessions.div_ceil(SESSIONS_PER_POOL) + sessions).for_each(|number| {
            tree.open(AccountId::ROOT, &number.to_string(), kind, Allocation::default()).unwrap();
        });
        let (mut now, mut number) = (Time::ZERO, 0u64);
        group.bench_function(BenchmarkId::from_parameter(sessions), |bencher| {
            bencher.iter(|| {
                number += 1;
                now += GAP;
                let id = tree.open(AccountId::ROOT, "one more", kind, Allocation::default()).unwrap();
                scheduler.account_opened(now, tree.get(id).unwrap());
                turn(&mut scheduler, now, number, id);
                scheduler.account_closed(now, id);
                tree.close(id).unwrap();
            });
        });
    }
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(30); targets = benches, depth, opening }
criterion_main!(all);
