//! The measured rates: the requested ones, or those that find the peak and show the way to it.
//!
//! **The search.** The rate doubles until the mean latency is above the bound (or halves, if the first one already
//! was). Then the interval between the highest rate below and the lowest rate above is halved, until its ends are
//! within 5 % of each other. The *peak* is the highest that was below. **The ramp** behind it is SPC-1's: 10, 50, 80,
//! 90 and 95 % of the peak.

use plimsoll_core::Span;

/// Requests a second at the most.
pub const RATE_MAX: f64 = 1e6;
/// Below this there is nothing to be found.
const RATE_MIN: f64 = 0.5;
/// Ends of the interval, one to the other, at the end of the search.
const APART_MAX: f64 = 1.05;
/// Parts of the peak that are measured besides.
const RAMP: [f64; 5] = [0.1, 0.5, 0.8, 0.9, 0.95];

enum Plan {
    /// Still to be measured, the last one first.
    Rates(Vec<f64>),
    /// Looking for the peak.
    Search { next: f64 },
}

pub(super) struct Sweep {
    plan: Plan,
    latency_max: Span,
    /// Highest rate with a mean below the bound, lowest with one above.
    below: Option<f64>,
    above: Option<f64>,
}

impl Sweep {
    pub(super) fn new(rates: &[f64], first: f64, latency_max: Span) -> Sweep {
        let plan = match rates {
            [] => Plan::Search { next: first },
            rates => Plan::Rates(rates.iter().rev().copied().collect()),
        };
        Sweep { plan, latency_max, below: None, above: None }
    }

    /// The rate that is measured next.
    pub(super) fn next(&mut self) -> Option<f64> {
        match &mut self.plan {
            Plan::Rates(rates) => rates.pop(),
            Plan::Search { next } => Some(*next),
        }
    }

    /// Takes the mean latency of a rate; `None` if no request was due. Without one the rate, and those below it, say
    /// nothing.
    pub(super) fn measured(&mut self, per_second: f64, mean_seconds: Option<f64>) {
        match mean_seconds {
            Some(mean) if mean <= self.latency_max.as_secs_f64() => {
                self.below = Some(self.below.map_or(per_second, |below| below.max(per_second)));
            }
            Some(_) => self.above = Some(self.above.map_or(per_second, |above| above.min(per_second))),
            None => {}
        }
        if let Plan::Search { next } = &mut self.plan {
            let following = match (self.below, self.above) {
                _ if mean_seconds.is_none() => None,
                (Some(below), Some(above)) if above > below * APART_MAX => Some((below * above).sqrt()),
                (Some(below), None) if below < RATE_MAX => Some((below * 2.0).min(RATE_MAX)),
                (None, Some(above)) if above > RATE_MIN => Some(above / 2.0),
                _ => None,
            };
            match following {
                Some(rate) => *next = rate,
                None => {
                    let ramp = self.below.map(|peak| RAMP.iter().rev().map(|part| part * peak).collect());
                    self.plan = Plan::Rates(ramp.unwrap_or_default());
                }
            }
        }
    }

    /// The highest rate with a mean below the bound, if there was one.
    pub(super) fn peak(&self) -> Option<f64> {
        self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rates of a sweep over a server with a mean that passes 30 ms at `peak`.
    fn rates(asked: &[f64], first: f64, peak: f64) -> (Vec<f64>, Option<f64>) {
        let mut sweep = Sweep::new(asked, first, Span::from_millis(30));
        let mut rates = Vec::new();
        while let Some(rate) = sweep.next() {
            rates.push(rate);
            assert!(rates.len() < 100, "no end: {rates:?}");
            sweep.measured(rate, Some(if rate <= peak { 0.001 } else { 1.0 }));
        }
        (rates, sweep.peak())
    }

    #[test]
    fn the_peak_is_found_from_wherever_the_search_begins() {
        for first in [1.0, 100.0, 3000.0, 50_000.0, 1e6] {
            let (rates, peak) = rates(&[], first, 3000.0);
            let peak = peak.unwrap();
            assert!(peak <= 3000.0 && peak * APART_MAX > 3000.0, "{first}: {peak}");
            let (search, ramp) = rates.split_at(rates.len() - RAMP.len());
            assert_eq!(ramp, RAMP.map(|part| part * peak), "{first}");
            assert!(search.len() < 20, "{first}: {search:?}");
        }
    }

    #[test]
    fn a_search_ends_where_nothing_is_found() {
        let (slow, peak) = rates(&[], 100.0, 0.0);
        assert_eq!((peak, slow.first(), slow.len()), (None, Some(&100.0), 9));
        let (fast, peak) = rates(&[], 100_000.0, f64::INFINITY);
        assert_eq!(peak, Some(RATE_MAX));
        assert_eq!(&fast[..5], [1e5, 2e5, 4e5, 8e5, 1e6]);
    }

    /// Planted break: no latency is one of 0, which is below any bound.
    #[test]
    fn a_rate_at_which_nothing_was_due_is_no_peak() {
        let mut sweep = Sweep::new(&[], 1.0, Span::from_millis(30));
        sweep.measured(1.0, Some(0.05));
        assert_eq!(sweep.next(), Some(0.5));
        sweep.measured(0.5, None);
        assert_eq!((sweep.next(), sweep.peak()), (None, None));
        let mut asked = Sweep::new(&[0.1, 5.0], 1.0, Span::from_millis(30));
        for mean in [None, Some(0.001)] {
            let rate = asked.next().unwrap();
            asked.measured(rate, mean);
        }
        assert_eq!((asked.next(), asked.peak()), (None, Some(5.0)));
    }

    #[test]
    fn rates_that_were_asked_for_are_measured_in_their_order() {
        assert_eq!(rates(&[5.0, 1.0, 9.0], 100.0, 6.0), (vec![5.0, 1.0, 9.0], Some(5.0)));
    }
}
