//! A token bucket of bytes that may go into debt, for schedulers that charge an I/O's cost after the I/O.
//!
//! **Intuition.** What an I/O costs is known when it is too late to refuse it. So an account with tokens, or with none
//! but no debt, may go and pays any cost. Its next I/O waits until the debt is paid. **Rule.** The balance grows at a
//! rate up to what [`BURST`] brings, or to some bytes if they are more. It is kept as one point in time, at which it is
//! zero again if nothing more is taken. It needs no timer and no count: reading it tells how long an account waits.
//! **Complication.** What was taken by a guess may come back.

use plimsoll_core::{Span, Time};

/// For how long a balance grows at the most. Longer than a call takes on a busy disk (tens of milliseconds), so a
/// process that always has a next call loses no tokens meanwhile. Short, so that an idle hour earns no burst.
pub const BURST: Span = Span::from_millis(100);

/// See the module's text. All is O(1).
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    nanoseconds_per_byte: f64,
    zero_at: Time,
    /// Bytes that may be saved up, even if [`BURST`] brings less.
    saved_bytes: f64,
}

impl Balance {
    /// A balance that grows at a rate, without tokens at `now`.
    pub fn new(now: Time, bytes_per_second: f64) -> Balance {
        Balance { nanoseconds_per_byte: 1e9 / bytes_per_second, zero_at: now, saved_bytes: 0.0 }
    }

    /// The same, where so many bytes may be saved up at least.
    pub fn saving(self, saved_bytes: f64) -> Balance {
        Balance { saved_bytes, ..self }
    }

    /// The same debt in bytes at another rate; an account with tokens begins without.
    pub fn at_rate(&self, now: Time, bytes_per_second: f64) -> Balance {
        let mut balance = Balance::new(now, bytes_per_second).saving(self.saved_bytes);
        balance.take(now, self.zero_at.since(now).as_nanos() as f64 / self.nanoseconds_per_byte);
        balance
    }

    /// When it is zero, or was: it is negative before.
    pub fn zero_at(&self) -> Time {
        self.zero_at
    }

    /// Takes so many bytes; gives them back if they are negative.
    pub fn take(&mut self, now: Time, bytes: f64) {
        let lasts = |bytes: f64| Span::from_nanos((bytes * self.nanoseconds_per_byte).round() as u64);
        let span = lasts(bytes.abs());
        let full_at = now.saturating_sub(lasts(self.saved_bytes).max(BURST));
        self.zero_at = match bytes < 0.0 {
            true => self.zero_at.saturating_sub(span).max(full_at),
            false => self.zero_at.max(full_at) + span,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle counts tokens, millisecond by millisecond.
        #[test]
        fn agrees_with_counting(
            rate in 1u64..1000,
            saved in 0u64..5000,
            steps in proptest::collection::vec((0u64..50, -300i64..600), 1..100),
        ) {
            let burst = (rate * BURST.as_nanos() / 1_000_000).max(saved) as i64;
            let (mut now, mut tokens) = (Time::ZERO + Span::from_secs(10), 0);
            let mut balance = Balance::new(now, 1000.0 * rate as f64).saving(saved as f64);
            for (milliseconds, bytes) in steps {
                for _ in 0..milliseconds {
                    tokens = burst.min(tokens + rate as i64);
                    now += Span::from_millis(1);
                }
                balance.take(now, bytes as f64);
                tokens = burst.min(tokens - bytes);
                let debt = balance.zero_at().as_nanos() as f64 - now.as_nanos() as f64;
                prop_assert!((debt * rate as f64 / 1e6 + tokens as f64).abs() < 1.0, "{debt} ns, {tokens} tokens");
                let half = balance.at_rate(now, 500.0 * rate as f64).zero_at().since(now).as_nanos() as f64;
                prop_assert!((half - 2.0 * debt.max(0.0)).abs() < 2.0, "a debt stays the same in bytes");
            }
        }
    }
}
