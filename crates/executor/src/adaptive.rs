//! `adaptive`: the queue of a request and the length of its slice follow from the needs of earlier requests of its
//! sort.
//!
//! **Intuition.** The mean response time falls when a thread next runs the request that it ends soonest. The paper
//! guesses which: writes, and suspended requests. Where the guess is wrong, the paper's rule loses.
//!
//! **Rule.** A *sort* is what a request does and how it came. Three things are counted of each sort: its runs, their
//! time, and their outcome. An outcome is the request's end, or its return as another sort. The *yield* of a sort is
//! the ends a second of a thread that runs a request of it. The thread continues it as long as that pays (Klimov,
//! 1974). So a sort that is soon suspended and soon done after that yields much, though its first run ends nothing. A
//! sort that yields less than half of what all sorts together yield waits in the low queue. All others wait in the high
//! queue, in the order in which they came.
//!
//! Times are counted in *requests*: what one request takes on average, all its runs together. A run is stopped after
//! two of them, or after eight if no client waits when it begins. The rest of such a request is a sort of its own. It
//! took long so far, so it likely takes longer yet; if so, the counts show that it yields little. No single request
//! has a slice for itself, so slices can be long: those of QATS, with its figures in requests. Its factor of the low
//! queue is the ends of a second there over the ends of a second in the high queue. The low queue gets a slice if the
//! high queue is empty. Such a slice ends with the run in which a request comes to the high queue.
//!
//! **Complication.** Loads change, so counts are halved every 4096 runs. A sort that was hardly seen waits in the high
//! queue. Where all sorts are alike there is one queue and no guess to lose by.

use crate::{Arrival, Dispatching, Kind, Policy, QUEUES, Queue, Slicing};
use plimsoll_core::Span;

const KINDS: usize = 4;
const ARRIVALS: usize = 3;
/// Runs after which all counts are halved, and queues and times chosen anew.
const FORGET_RUNS: u32 = 4096;
/// Runs below which a sort is unknown: its yield would be off by more than a third two times of three.
const KNOWN_RUNS: f64 = 10.0;
/// A sort that yields less than this part of what all sorts together yield waits in the low queue.
const LOW_PART: f64 = 0.5;
/// What a request takes as long as none was measured: with it the slices are the paper's.
const REQUEST: Span = Span::from_micros(100);
/// Bounds on a request's time in this rule, so that slices stay between 3 us and 53 ms.
const REQUEST_BOUNDS: [Span; 2] = [Span::from_micros(1), Span::from_millis(1)];
/// Most time of a run, in requests: if no client waits at its beginning, and if one does.
const RUN_REQUESTS: [u64; 2] = [8, 2];
/// QATS's base and cap, 0.3 and 5 ms, in requests.
const SLICE_REQUESTS: [u64; 2] = [3, 50];
/// The maintenance queue's slice, 0.2 ms, in requests. A longer slice for clients is one for it, too, so it keeps its
/// part.
const MAINTENANCE_REQUESTS: u64 = 2;
/// Chance of leaving a thread's sorts below which runs count as never leaving.
const NEVER_LEFT: f64 = 1e-9;

/// What was seen of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    seconds: f64,
    /// Runs that ended a request.
    ends: f64,
    /// Runs after which it came again, by how it came.
    again: [f64; ARRIVALS],
}

impl Seen {
    fn runs(&self) -> f64 {
        self.ends + self.again.iter().sum::<f64>()
    }

    /// Of one run, on average: what is counted by `of`, which is 0 where nothing was seen.
    fn mean(&self, of: f64) -> f64 {
        if self.runs() > 0.0 { of / self.runs() } else { 0.0 }
    }

    fn after(&self, arrival: Arrival) -> f64 {
        self.mean(self.again[arrival as usize])
    }

    fn halve(&mut self) {
        self.seconds /= 2.0;
        self.ends /= 2.0;
        self.again = self.again.map(|runs| runs / 2.0);
    }
}

/// The sorts that wait in the low queue, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowSorts(u16);

impl LowSorts {
    /// Where a request waits. O(1).
    pub fn queue(self, kind: Kind, arrival: Arrival) -> Queue {
        match kind {
            Kind::Maintenance => Queue::Maintenance,
            _ if self.0 >> sort(kind, arrival) & 1 == 1 => Queue::Low,
            _ => Queue::High,
        }
    }

