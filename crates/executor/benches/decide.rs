//! What a decision of the executor costs: a request into its queue, a draw, a slice, the request out of it; under the
//! adaptive rule also how long it may run, and what it sees of the run.
//!
//! `cargo bench -p plimsoll-executor --bench decide`. Goal: 150 ns.
//!
//! `decide` has the queues of one thread, as the simulator has them. `threads` has those that service threads share,
//! with their clock: what comes to a queue is stamped, and so is the turn. `alone`: one thread does both; `beside
//! another`: a second one does the same at the same queues meanwhile, as often as it can, which is worse than service
//! threads ever are to each other, since they run something in between; the time is that of one of both.

#[path = "../src/threads/clock.rs"]
mod clock;
#[path = "../src/threads/lines.rs"]
mod lines;
/// What the queues of threads are made of.
mod queues {
    pub(crate) use plimsoll_executor::{Queues, URGENT_IN_A_ROW_MAX, Waiting};
}

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use lines::Lines;
use plimsoll_core::{Span, Time};
use plimsoll_executor::{Adaptive, Arrival, Kind, LowSorts, Policy, QUEUES, Queue, Queues, Rules, Selector, Waiting};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

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
                    let queue = selector.draw(depths, random.next_u32()).expect("a request waits");
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
            let queue = selector.draw(depths, random.next_u32()).expect("a request waits");
            let slice = adaptive.slice(queue, depths).min(adaptive.run_max(depths));
            let Some(Waiting { request: kind, .. }) = queues.take(queue) else { return Span::ZERO };
            let ran = Span::from_nanos(50_000 + 1000 * (number % 64) * kind as u64);
            adaptive.observe(kind, Arrival::New, ran, (kind == Kind::Write).then_some(Arrival::Preempted));
            black_box(slice)
        });
    });
}

/// Requests that wait in the queues that threads share.
const SHARED_DEPTH: usize = 30;

/// One thread of those that share queues: what it decides for each request, as `threads/mod.rs` and
/// `threads/service.rs` have it.
struct Sharing<'all> {
    lines: &'all Lines<Kind>,
    rules: Rules,
    policy: Policy,
    /// Where that decides.
    adaptive: Option<Adaptive>,
    low: LowSorts,
    selector: Selector,
    random: Pcg64,
    number: usize,
}

impl<'all> Sharing<'all> {
    fn new(lines: &'all Lines<Kind>, rules: Rules, seed: u128) -> Sharing<'all> {
        let (policy, adaptive) = match rules {
            Rules::Fixed(policy) => (policy, None),
            Rules::Adaptive => (Adaptive::POLICY, Some(Adaptive::default())),
        };
        let (low, selector) = (LowSorts::default(), Selector::new(policy.weights));
        let random = Pcg64::new(seed, 0xa02b_dbf7_bb3c_0a7a_c28f_a16a_64ab_f960);
        Sharing { lines, rules, policy, adaptive, low, selector, random, number: 0 }
    }

    fn put(&mut self) {
        const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Maintenance, Kind::Other];
        self.number += 1;
        let kind = KINDS[self.number % KINDS.len()];
        let queue = match self.rules {
            Rules::Fixed(policy) => policy.queue(kind, Arrival::New),
            Rules::Adaptive => self.low.queue(kind, Arrival::New),
        };
        self.lines.put(queue, kind, None, clock::now());
    }

    /// Until it has one: another thread may be faster. So as many go as come, and there is a place for each.
    fn decide(&mut self) -> (Span, Waiting<Kind>) {
        loop {
            if let Some(decided) = self.try_to_decide() {
                return decided;
            }
        }
    }

    fn try_to_decide(&mut self) -> Option<(Span, Waiting<Kind>)> {
        let depths: [u32; QUEUES] = self.lines.depths();
        let queue: Queue = self.selector.draw(depths, self.random.next_u32())?;
        let slice = match &self.adaptive {
            Some(adaptive) => adaptive.slice(queue, depths).min(adaptive.run_max(self.lines.depths())),
            None => self.policy.slice(queue, depths),
        };
        let began = clock::now();
        let waiting = self.lines.take(queue)?;
        if let Some(adaptive) = &mut self.adaptive {
            let kind = waiting.request;
            let ran = Span::from_nanos(50_000 + (began.as_nanos() % 64) * 1000 * kind as u64);
            if adaptive.observe(kind, Arrival::New, ran, (kind == Kind::Write).then_some(Arrival::Preempted)) {
                self.low = adaptive.low();
            }
        }
        Some((slice, waiting))
    }
}

fn threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("threads");
    for (name, rules) in Rules::ALL.into_iter().filter(|(name, _)| ["baseline", "combo", "adaptive"].contains(name)) {
        let lines = Lines::new(4096);
        let mut sharing = Sharing::new(&lines, rules, 1);
        (0..SHARED_DEPTH).for_each(|_| sharing.put());
        let mut both = |bencher: &mut criterion::Bencher<'_>| {
            bencher.iter(|| {
                sharing.put();
                black_box(sharing.decide())
            });
        };
        group.bench_function(format!("{name}/alone"), &mut both);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Sharing::new(&lines, rules, 2);
                while !is_over.load(Relaxed) {
                    other.put();
                    black_box(other.decide());
                }
            });
            group.bench_function(format!("{name}/beside another"), &mut both);
            is_over.store(true, Relaxed);
        });
    }
    group.finish();
}

criterion_group!(benches, decide, threads);
criterion_main!(benches);
