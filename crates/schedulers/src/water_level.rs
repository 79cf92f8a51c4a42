//! How much an account had lately, as a number that can wait in a tree.
//!
//! Zygaria compares moving averages, `T = sum of b_i * 0.9^i` over quarter seconds (section 4.2), and serves whoever is
//! lowest. Every average sinks all the time, so a tree of them would be stale at once. But all sink by the same factor:
//! a quarter second multiplies each by 0.9 and changes nobody's place. So we keep `log2 T` plus what has sunk since time
//! zero. That sum stands still until the account is served, and orders accounts as `T` does at every moment.
//!
//! The complication: the paper cuts the sum off after 20 quarter seconds, and a cut would move accounts that are not
//! served. We keep the tail; it is worth 0.9^20 = 12 % of an average that was steady, and less of one that moves. The
//! property test holds the difference to that bound.

use plimsoll_core::{Span, Time};

/// Width of a bucket (Zygaria, section 4.2).
const BUCKET: Span = Span::from_millis(250);
/// log2(1 / 0.9): what an average loses in a bucket, in powers of two (Zygaria, section 4.2).
const DECAY_PER_BUCKET_LOG2: f64 = 0.152_003_093_445_049_98;

/// A moving average of runs, in logarithmic form. Orders like the average itself.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct WaterLevel(f64);

impl WaterLevel {
    /// Of an account that never was served: below all others.
    pub const EMPTY: WaterLevel = WaterLevel(f64::NEG_INFINITY);

    fn sunk_log2(now: Time) -> f64 {
        (now.as_nanos() / BUCKET.as_nanos()) as f64 * DECAY_PER_BUCKET_LOG2
    }

    /// The account was served `runs` at `now`.
    pub fn add(&mut self, now: Time, runs: f64) {
        let sunk_log2 = Self::sunk_log2(now);
        self.0 = ((self.0 - sunk_log2).exp2() + runs).log2() + sunk_log2;
    }

    /// The average at `now`: runs, each weighted by 0.9 for every quarter second that has passed since.
    pub fn runs(self, now: Time) -> f64 {
        (self.0 - Self::sunk_log2(now)).exp2()
    }

    /// A key for a [`MinTree`](crate::min_tree::MinTree): orders as `average / 2^weight_log2` does.
    pub fn key(self, weight_log2: f64) -> u64 {
        let bits = (self.0 - weight_log2).to_bits();
        let sign_spread = (bits as i64 >> 63) as u64;
        (bits ^ (sign_spread | 1 << 63)).min(u64::MAX - 1)
    }
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
                level.add(now, runs);
                served.push((now_ms, runs));
                let bucket = now_ms / 250;
                let in_bucket: f64 = served.iter().filter(|(ms, _)| ms / 250 == bucket).map(|(_, runs)| runs).sum();
                runs_at_most = runs_at_most.max(in_bucket);
                let tail = level.runs(now) - paper(&served, now_ms);
                let tail_at_most = runs_at_most * 0.9f64.powi(20) / (1.0 - 0.9);
                prop_assert!(tail > -1e-6 && tail <= tail_at_most + 1e-6, "tail {tail}, bound {tail_at_most}");
            }
        }

        #[test]
        fn keys_order_as_weighted_averages_do(a in 0.01f64..1e6, b in 0.01f64..1e6, weight in 1u32..10_000, later_ms in 0u64..100_000_000) {
            let now = Time::ZERO + Span::from_millis(later_ms);
            let (mut first, mut second) = (WaterLevel::EMPTY, WaterLevel::EMPTY);
            first.add(now, a);
            second.add(now, b);
            let is_near = (a / f64::from(weight) / b - 1.0).abs() < 1e-6;
            let keys = (first.key(f64::from(weight).log2()), second.key(0.0));
            prop_assert!(is_near || (keys.0 < keys.1) == (a / f64::from(weight) < b));
            prop_assert!(WaterLevel::EMPTY.key(0.0) < keys.0);
        }
    }
}
