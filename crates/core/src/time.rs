//! Time as schedulers see it: a point ([`Time`]) or a length ([`Span`]), in nanoseconds of the host's clock.
//!
//! The zero of [`Time`] is whatever the host says: the start of a simulation, or the start of a device's thread. Two
//! hosts never compare times. 64 bits of nanoseconds last 584 years.

use crate::number::{ParseUnitError, in_whole_units, parse_quantity, three_digits};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// A point in time: nanoseconds since the host's own zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in nanoseconds; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The host's zero.
    pub const ZERO: Time = Time(0);
    /// Later than every time that is reached: "never".
    pub const MAX: Time = Time(u64::MAX);

    /// The time `nanoseconds` after the host's zero.
    pub const fn from_nanos(nanoseconds: u64) -> Time {
        Time(nanoseconds)
    }

    /// Nanoseconds since the host's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the host's zero.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOSECONDS_PER_SECOND as f64
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The time `span` before this one, at the earliest the host's zero.
    pub const fn saturating_sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than every span that is measured.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `nanoseconds`.
    pub const fn from_nanos(nanoseconds: u64) -> Span {
        Span(nanoseconds)
    }

    /// A span of `microseconds`.
    pub const fn from_micros(microseconds: u64) -> Span {
        Span(microseconds * 1_000)
    }

    /// A span of `milliseconds`.
    pub const fn from_millis(milliseconds: u64) -> Span {
        Span(milliseconds * 1_000_000)
    }

    /// A span of `seconds`.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds * NANOSECONDS_PER_SECOND)
    }

    /// A span of `seconds`, rounded to a nanosecond; negative and NaN become zero, too long becomes [`Span::MAX`].
    pub fn from_secs_f64(seconds: f64) -> Span {
        Span((seconds * NANOSECONDS_PER_SECOND as f64).round() as u64)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds, as a fraction.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Milliseconds, as a fraction.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds, as a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOSECONDS_PER_SECOND as f64
    }

    pub(crate) fn exact_text(&self) -> String {
        in_whole_units(self.0, &[(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (NANOSECONDS_PER_SECOND, "s")])
    }

    /// This span less `other`, at the least zero.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        self.saturating_sub(other)
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Span) {
        *self = *self - other;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> std::time::Duration {
        std::time::Duration::from_nanos(span.0)
    }
}

impl fmt::Display for Span {
    /// Prints three significant digits with the unit that keeps them readable: `8.33 ms`, `250 us`, `1.5 s`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => (self.0 as f64, "ns"),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "us"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.as_secs_f64(), "s"),
        };
        write!(out, "{} {unit}", three_digits(value))
    }
}

impl FromStr for Span {
    type Err = ParseUnitError;

    /// Reads `250us`, `1.5 s`, `10 min`. Units: ns, us, ms, s, min, h.
    fn from_str(text: &str) -> Result<Span, ParseUnitError> {
        const EXPECTED: &str = "a time such as \"20ms\" or \"1.5 s\" (units: ns, us, ms, s, min, h)";
        let (number, unit) = parse_quantity(text, EXPECTED)?;
        let nanoseconds = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => NANOSECONDS_PER_SECOND,
            "min" => 60 * NANOSECONDS_PER_SECOND,
            "h" => 3600 * NANOSECONDS_PER_SECOND,
            _ => return Err(ParseUnitError::new(text, EXPECTED)),
        };
        Ok(number.times(nanoseconds).map_or(Span::MAX, Span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_printed_as_people_write_them() {
        for (text, nanoseconds, printed) in [
            ("250us", 250_000, "250 us"),
            ("1.5 s", 1_500_000_000, "1.5 s"),
            ("8.333ms", 8_333_000, "8.33 ms"),
            ("2 min", 120_000_000_000, "120 s"),
            ("0ns", 0, "0 ns"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.as_nanos(), nanoseconds, "{text}");
            assert_eq!(span.to_string(), printed);
        }
        for bad in ["", "5", "ms", "-3ms", "1e400s", "5 parsecs", "NaNs"] {
            let error = bad.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains("units: ns, us, ms, s, min, h"), "{bad}: {error}");
        }
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::ZERO.since(Time::from_nanos(5)), Span::ZERO);
        assert_eq!(Time::MAX + Span::from_secs(1), Time::MAX);
        assert_eq!(Span::from_secs_f64(f64::INFINITY), Span::MAX);
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
    }
}
