//! What a decision of the executor costs: a request into its queue, a draw, a slice, the request out of it.
//!
//! `cargo bench -p plimsoll-executor`. Goal: 150 ns.

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll_core::Time;
use plimsoll_executor::{Arrival, Kind, Policy, Queues, Selector, Waiting};
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
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
