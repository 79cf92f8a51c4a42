//! What a request costs on the executor's threads, beside calling its handler; and what two threads do of what one
//! does.
//!
//! `cargo bench -p plimsoll-executor --bench run`. Goals: at most 1 us more than the call; two threads 1.8 times one.
//!
//! Requests of `none` do nothing, and come while they are served. Those of `work` compute for some 7 us, and all wait
//! before the first is served, so that only the service threads need a processor meanwhile. `called` is the same work
//! without an executor: on two threads it is what this machine's processors do at the best.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_executor::{Executor, ExecutorConfig, Kind, Policy, Rules};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Barrier};
use std::thread::Thread;
use std::time::{Duration, Instant};

const REQUESTS: usize = 20_000;
const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Other, Kind::Maintenance];
/// Of work, each some 1.4 ns.
const ROUNDS: u32 = 5_000;

fn compute(rounds: u32) {
    let mut word = 1_u64;
    for _ in 0..rounds {
        word = black_box(word.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    black_box(word);
}

async fn nothing(left: Arc<AtomicUsize>) {
    left.fetch_sub(1, Release);
}

fn none(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("none");
    group.throughput(Throughput::Elements(REQUESTS as u64)).sample_size(20);
    group.bench_function("called", |bencher| {
        bencher.iter(|| {
            let left = Arc::new(AtomicUsize::new(REQUESTS));
            for _ in 0..REQUESTS {
                compute(0);
                left.fetch_sub(1, Release);
            }
            left.load(Acquire)
        });
    });
    for threads in [1, 2] {
        let rules = Rules::Fixed(Policy::COMBO);
        let executor = Executor::start(ExecutorConfig { threads, rules, requests_max: REQUESTS, seed: 1 });
        let executor = executor.expect("threads can be started");
        group.bench_function(format!("{threads} threads"), |bencher| {
            bencher.iter(|| {
                let left = Arc::new(AtomicUsize::new(REQUESTS));
                for number in 0..REQUESTS {
                    let mut request = nothing(left.clone());
                    while let Err(full) = executor.spawn(KINDS[number % KINDS.len()], None, request) {
                        request = full.request;
                    }
                }
                while left.load(Acquire) > 0 {
                    std::thread::yield_now();
                }
            });
        });
    }
    group.finish();
}

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// The request that ends the last of `left` wakes the benchmark.
async fn work(left: Arc<AtomicUsize>, waiter: Thread) {
    compute(ROUNDS);
    if left.fetch_sub(1, AcqRel) == 1 {
        waiter.unpark();
    }
}

/// Lets every thread of the executor stop, queues all requests, and lets the threads go on; answers the time from there
/// to the end.
fn served(executor: &Executor<Request>, threads: usize) -> Duration {
    let gate = Arc::new(Barrier::new(threads + 1));
    for _ in 0..threads {
        let gate = gate.clone();
        let stop = async move {
            gate.wait();
            gate.wait();
        };
        let stopped = executor.spawn(Kind::Read, None, Box::pin(stop));
        assert!(stopped.is_ok(), "there is room");
    }
    gate.wait();
    let left = Arc::new(AtomicUsize::new(REQUESTS));
    for number in 0..REQUESTS {
        let request = Box::pin(work(left.clone(), std::thread::current()));
        assert!(executor.spawn(KINDS[number % KINDS.len()], None, request).is_ok(), "there is room");
    }
    let begun = now();
    gate.wait();
    while left.load(Acquire) > 0 {
        std::thread::park();
    }
    begun.elapsed()
}

/// The same work, divided between threads that share nothing.
fn called(threads: usize) -> Duration {
    let begun = now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..REQUESTS / threads).for_each(|_| compute(ROUNDS)));
        }
    });
    begun.elapsed()
}

fn scaling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("work");
    group.throughput(Throughput::Elements(REQUESTS as u64)).sample_size(10);
    for threads in [1, 2] {
        group.bench_function(format!("called/{threads} threads"), |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| called(threads)).sum());
        });
        let (rules, requests_max) = (Rules::Fixed(Policy::COMBO), REQUESTS + threads);
        let executor = Executor::start(ExecutorConfig { threads, rules, requests_max, seed: 1 });
        let executor = executor.expect("threads can be started");
        group.bench_function(format!("{threads} threads"), |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| served(&executor, threads)).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, none, scaling);
criterion_main!(benches);
