//! What a decision of the executor costs: a request into its queue, a draw, a slice, the request out of it; under the adaptive rule
//! also how long it may run, and what it sees of the run.
//!
//! `cargo bench -p plimsoll-executor`. Goal: 150 ns.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use plimsoll_core::{Span, Time};
use plimsoll_executor::{Adaptive, Arrival, Kind, Policy, Queues, Selector, Waiting};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::hint::black_box;

/// Requests that wait in all three queues.
const DEPTHS: [usize; 2] = [30, 100_000];

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for (name, policy) in [("baseline", Policy::BASELINE), ("combo", Policy::COMBO)] {
        for depth in DEPTHS {
            let mut random = Pcg64::new(1, 0xa02b_dbf7_bb3c_0a7a_c28f_a16a_64ab_f960);
            let (mut queues, mut selector) = (Queues::default(), Selector::new(policy.weights));
            let kinds = [Kind::Read, Kind::Write, Kind::Maintenance, Kind::Other];
            let put = |queues: &mut Queues<u64>, number: u64| {
                let (request, deadline, since) = (number, None, Time::from_nanos(number));
                let kind = kinds[number as usize % kinds.len()];
                queues.put(policy.queue(kind, Arrival::New), Waiting { request, deadline, since });
            };
            (0..depth as u64).for_each(|number| put(&mut queues, number));
            let mut number = 0;
            group.bench_function(format!("{name}/{depth}"), |bencher| {
                bencher.iter(|| {
                    number += 1;
                    put(&mut queues, number);
                    let depths = queues.depths();
                    let queue = selector.draw(depths, random.next_u32()).expect("somebody waits");
                    black_box((policy.slice(queue, depths), queues.take(queue)))
                });
            });
        }
    }
    for depth in DEPTHS {
        adaptive(&mut group, depth);
    }
    group.finish();
}

/// Writes are preempted, all else is done after its run, so that both queues are in use.
fn adaptive(group: &mut BenchmarkGroup<'_, WallTime>, depth: usize) {
    let mut random = Pcg64::new(1, 0xa02b_dbf7_bb3c_0a7a_c28f_a16a_64ab_f960);
    let mut adaptive = Adaptive::default();
    let (mut queues, mut selector) = (Queues::default(), Selector::new(Adaptive::POLICY.weights));
    let kinds = [Kind::Read, Kind::Write, Kind::Maintenance, Kind::Other];
    let put = |adaptive: &Adaptive, queues: &mut Queues<Kind>, number: u64| {
        let kind = kinds[number as usize % kinds.len()];
        let waiting = Waiting { request: kind, deadline: None, since: Time::from_nanos(number) };
        queues.put(adaptive.queue(kind, Arrival::New), waiting);
    };
    (0..depth as u64).for_each(|number| put(&adaptive, &mut queues, number));
    let mut number = 0;
    group.bench_function(format!("adaptive/{depth}"), |bencher| {
        bencher.iter(|| {
            number += 1;
            put(&adaptive, &mut queues, number);
            let depths = queues.depths();
            let queue = selector.draw(depths, random.next_u32()).expect("somebody waits");
            let slice = adaptive.slice(queue, depths).min(adaptive.run_max(depths));
            let Some(Waiting { request: kind, .. }) = queues.take(queue) else { return Span::ZERO };
            let ran = Span::from_nanos(50_000 + 1000 * (number % 64) * kind as u64);
            adaptive.observe(kind, Arrival::New, ran, (kind == Kind::Write).then_some(Arrival::Preempted));
            black_box(slice)
        });
    });
}

criterion_group!(benches, decide);
criterion_main!(benches);