    /// For threads to share.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// Of what threads shared.
    pub(crate) fn from_bits(bits: u16) -> LowSorts {
        LowSorts(bits)
    }
}

/// The rule and what it has seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    seen: [[Seen; ARRIVALS]; KINDS],
    low: LowSorts,
    /// What a request takes.
    request: Span,
    /// Ends a second of requests of the low queue over those of the high queue: 0 to 1.
    low_factor: f64,
    runs: u32,
}

impl Default for Adaptive {
    fn default() -> Adaptive {
        Adaptive { seen: Default::default(), low: LowSorts::default(), request: REQUEST, low_factor: 1.0, runs: 0 }
    }
}

fn sort(kind: Kind, arrival: Arrival) -> usize {
    kind as usize * ARRIVALS + arrival as usize
}

impl Adaptive {
    /// Its weights, which are Combo's; where requests wait and how long they are served it chooses itself.
    pub const POLICY: Policy =
        Policy { dispatching: Dispatching::AllToHigh, slicing: Slicing::BY_DEPTH, weights: Policy::COMBO.weights };

    /// Where a request waits. O(1).
    pub fn queue(&self, kind: Kind, arrival: Arrival) -> Queue {
        self.low.queue(kind, arrival)
    }

    /// The sorts that wait in the low queue from now on.
    pub fn low(&self) -> LowSorts {
        self.low
    }

    /// The slice of a thread that drew `queue`, while so many requests wait in each. O(1).
    pub fn slice(&self, queue: Queue, depths: [u32; QUEUES]) -> Span {
        if queue == Queue::Maintenance {
            return self.request * MAINTENANCE_REQUESTS;
        }
        let [base, cap] = SLICE_REQUESTS.map(|requests| self.request * requests);
        Slicing::ByDepth { base, cap, factors: [1.0, self.low_factor, 1.0] }.slice(queue, depths, Self::POLICY.weights)
    }

    /// Whether a slice of `queue`, drawn at these depths, ends as soon as a request waits in the high queue. O(1).
    pub fn is_lent(queue: Queue, depths: [u32; QUEUES]) -> bool {
        queue == Queue::Low && depths[Queue::High.index()] == 0
    }

    /// Most time of a client's run that begins at these depths. A stop costs a turn, for nothing if no other request
    /// comes meanwhile. O(1).
    pub fn run_max(&self, depths: [u32; QUEUES]) -> Span {
        let [high, low, _] = depths;
        self.request * RUN_REQUESTS[usize::from(high > 0 || low > 0)]
    }

    /// A request of this sort ran for so long; it came again as `next`, or is done. Says whether what it answers was
    /// chosen anew. O(1), each 4096 times O(sorts).
    pub fn observe(&mut self, kind: Kind, arrival: Arrival, ran: Span, next: Option<Arrival>) -> bool {
        if kind == Kind::Maintenance {
            return false;
        }
        let seen = &mut self.seen[kind as usize][arrival as usize];
        seen.seconds += ran.as_secs_f64();
        match next {
            None => seen.ends += 1.0,
            Some(next) => seen.again[next as usize] += 1.0,
        }
        self.runs += 1;
        if self.runs < FORGET_RUNS {
            return false;
        }
        self.runs = 0;
        self.choose();
        self.seen.iter_mut().flatten().for_each(Seen::halve);
        true
    }

    fn choose(&mut self) {
        let sum = |of: fn(&Seen) -> f64| self.seen.iter().flatten().map(of).sum::<f64>();
        let (ends, seconds) = (sum(|seen| seen.ends), sum(|seen| seen.seconds));
        let [least, most] = REQUEST_BOUNDS;
        self.request = if ends > 0.0 { Span::from_secs_f64(seconds / ends).clamp(least, most) } else { most };
        self.low = LowSorts::default();
        let (mut low_ends, mut low_seconds) = (0.0, 0.0);
        for (kind, seen) in self.seen.iter().enumerate() {
            for (arrival, yields) in yields(seen).into_iter().enumerate() {
                let is_low = seen[arrival].runs() >= KNOWN_RUNS && yields * seconds < ends * LOW_PART;
                self.low.0 |= u16::from(is_low) << (kind * ARRIVALS + arrival);
                low_ends += if is_low { seen[arrival].ends } else { 0.0 };
                low_seconds += if is_low { seen[arrival].seconds } else { 0.0 };
            }
        }
        let (high_ends, high_seconds) = (ends - low_ends, seconds - low_seconds);
        let factor = low_ends * high_seconds / (low_seconds * high_ends);
        self.low_factor = if factor.is_finite() { factor.min(1.0) } else { 1.0 };
    }
}

