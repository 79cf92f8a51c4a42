//! How much an account had lately, as a number that can wait in a tree.
//!
//! Zygaria compares moving averages, `T = sum of b_i * 0.9^i` over quarter seconds (section 4.2), and serves the lowest
//! account. Every average sinks all the time, so a tree of them would be stale at once. But all sink by the same
//! factor: a quarter second multiplies each by 0.9 and changes no account's place. So instead of letting the averages
//! sink we let what is added grow: a run in quarter second n counts `0.9^-n`. That sum stands still until the account
//! is served, and orders accounts as `T` does at every moment.
//!
//! The complications: `0.9^-n` leaves the range of a float after half an hour, so a power of two is kept apart. And the
//! paper cuts the sum off after 20 quarter seconds; a cut would move accounts that are not served. We keep the tail; it
//! is worth 0.9^20 = 12 % of an average that was steady, and less of one that moves. The property test holds the
//! difference to that bound.

use plimsoll_core::{Span, Time};

/// Width of a bucket (Zygaria, section 4.2).
const BUCKET: Span = Span::from_millis(250);
/// log2(1 / 0.9): what an average loses in a bucket, in powers of two (Zygaria, section 4.2).
const DECAY_PER_BUCKET_LOG2: f64 = 0.152_003_093_445_049_98;
/// Bits of a key below its power of two: averages that differ by less than 2^-32 stand level.
const KEY_FRACTION_BITS: u32 = 32;

/// What a run counts now: `factor * 2^exponent = 0.9^-n` in quarter second n. Worth keeping from one decision to the
/// next.
#[derive(Clone, Copy, Debug)]
pub struct Tide {
    bucket: u64,
    exponent: i32,
    factor: f64,
}

impl Tide {
    /// What a run counts at `now`.
    pub fn at(now: Time) -> Tide {
        let bucket = now.as_nanos() / BUCKET.as_nanos();
        let log2 = bucket as f64 * DECAY_PER_BUCKET_LOG2;
        Tide { bucket, exponent: log2 as i32, factor: log2.fract().exp2() }
    }

    /// The same at another time; costs something only once in a quarter second.
    pub fn advance(&mut self, now: Time) {
        if now.as_nanos() / BUCKET.as_nanos() != self.bucket {
            *self = Tide::at(now);
        }
    }
}

/// A moving average of runs, as a sum that stands still: `sum * 2^exponent`.
#[derive(Clone, Copy, Debug)]
pub struct WaterLevel {
    sum: f64,
    exponent: i32,
}

impl WaterLevel {
    /// Of an account that never was served: below all others.
    pub const EMPTY: WaterLevel = WaterLevel { sum: 0.0, exponent: 0 };

    /// The account was served `runs` at the time of `tide`.
    pub fn add(&mut self, tide: &Tide, runs: f64) {
        self.sum = self.sum * power_of_two(self.exponent - tide.exponent) + runs * tide.factor;
        self.exponent = tide.exponent;
    }

    /// The average at the time of `tide`: runs, each weighted by 0.9 for every quarter second that has passed since.
    pub fn runs(self, tide: &Tide) -> f64 {
        self.sum * power_of_two(self.exponent - tide.exponent) / tide.factor
    }

    /// A key for a [`MinTree`](crate::min_tree::MinTree): orders as `average / weight` does.
    pub fn key(self, weight: f64) -> u64 {
        // The bits of a positive float order as its value does, and its power of two stands above its fraction.
        let bits = (self.sum / weight).to_bits() >> (52 - KEY_FRACTION_BITS);
        if bits == 0 { 0 } else { bits + ((self.exponent as u64) << KEY_FRACTION_BITS) }
    }
}

/// `2^exponent` for exponents up to 0; what is too small for a float is nothing.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent).clamp(0, 2046) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The paper's formula, to the letter: 20 buckets, cut off.
    fn paper(served: &[(u64, f64)], now_ms: u64) -> f64 {
        let bucket = |ms: u64| ms / 250;
        let age = |ms| bucket(now_ms) - bucket(ms);
        served.iter().filter(|&&(ms, _)| age(ms) < 20).map(|&(ms, runs)| runs * 0.9f64.powi(age(ms) as i32)).sum()
    }

    proptest! {
        #[test]
        fn is_the_papers_average_plus_its_tail(gaps in proptest::collection::vec((0u64..400, 1.0f64..4.0), 1..200)) {
            let (mut level, mut served, mut now_ms) = (WaterLevel::EMPTY, Vec::new(), 0);
            let mut runs_at_most = 0.0f64;
            for (gap, runs) in gaps {
                now_ms += gap;
                let now = Time::ZERO + Span::from_millis(now_ms);
                let tide = Tide::at(now);
                level.add(&tide, runs);
                served.push((now_ms, runs));
                let bucket = now_ms / 250;
                let in_bucket: f64 = served.iter().filter(|(ms, _)| ms / 250 == bucket).map(|(_, runs)| runs).sum();
                runs_at_most = runs_at_most.max(in_bucket);
                let tail = level.runs(&tide) - paper(&served, now_ms);
                let tail_at_most = runs_at_most * 0.9f64.powi(20) / (1.0 - 0.9);
                prop_assert!(tail > -1e-6 && tail <= tail_at_most + 1e-6, "tail {tail}, bound {tail_at_most}");
            }
        }

        #[test]
        fn an_account_served_lately_stands_above_one_served_as_much_before(runs in 1.0f64..1e6, before_s in 0u64..100_000_000, later_ms in 250u64..10_000_000) {
            let at = |ms| Tide::at(Time::ZERO + Span::from_millis(ms));
            let (mut early, mut late) = (WaterLevel::EMPTY, WaterLevel::EMPTY);
            early.add(&at(before_s * 1000), runs);
            late.add(&at(before_s * 1000 + later_ms), runs);
            prop_assert!(early.key(1.0) < late.key(1.0));
        }

        #[test]
        fn keys_order_as_weighted_averages_do(a in 0.01f64..1e6, b in 0.01f64..1e6, weight in 1u32..10_000, later_ms in 0u64..100_000_000) {
            let now = Time::ZERO + Span::from_millis(later_ms);
            let (mut first, mut second) = (WaterLevel::EMPTY, WaterLevel::EMPTY);
            first.add(&Tide::at(now), a);
            second.add(&Tide::at(now), b);
            let is_near = (a / f64::from(weight) / b - 1.0).abs() < 1e-6;
            let keys = (first.key(f64::from(weight)), second.key(1.0));
            prop_assert!(is_near || (keys.0 < keys.1) == (a / f64::from(weight) < b));
            prop_assert!(WaterLevel::EMPTY.key(1.0) < keys.0);
        }
    }
}
