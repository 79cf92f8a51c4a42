//! Zygaria's two buckets (section 4.1), kept as the time at which the next token is there.
//!
//! A bucket that fills at a rate and that requests empty needs no timer and no count. One number says when the next
//! token is there, and taking a token moves it on by the time of one token. The *reserve* bucket answers with a
//! deadline (served by then, the account has its reserve), the *limit* bucket with a release time.
//!
//! The complication is what happens when an account does not ask. A limit bucket that filled up meanwhile would allow a
//! burst. A reserve bucket would let a tenant that slept for an hour push all others aside. So an empty queue earns
//! nothing: see [`ReserveBucket::wake`].

use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{Rate, Span, Time};

/// How much faster than promised a reserve fills. Completions scatter around dispatches by tens of milliseconds on a
/// disk; 5 % in hand keeps every single second's completions at what was promised. Where everything is reserved and the
/// device has nothing in hand, all reserves share the shortfall alike (`Zygaria::overload`), so no account loses by it.
pub const RESERVE_HEADROOM: f64 = 1.05;
/// What an account that was served late and then briefly had nothing to ask may still claim afterwards.
const RESERVE_CATCH_UP_MAX: Span = Span::from_millis(250);
/// Compensation of a late dispatch under a limit: 1.8 % of a second, inside the 2 % by which a limit may be exceeded in
/// any second. On a disk a place at the device comes free once in some 10 ms. Waiting for it each time would lose a
/// third of a limit of 45 a second.
const LIMIT_CATCH_UP_MAX: Span = Span::from_millis(18);

/// The time by which an account must be served to get its reserve.
#[derive(Clone, Copy, Debug)]
pub struct ReserveBucket {
    /// Time a run takes to fill; zero stands for "nothing is reserved".
    span_per_run: Span,
    deadline: Time,
}

impl ReserveBucket {
    /// Nothing is reserved.
    pub const EMPTY: ReserveBucket = ReserveBucket { span_per_run: Span::ZERO, deadline: Time::ZERO };

    /// A bucket that holds its first token at `now`.
    pub fn new(runs_per_second: f64, now: Time) -> ReserveBucket {
        let span_per_run = match runs_per_second {
            rate if rate > 0.0 => Span::from_secs_f64(1.0 / (rate * RESERVE_HEADROOM)),
            _ => Span::ZERO,
        };
        ReserveBucket { span_per_run, deadline: now }
    }

    /// When the next run is due; [`Time::MAX`] if nothing is reserved.
    pub fn deadline(&self) -> Time {
        if self.span_per_run == Span::ZERO { Time::MAX } else { self.deadline }
    }

    /// Takes `runs` tokens at `now`. Service before the deadline is a gift from the others' slack. It is not held
    /// against the account: its next run is due one interval from now and no later.
    pub fn take(&mut self, now: Time, runs: u64) {
        self.deadline = self.deadline.min(now) + self.span_per_run * runs;
    }

    /// The account asks again after it had nothing to ask since `idle_since`. Time without a wish earns nothing.
    /// Earlier debts to it stay, less the time that it idled and at most a quarter of a second.
    pub fn wake(&mut self, now: Time, idle_since: Time) {
        let owed = idle_since.since(self.deadline).saturating_sub(now.since(idle_since)).min(RESERVE_CATCH_UP_MAX);
        self.deadline = self.deadline.max(now.saturating_sub(owed));
    }

    /// The next run is not due before `release`: "the release time can never be later than the deadline" (section 4).
    pub fn not_before(&mut self, release: Time) {
        self.deadline = self.deadline.max(release);
    }

    /// The same account with another reserve.
    pub fn change(&mut self, runs_per_second: f64, now: Time) {
        let fresh = ReserveBucket::new(runs_per_second, now);
        let was_reserved = self.span_per_run != Span::ZERO;
        self.span_per_run = fresh.span_per_run;
        self.deadline = if was_reserved { self.deadline.min(now + fresh.span_per_run) } else { now };
    }
}

/// The time before which an account may not be served, so that it stays under its limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitBucket {
    /// Nanoseconds for a run, or, below zero, for a byte: one number, so that an account fits a line of memory. Zero
    /// stands for "no limit".
    nanoseconds_per_run_or_minus_byte: f64,
    release: Time,
}

impl LimitBucket {
    /// No limit.
    pub const EMPTY: LimitBucket = LimitBucket { nanoseconds_per_run_or_minus_byte: 0.0, release: Time::ZERO };

