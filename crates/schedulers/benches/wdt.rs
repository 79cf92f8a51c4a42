//! What an admission costs: uncontended, with many containers, and with two threads.
//!
//! Windows end as often as they would on a drive that does 740,000 requests a second, and bring as many credits as that
//! takes; among several threads, a refused thread ends the window. The time of several threads is that of the thread
//! that took longest.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::*;
use plimsoll_schedulers::wdt::Wdt;
use plimsoll_schedulers::wdt::throttle::{CREDITS_PER_SECTOR, Pocket, Throttle};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests of a window: 740,000 a second.
const WINDOW_REQUESTS: u64 = 74_000;
/// Sectors of a request.
const SECTORS: u32 = 8;
/// Credits a window brings, of those that are used in it.
const PLENTY: f64 = 1.5;

/// So many containers of one weight, of which `asking` share what a window brings.
fn throttle(containers: usize, asking: usize) -> (Throttle, f64) {
    let mut throttle = Throttle::default();
    (0..containers).for_each(|container| throttle.open(container, 1));
    let sectors = WINDOW_REQUESTS as f64 * f64::from(SECTORS) * PLENTY / asking as f64;
    let unit = sectors * CREDITS_PER_SECTOR as f64;
    throttle.end_windows(1, unit);
    (throttle, unit)
}

/// `requests` admissions of one thread, over the containers 0, 1, ..., `asking` - 1 in turn.
fn admit(throttle: &Throttle, pocket: &mut Pocket, asking: usize, requests: u64, unit: f64) {
    let mut left = WINDOW_REQUESTS;
    for number in 0..requests {
        let container = (number as usize).wrapping_mul(7919) % asking;
        black_box(pocket.admit(throttle, container, SECTORS));
        left -= 1;
        if left == 0 {
            left = WINDOW_REQUESTS;
            throttle.end_windows(1, unit);
        }
    }
}

/// `requests` admissions of one thread for one container. A refused thread ends the window: were it always the same
/// thread, the other would count refusals whenever that one has to wait for a processor.
fn admit_one(throttle: &Throttle, pocket: &mut Pocket, container: usize, requests: u64, unit: f64) {
    for _ in 0..requests {
        while !black_box(pocket.admit(throttle, container, SECTORS)) {
            throttle.end_windows(1, unit);
        }
    }
}

/// What `work` takes on so many threads that begin together.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let here = AtomicUsize::new(0);
    let one = |number: usize| {
        here.fetch_add(1, Ordering::SeqCst);
        while here.load(Ordering::SeqCst) < threads {
            spin_loop();
        }
        let start = Instant::now();
        work(number);
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    })
}

fn threads(throttle: &Throttle, unit: f64, containers: &[usize], requests: u64) -> Duration {
    together(containers.len(), |number| {
        let mut pocket = Pocket::new(containers.len());
        admit_one(throttle, &mut pocket, containers[number], requests, unit);
    })
}

/// A counter on a line of memory that no other thread can have.
#[repr(align(128))]
struct Private(i64);

/// The control: as [`admit_one`], with nothing that threads could share, so that what two of them do less than twice is
/// the machine's. A pocket is filled as often as it is there.
fn count(requests: u64) {
    let mut credits = Box::new(Private(0));
    let handful = (WINDOW_REQUESTS as f64 * PLENTY) as i64 / 256;
    for _ in 0..requests {
        let credits = black_box(&mut credits.0);
        if *credits < 1 {
            *credits += handful;
        }
        *credits -= 1;
    }
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wdt/admit");
    group.throughput(Throughput::Elements(1));
    for (containers, asking) in [(4, 4), (100_000, 4), (1_000, 1_000), (100_000, 100_000)] {
        let (throttle, unit) = throttle(containers, asking);
        let mut pocket = Pocket::new(containers);
        group.bench_function(BenchmarkId::new("one_thread", format!("{asking} of {containers}")), |bencher| {
            bencher.iter_custom(|requests| {
                #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
                let start = Instant::now();
                admit(&throttle, &mut pocket, asking, requests, unit);
                start.elapsed()
            });
        });
    }
    for (name, containers) in [("1", &[0][..]), ("2, a container each", &[0, 1]), ("2, one container", &[0, 0])] {
        let (throttle, unit) = throttle(2, 1);
        group.throughput(Throughput::Elements(containers.len() as u64));
        group.bench_function(BenchmarkId::new("threads", name), |bencher| {
            bencher.iter_custom(|requests| threads(&throttle, unit, containers, requests));
        });
    }
    for number in [1, 2] {
        group.throughput(Throughput::Elements(number));
        group.bench_function(BenchmarkId::new("control", number), |bencher| {
            bencher.iter_custom(|requests| together(number as usize, |_| count(requests)));
        });
    }
    group.finish();
}

/// The whole scheduler: one request added, dispatched and completed.
fn scheduler(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wdt/add+dispatch+complete");
    group.throughput(Throughput::Elements(1));
    for containers in [10u32, 1_000, 100_000] {
        let device = plimsoll_devices::build("nvme", 1).unwrap().profile().clone();
        let mut scheduler = Wdt::new(&device);
        let tree = AccountTree::new(device);
        scheduler.account_opened(Time::ZERO, tree.get(AccountId::ROOT).unwrap());
        for id in 1..=containers {
            let (id, parent, kind) = (AccountId(id), Some(AccountId::ROOT), AccountKind::Session);
            let allocation = Allocation::default();
            scheduler.account_opened(Time::ZERO, &Account { id, parent, name: id.0.to_string(), kind, allocation });
        }
        let (mut now, mut number) = (Time::ZERO, 0u32);
        group.bench_function(BenchmarkId::new("all_active", containers), |bencher| {
            bencher.iter(|| {
                number = number.wrapping_add(1);
                now += Span::from_nanos(1350);
                let session = AccountId(number.wrapping_mul(7919) % containers + 1);
                let id = RequestId(u64::from(number));
                scheduler.request_added(now, BlockRequest::new(id, session, Operation::Read, 0, 4096, now));
                if let Dispatch::Now(request) = black_box(scheduler.next(now)) {
                    let (id, session, service) = (request.id, request.session, Span::from_micros(80));
                    let completion = Completion { id, session, runs: 1, service, succeeded: true };
                    scheduler.request_completed(now, &completion);
                }
            });
        });
    }
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(20); targets = benches, scheduler }
criterion_main!(all);
