//! When the next unit of a thread comes.
//!
//! *Closed*: when the one before is done, after some thinking. *Open*: by the clock, evenly or as a Poisson process,
//! whatever has become of those before. An open process can come in *bursts*. It runs on a clock of its own, which
//! stands still between bursts, so within a burst it is as without bursts.

use crate::random::Random;
use plimsoll_core::Span;

const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// How units arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// So long after the one before was done.
    Closed { think: Span },
    /// Units per second, evenly spaced.
    Even { per_second: f64 },
    /// Units per second, independent of each other.
    Poisson { per_second: f64 },
}

/// On for a random time of this mean, off so that a burst begins each `period` on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bursts {
    pub(crate) length: Span,
    pub(crate) period: Span,
}

/// The arrival process of one thread.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    arrivals: Arrivals,
    bursts: Option<Bursts>,
    /// Units so far.
    count: u64,
    /// The process's own clock, at the last arrival.
    own: Span,
    /// The process's own clock at the end of the burst.
    burst_end: Span,
    /// How long the process has stood still.
    silence: Span,
}

impl Pace {
    pub(crate) fn new(arrivals: Arrivals, bursts: Option<Bursts>) -> Pace {
        let zero = Span::ZERO;
        Pace { arrivals, bursts, count: 0, own: zero, burst_end: zero, silence: zero }
    }

    /// When the next unit is due; none in a closed process.
    pub(crate) fn next(&mut self, random: &mut Random) -> Option<Span> {
        self.own = match self.arrivals {
            Arrivals::Closed { .. } => return None,
            Arrivals::Even { per_second } => {
                Span::from_nanos((self.count as f64 * NANOSECONDS_PER_SECOND / per_second).round() as u64)
            }
            Arrivals::Poisson { per_second } => self.own + random.exponential(Span::from_secs_f64(1.0 / per_second)),
        };
        self.count += 1;
        if let Some(Bursts { length, period }) = self.bursts {
            while self.own >= self.burst_end {
                self.silence += random.exponential(period - length);
                // A burst of no time at all would never let the clock pass.
                self.burst_end += random.exponential(length) + Span::from_nanos(1);
            }
        }
        Some(self.own + self.silence)
    }

    /// How long to think after a unit.
    pub(crate) fn think(&self) -> Option<Span> {
        match self.arrivals {
            Arrivals::Closed { think } if think > Span::ZERO => Some(think),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn dues(arrivals: Arrivals, bursts: Option<Bursts>, count: usize) -> Vec<f64> {
        let (mut pace, mut random) = (Pace::new(arrivals, bursts), Random::new(1, Purpose::Thread, 0));
        (0..count).map(|_| pace.next(&mut random).unwrap().as_secs_f64()).collect()
    }

    #[test]
    fn even_arrivals_do_not_drift() {
        let dues = dues(Arrivals::Even { per_second: 3.0 }, None, 3001);
        assert_eq!(dues[0], 0.0);
        assert_eq!(dues[3000], 1000.0);
    }

    #[test]
    fn poisson_arrivals_have_their_mean_and_its_deviation() {
        let dues = dues(Arrivals::Poisson { per_second: 100.0 }, None, 20_000);
        let gaps: Vec<f64> = dues.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The mean of 20,000 exponential gaps deviates by 0.7 %; three deviations are allowed, and as much again.
        assert!((mean * 100.0 - 1.0).abs() < 0.04, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.06, "{variance}");
    }

    #[test]
    fn bursts_take_their_part_of_the_time_and_keep_the_rate_within() {
        let bursts = Bursts { length: Span::from_secs(1), period: Span::from_secs(4) };
        let dues = dues(Arrivals::Even { per_second: 100.0 }, Some(bursts), 200_000);
        let duration = dues.last().unwrap() - dues[0];
        // 2,000 s of bursts, about 2,000 of them: their number and the silences deviate by 3 %.
        assert!((duration / 8000.0 - 1.0).abs() < 0.12, "{duration}");
        let inside = dues.windows(2).filter(|pair| (pair[1] - pair[0] - 0.01).abs() < 1e-6).count();
        assert!(inside > 190_000, "{inside}");
    }
}
