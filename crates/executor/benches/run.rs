//! What a request costs on the executor's threads, beside calling its handler; and what two threads do of what one does.
//!
//! `cargo bench -p plimsoll-executor --bench run`. Goals: at most 1 us more than the call; two threads 1.8 times one. A request
//! here computes a checksum of a block, and one of `none` does nothing.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_executor::{Executor, ExecutorConfig, Kind, Policy};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

const REQUESTS: usize = 20_000;
const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Other, Kind::Maintenance];

/// The work of a request: so many rounds of mixing a word.
async fn handle(rounds: u32, left: Arc<AtomicUsize>) {
    compute(rounds);
    left.fetch_sub(1, Release);
}

fn compute(rounds: u32) {
    let mut word = 1_u64;
    for _ in 0..rounds {
        word = black_box(word.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    black_box(word);
}

fn run(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("run");
    group.throughput(Throughput::Elements(REQUESTS as u64)).sample_size(20);
    for (name, rounds) in [("none", 0), ("work", 5_000)] {
        group.bench_function(format!("{name}/called"), |bencher| {
            bencher.iter(|| {
                let left = Arc::new(AtomicUsize::new(REQUESTS));
                for _ in 0..REQUESTS {
                    compute(rounds);
                    left.fetch_sub(1, Release);
                }
                left.load(Acquire)
            });
        });
        for threads in [1, 2] {
            let config = ExecutorConfig { threads, policy: Policy::COMBO, requests_max: REQUESTS, seed: 1 };
            let executor = Executor::start(config).expect("threads can be started");
            group.bench_function(format!("{name}/{threads} threads"), |bencher| {
                bencher.iter(|| {
                    let left = Arc::new(AtomicUsize::new(REQUESTS));
                    for number in 0..REQUESTS {
                        let mut request = handle(rounds, left.clone());
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
    }
    group.finish();
}

criterion_group!(benches, run);
criterion_main!(benches);
