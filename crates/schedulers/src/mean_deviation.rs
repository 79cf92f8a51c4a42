//! How long something takes and by how much that varies, from one measurement after the other.
//!
//! **Intuition.** A bound that is to hold mostly has to stand above the mean, the further the less regular the times
//! are. **Rule.** As TCP does for its round trips (RFC 6298), both are moving averages: of the times, and of their
//! distance from the former mean. **Complication.** None: it follows slowly where times change, within some ten
//! measurements.

use plimsoll_core::Span;

/// Weights of a new measurement in mean and deviation (RFC 6298).
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct MeanDeviation {
    mean_ns: f64,
    deviation_ns: f64,
}

impl MeanDeviation {
    /// Before anything was measured.
    pub fn new(mean_ns: f64, deviation_ns: f64) -> MeanDeviation {
        MeanDeviation { mean_ns, deviation_ns }
    }

    /// It took so long.
    pub fn measured(&mut self, time: Span) {
        let error = time.as_nanos() as f64 - self.mean_ns;
        self.deviation_ns += (error.abs() - self.deviation_ns) * DEVIATION_WEIGHT;
        self.mean_ns += error * MEAN_WEIGHT;
    }

    /// The mean and so many deviations.
    pub fn most(&self, deviations: f64) -> Span {
        Span::from_nanos((self.mean_ns + deviations * self.deviation_ns) as u64)
    }
}

#[cfg(test)]
mod tests {
    //! Planted: the deviation is taken from the new mean instead of the old one.

    use super::*;

    #[test]
    fn follows_what_is_measured() {
        let mut time = MeanDeviation::new(800.0, 400.0);
        assert_eq!(time.most(2.0), Span::from_nanos(1600));
        time.measured(Span::from_nanos(1600));
        assert_eq!((time.most(0.0), time.most(1.0)), (Span::from_nanos(900), Span::from_nanos(900 + 500)));
        (0..100).for_each(|_| time.measured(Span::from_nanos(5000)));
        let (mean, most) = (time.most(0.0).as_nanos(), time.most(4.0).as_nanos());
        assert!((4990..=5000).contains(&mean) && most < mean + 50, "{mean} {most}");
    }
}
