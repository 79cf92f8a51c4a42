//! `adaptive`: where a request waits follows from what requests of its sort were seen to need.
//!
//! **Intuition.** The mean response time falls when a thread runs next what it brings to its end soonest. The paper guesses what that is:
//! writes, and what was suspended. Where the guess is wrong it loses. **Rule.** A *sort* is what a request does and how it came. Of
//! each sort two things are counted: the time of its runs, and how many of them were a request's last. Its *yield* is ends a second of
//! a thread. Who yields less than half of what all together yield waits in the low queue; everybody else in the high one, in the order in
//! which they came. Slices are those of QATS.
//!
//! **Complication.** Loads change, so counts are halved every 4096 runs. A sort that was hardly seen waits in the high queue.
//! Where all sorts are alike there is one queue and no guess to lose by.

use crate::{Arrival, Dispatching, Kind, Policy, Queue, Slicing};
use plimsoll_core::Span;

const KINDS: usize = 4;
const ARRIVALS: usize = 3;
const SORTS: usize = KINDS * ARRIVALS;
/// Runs after which all counts are halved, and queues chosen anew.
const FORGET_RUNS: u32 = 4096;
/// Runs of a sort below which nothing is said about it: its yield would be off by more than a third two times of three.
const KNOWN_RUNS: f64 = 10.0;
/// Who yields less than this part of what all together yield waits in the low queue.
const LOW_PART: f64 = 0.5;

/// What was seen of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    runs: f64,
    ends: f64,
    seconds: f64,
}

impl Seen {
    /// Ends a second; `None` without any time.
    fn yields(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.ends / self.seconds)
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
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    seen: [Seen; SORTS],
    low: LowSorts,
    runs: u32,
}

fn sort(kind: Kind, arrival: Arrival) -> usize {
    kind as usize * ARRIVALS + arrival as usize
}

impl Adaptive {
    /// Slices and weights: those of Combo.
    pub const POLICY: Policy =
        Policy { dispatching: Dispatching::AllToHigh, slicing: Slicing::BY_DEPTH, weights: Policy::COMBO.weights };

    /// Where a request waits. O(1).
    pub fn queue(&self, kind: Kind, arrival: Arrival) -> Queue {
        self.low.queue(kind, arrival)
    }

    /// Who waits in the low queue from now on.
    pub fn low(&self) -> LowSorts {
        self.low
    }

    /// A request of this sort ran for so long; `is_end`: and is done. Says whether [`low`](Self::low) was chosen anew. O(1), each
    /// 4096 times O(sorts).
    pub fn observe(&mut self, kind: Kind, arrival: Arrival, ran: Span, is_end: bool) -> bool {
        if kind == Kind::Maintenance {
            return false;
        }
        let seen = &mut self.seen[sort(kind, arrival)];
        seen.runs += 1.0;
        seen.ends += f64::from(u8::from(is_end));
        seen.seconds += ran.as_secs_f64();
        self.runs += 1;
        if self.runs < FORGET_RUNS {
            return false;
        }
        self.runs = 0;
        self.choose();
        true
    }

    fn choose(&mut self) {
        let all = self.seen.iter().fold(Seen::default(), |sum, seen| Seen {
            runs: sum.runs + seen.runs,
            ends: sum.ends + seen.ends,
            seconds: sum.seconds + seen.seconds,
        });
        let bound = all.yields().unwrap_or(0.0) * LOW_PART;
        self.low = LowSorts::default();
        for (sort, seen) in self.seen.iter_mut().enumerate() {
            let is_low = seen.runs >= KNOWN_RUNS && seen.yields().is_some_and(|yields| yields < bound);
            self.low.0 |= u16::from(is_low) << sort;
            *seen = Seen { runs: seen.runs / 2.0, ends: seen.ends / 2.0, seconds: seen.seconds / 2.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENTS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Other];
    const ALL_ARRIVALS: [Arrival; ARRIVALS] = [Arrival::New, Arrival::Resumed, Arrival::Preempted];

    proptest! {
        /// Against sums over a list of all runs. Planted break: who yields most waits low.
        #[test]
        fn who_yields_less_than_half_of_all_waits_low(
            micros in prop::collection::vec(1u64..2000, 9), ending in prop::collection::vec(0u32..=4, 9), start in 0usize..9
        ) {
            let sorts: Vec<_> = CLIENTS.iter().flat_map(|&kind| ALL_ARRIVALS.map(|arrival| (kind, arrival))).collect();
            let mut adaptive = Adaptive::default();
            let (mut ends, mut seconds) = ([0.0; 9], [0.0; 9]);
            for run in 0..FORGET_RUNS as usize {
                let at = (start + run) % 9;
                let is_end = (run / 9 % 4) < ending[at] as usize;
                adaptive.observe(sorts[at].0, sorts[at].1, Span::from_micros(micros[at]), is_end);
                ends[at] += f64::from(u8::from(is_end));
                seconds[at] += micros[at] as f64 * 1e-6;
            }
            let all = ends.iter().sum::<f64>() / seconds.iter().sum::<f64>();
            for (at, &(kind, arrival)) in sorts.iter().enumerate() {
                let yields = ends[at] / seconds[at];
                // On the bound itself rounding decides.
                prop_assume!((yields - all / 2.0).abs() > 1e-6);
                let expected = if yields < all / 2.0 { Queue::Low } else { Queue::High };
                prop_assert_eq!(adaptive.queue(kind, arrival), expected, "{:?} {:?}", kind, arrival);
            }
        }
    }

    #[test]
    fn those_that_are_alike_share_a_queue_and_what_changes_is_forgotten() {
        let mut adaptive = Adaptive::default();
        let mut run = |read_micros: u64| {
            for _ in 0..8 * FORGET_RUNS {
                adaptive.observe(Kind::Read, Arrival::New, Span::from_micros(read_micros), true);
                for _ in 0..4 {
                    adaptive.observe(Kind::Write, Arrival::New, Span::from_micros(100), true);
                }
                adaptive.observe(Kind::Maintenance, Arrival::New, Span::from_millis(9), false);
            }
            [Kind::Read, Kind::Write, Kind::Other, Kind::Maintenance].map(|kind| adaptive.queue(kind, Arrival::New))
        };
        let (high, low, maintenance) = (Queue::High, Queue::Low, Queue::Maintenance);
        assert_eq!(run(110), [high, high, high, maintenance]);
        assert_eq!(run(900), [low, high, high, maintenance]);
        assert_eq!(run(90), [high, high, high, maintenance]);
    }
}