/// Yield of each sort of a kind, ends a second. It is the best of four: to continue it when it is suspended, when it is
/// preempted, both, or neither.
fn yields(seen: &[Seen; ARRIVALS]) -> [f64; ARRIVALS] {
    let mut best = [0.0_f64; ARRIVALS];
    for (resumed, preempted) in [(false, false), (true, false), (false, true), (true, true)] {
        let goes_on = [true, resumed, preempted];
        let ends = until_left(seen, goes_on, |seen| seen.ends);
        let seconds = until_left(seen, goes_on, |seen| seen.seconds);
        for at in (0..ARRIVALS).filter(|&at| goes_on[at] && seconds[at] > 0.0) {
            best[at] = best[at].max(ends[at] / seconds[at]);
        }
    }
    best
}

/// Sum of `of` from a run of each sort on. It ends when a request is done or comes as a sort that the thread does not
/// continue. The sums of *resumed* and *preempted* follow from each other: two equations, by Cramer's rule.
fn until_left(seen: &[Seen; ARRIVALS], goes_on: [bool; ARRIVALS], of: fn(&Seen) -> f64) -> [f64; ARRIVALS] {
    use Arrival::{Preempted, Resumed};
    let [new, resumed, preempted] = seen;
    let part = |from: &Seen, to: Arrival| if goes_on[to as usize] { from.after(to) } else { 0.0 };
    let (leaves_resumed, leaves_preempted) = (1.0 - part(resumed, Resumed), 1.0 - part(preempted, Preempted));
    let (to_preempted, to_resumed) = (part(resumed, Preempted), part(preempted, Resumed));
    let determinant = leaves_resumed * leaves_preempted - to_preempted * to_resumed;
    if determinant < NEVER_LEFT {
        return [0.0; ARRIVALS];
    }
    let [run, run_resumed, run_preempted] = [new, resumed, preempted].map(|seen| seen.mean(of(seen)));
    let sum_resumed = (run_resumed * leaves_preempted + to_preempted * run_preempted) / determinant;
    let sum_preempted = (run_preempted * leaves_resumed + to_resumed * run_resumed) / determinant;
    [run + part(new, Resumed) * sum_resumed + part(new, Preempted) * sum_preempted, sum_resumed, sum_preempted]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENTS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Other];
    const ALL_ARRIVALS: [Arrival; ARRIVALS] = [Arrival::New, Arrival::Resumed, Arrival::Preempted];

    /// Sum after a run of each sort of a kind, step by step until next to nothing is left. `runs`: of each sort what is
    /// counted in a run, and the parts of its runs that come again as each sort.
    fn step_by_step(runs: &[(f64, [f64; ARRIVALS]); ARRIVALS], goes_on: [bool; ARRIVALS]) -> [f64; ARRIVALS] {
        let mut sums = [0.0; ARRIVALS];
        for _ in 0..2000 {
            sums = std::array::from_fn(|at| {
                let (run, again) = runs[at];
                run + (0..ARRIVALS).filter(|&to| goes_on[to]).map(|to| again[to] * sums[to]).sum::<f64>()
            });
        }
        sums
    }

    /// One sort in the list of all runs: how many of eight end, are suspended, are preempted.
    type Outcomes = (usize, usize, usize);

    fn outcome((ends, suspended, preempted): Outcomes, run: usize) -> Option<Arrival> {
        match run % (ends + suspended + preempted) {
            at if at < ends => None,
            at if at < ends + suspended => Some(Arrival::Resumed),
            _ => Some(Arrival::Preempted),
        }
    }

    proptest! {
        /// Against the list of all runs and sums that go on step by step. Planted breaks: the sort that yields most
        /// waits low; a thread never goes on with a suspended request.
        /// Promise: executor-adaptive-queue.
        #[test]
        fn a_sort_that_yields_less_than_half_of_all_waits_low(
            micros in prop::collection::vec(1u64..2000, 9),
            outcomes in prop::collection::vec((1usize..=4, 0usize..=4, 0usize..=4), 9), start in 0usize..9
        ) {
            let sorts: Vec<_> = CLIENTS.iter().flat_map(|&kind| ALL_ARRIVALS.map(|arrival| (kind, arrival))).collect();
            let mut adaptive = Adaptive::default();
            let mut list: Vec<Vec<Option<Arrival>>> = vec![Vec::new(); 9];
            for run in 0..FORGET_RUNS as usize {
                let at = (start + run) % 9;
                let next = outcome(outcomes[at], run / 9);
                adaptive.observe(sorts[at].0, sorts[at].1, Span::from_micros(micros[at]), next);
                list[at].push(next);
            }
            let count = |at: usize, next: Option<Arrival>| list[at].iter().filter(|each| **each == next).count() as f64;
            let ends = (0..9).map(|at| count(at, None)).sum::<f64>();
            let micros_all = (0..9).map(|at| list[at].len() as f64 * micros[at] as f64).sum::<f64>();
            for (at, &(kind, arrival)) in sorts.iter().enumerate() {
                let first = at / ARRIVALS * ARRIVALS;
                let runs = |of: &dyn Fn(usize) -> f64| std::array::from_fn(|sort| {
                    let at = first + sort;
                    let part = |next| count(at, Some(next)) / list[at].len() as f64;
                    (of(at), ALL_ARRIVALS.map(part))
                });
                let (run_ends, run_micros) = (|at: usize| count(at, None) / list[at].len() as f64, |at: usize| micros[at] as f64);
                let ways = [[true, false, false], [true, true, false], [true, false, true], [true; 3]];
                let of_way = |goes_on| step_by_step(&runs(&run_ends), goes_on)[at - first]
                    / step_by_step(&runs(&run_micros), goes_on)[at - first];
                let can = ways.into_iter().filter(|goes_on| goes_on[at - first]);
                let yields = can.map(of_way).fold(0.0, f64::max);
                // On the bound itself rounding decides.
                prop_assume!((yields * micros_all / ends * 2.0 - 1.0).abs() > 1e-6);
                let expected = if yields < ends / micros_all / 2.0 { Queue::Low } else { Queue::High };
                prop_assert_eq!(adaptive.queue(kind, arrival), expected, "{:?} {:?}", kind, arrival);
            }
            prop_assert!((adaptive.request.as_micros_f64() - (micros_all / ends).min(1000.0)).abs() < 0.01);
        }
    }

    /// Promise: executor-adaptive-queue.
    #[test]
    fn those_that_are_alike_share_a_queue_and_what_changes_is_forgotten() {
        let mut adaptive = Adaptive::default();
        let mut run = |read_micros: u64| {
            for _ in 0..8 * FORGET_RUNS {
                adaptive.observe(Kind::Read, Arrival::New, Span::from_micros(read_micros), None);
                for _ in 0..4 {
                    adaptive.observe(Kind::Write, Arrival::New, Span::from_micros(100), None);
                }
                adaptive.observe(Kind::Maintenance, Arrival::New, Span::from_millis(9), None);
            }
            [Kind::Read, Kind::Write, Kind::Other, Kind::Maintenance].map(|kind| adaptive.queue(kind, Arrival::New))
        };
        let (high, low, maintenance) = (Queue::High, Queue::Low, Queue::Maintenance);
        assert_eq!(run(110), [high, high, high, maintenance]);
        assert_eq!(run(900), [low, high, high, maintenance]);
        assert_eq!(run(90), [high, high, high, maintenance]);
    }

    /// A read with a first run that ends nothing, but leads to a short second one that does. A write that is preempted,
    /// and goes on for long.
    /// Promise: executor-adaptive-queue.
    #[test]
    fn a_sort_that_is_soon_suspended_and_soon_done_waits_high() {
        let mut adaptive = Adaptive::default();
        for _ in 0..FORGET_RUNS {
            adaptive.observe(Kind::Read, Arrival::New, Span::from_micros(60), Some(Arrival::Resumed));
            adaptive.observe(Kind::Read, Arrival::Resumed, Span::from_micros(30), None);
            adaptive.observe(Kind::Write, Arrival::New, Span::from_micros(100), None);
            adaptive.observe(Kind::Other, Arrival::New, Span::from_micros(200), Some(Arrival::Preempted));
            adaptive.observe(Kind::Other, Arrival::Preempted, Span::from_micros(900), None);
        }
        let queues = |kind| ALL_ARRIVALS.map(|arrival| adaptive.queue(kind, arrival));
        assert_eq!(queues(Kind::Read), [Queue::High; 3]);
        assert_eq!(queues(Kind::Write), [Queue::High; 3]);
        assert_eq!(queues(Kind::Other), [Queue::Low, Queue::High, Queue::Low]);
    }

    #[test]
    fn a_sort_that_is_never_seen_to_end_waits_low() {
        let mut adaptive = Adaptive::default();
        for _ in 0..FORGET_RUNS {
            adaptive.observe(Kind::Write, Arrival::New, Span::from_micros(100), None);
            adaptive.observe(Kind::Read, Arrival::Preempted, Span::from_micros(100), Some(Arrival::Preempted));
        }
        assert_eq!(adaptive.queue(Kind::Read, Arrival::Preempted), Queue::Low);
        assert_eq!(adaptive.queue(Kind::Write, Arrival::New), Queue::High);
        // Nothing ends at all: times are bounded, and all are alike.
        let mut stuck = Adaptive::default();
        (0..FORGET_RUNS).for_each(|_| {
            stuck.observe(Kind::Read, Arrival::Preempted, Span::from_micros(5), Some(Arrival::Preempted));
        });
        assert_eq!(
            (stuck.run_max([1, 0, 0]), stuck.queue(Kind::Read, Arrival::Preempted)),
            (Span::from_millis(2), Queue::High)
        );
    }

    /// Reads: a sixth of what ends in a second of writes. Planted break: the factor is 1; any slice is lent.
    /// Promise: executor-adaptive-slice.
    #[test]
    fn the_low_queue_is_served_for_as_long_as_its_part_of_the_ends() {
        let mut adaptive = Adaptive::default();
        for _ in 0..FORGET_RUNS {
            (0..4).for_each(|_| {
                adaptive.observe(Kind::Write, Arrival::New, Span::from_micros(50), None);
            });
            adaptive.observe(Kind::Read, Arrival::New, Span::from_micros(300), None);
        }
        assert_eq!(adaptive.queue(Kind::Read, Arrival::New), Queue::Low);
        let request = adaptive.request.as_micros_f64();
        let slice = adaptive.slice(Queue::Low, [10, 30, 0]).as_micros_f64() / request;
        // Five of fifteen parts: thirty requests count as five.
        assert!((slice - (3.0 + 50.0 / 3.0)).abs() < 0.01, "{slice} of {request} us");
        let lent = |queue, depths| Adaptive::is_lent(queue, depths);
        assert!(lent(Queue::Low, [0, 3, 0]) && !lent(Queue::Low, [1, 3, 0]) && !lent(Queue::High, [0, 3, 0]));
    }

    /// Without anything seen the slices are the paper's; after that they follow what a request takes, its runs
    /// together.
    /// Promise: executor-adaptive-slice.
    #[test]
    fn slices_and_runs_are_as_long_as_requests_need() {
        let times = |adaptive: &Adaptive| {
            let slice = |queue, depths| adaptive.slice(queue, depths).as_micros_f64();
            let high = slice(Queue::High, [30, 10, 5000]);
            let maintenance = slice(Queue::Maintenance, [1, 1, 1]);
            [
                slice(Queue::Low, [0, 0, 0]),
                slice(Queue::Low, [0, 7, 0]),
                high,
                maintenance,
                adaptive.run_max([0, 1, 0]).as_micros_f64(),
            ]
        };
        let mut adaptive = Adaptive::default();
        let high = 300.0 + 5000.0 * 30.0 / 5040.0;
        let near = |got: [f64; 5], expected: [f64; 5]| {
            got.iter()
                .zip(expected)
                .for_each(|(got, expected)| assert!((got / expected - 1.0).abs() < 1e-4, "{got} {expected}"));
        };
        assert_eq!(adaptive.run_max([0, 0, 9]), Span::from_micros(800));
        near(times(&adaptive), [300.0, 5300.0, high, 200.0, 200.0]);
        let mut see = |micros| {
            for _ in 0..16 * FORGET_RUNS {
                adaptive.observe(Kind::Read, Arrival::New, Span::from_micros(micros), Some(Arrival::Preempted));
                adaptive.observe(Kind::Read, Arrival::Preempted, Span::from_micros(micros), None);
            }
            times(&adaptive)
        };
        near(see(200), [1200.0, 21_200.0, high * 4.0, 800.0, 800.0]);
        near(see(5000), [3000.0, 53_000.0, high * 10.0, 2000.0, 2000.0]);
    }
}