    /// A bucket that holds its first token at once. Percentages are of `device_runs_per_second`.
    pub fn new(limit: Option<Rate>, device_runs_per_second: f64) -> LimitBucket {
        let nanoseconds_per_run_or_minus_byte = match limit {
            None => 0.0,
            Some(Rate::BytesPerSecond(bytes)) => -1e9 / bytes,
            Some(rate) => 1e9 / rate.runs_per_second(device_runs_per_second),
        };
        LimitBucket { nanoseconds_per_run_or_minus_byte, release: Time::ZERO }
    }

    /// Before this time the account may not be served; [`Time::ZERO`] while there is no limit.
    pub fn release(&self) -> Time {
        self.release
    }

    /// Takes what a request of so many runs and bytes costs.
    pub fn take(&mut self, now: Time, runs: u64, bytes: u64) {
        let per_unit = self.nanoseconds_per_run_or_minus_byte;
        if per_unit == 0.0 {
            return;
        }
        let units = if per_unit > 0.0 { runs } else { bytes };
        let filled_by = self.release.max(now.saturating_sub(LIMIT_CATCH_UP_MAX));
        self.release = filled_by + Span::from_nanos((units as f64 * per_unit.abs()) as u64);
    }

    /// The same account with another limit: at most one full run of the new limit stands in its way.
    pub fn change(&mut self, limit: Option<Rate>, device_runs_per_second: f64, now: Time) {
        let held_until = self.release;
        *self = LimitBucket::new(limit, device_runs_per_second);
        self.take(now, 1, RUN_BYTES_MAX);
        self.release = self.release.min(held_until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    #[test]
    fn service_ahead_of_the_deadline_is_a_gift() {
        let mut bucket = ReserveBucket::new(10.0 / RESERVE_HEADROOM, at(0));
        (0..50).for_each(|_| bucket.take(at(0), 1));
        assert_eq!(bucket.deadline(), at(100), "fifty gifts do not push the next deadline away");
    }

    #[test]
    fn lateness_is_owed_and_fades_while_nothing_is_asked() {
        let owed_after = |idle_ms: u64| {
            let mut bucket = ReserveBucket::new(10.0 / RESERVE_HEADROOM, at(0));
            bucket.wake(at(200 + idle_ms), at(200));
            at(200 + idle_ms).since(bucket.deadline())
        };
        assert_eq!(owed_after(0), Span::from_millis(200));
        assert_eq!(owed_after(150), Span::from_millis(50));
        assert_eq!(owed_after(3_600_000), Span::ZERO, "an hour asleep earns nothing");
    }

    #[test]
    fn a_lower_reserve_or_limit_takes_effect_within_one_run() {
        let mut reserve = ReserveBucket::new(0.001, at(0));
        reserve.take(at(0), 1);
        reserve.change(10.0 / RESERVE_HEADROOM, at(50));
        assert_eq!(reserve.deadline(), at(150));
        let mut limit = LimitBucket::new(Some(Rate::RunsPerSecond(0.001)), 100.0);
        limit.take(at(0), 1, 512);
        limit.change(Some(Rate::RunsPerSecond(10.0)), 100.0, at(50)); // the catch-up of 18 ms included
        assert_eq!(limit.release(), at(132));
        limit.change(None, 100.0, at(60));
        assert_eq!(limit.release(), Time::ZERO);
    }

    proptest! {
        /// However the asking is spread: no second holds more than the limit, one token and the catch-up.
        #[test]
        fn no_second_exceeds_the_limit(rate in 5.0f64..500.0, gaps in proptest::collection::vec(0u64..60_000, 50..400)) {
            let mut bucket = LimitBucket::new(Some(Rate::RunsPerSecond(rate)), 100.0);
            let (mut now, mut served) = (Time::ZERO, Vec::new());
            for gap in gaps {
                now = now.max(bucket.release()) + Span::from_micros(if gap > 30_000 { gap } else { 0 });
                bucket.take(now, 1, 512);
                served.push(now);
            }
            for (index, &start) in served.iter().enumerate() {
                let in_second = served[index..].iter().take_while(|&&t| t.since(start) < Span::from_secs(1)).count();
                prop_assert!(in_second as f64 <= (rate * 1.018).floor() + 1.0, "{in_second} in a second at {rate}/s");
            }
        }
    }
}
