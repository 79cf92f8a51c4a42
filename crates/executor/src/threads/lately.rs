//! When a service thread ran maintenance lately: what of a client's wait that was.
//!
//! A client's request waits for other clients, in an order that the rules decide, or for a started step of maintenance,
//! which no rule shortens. **Rule.** The thread keeps its last runs of maintenance. The part of a client's wait that
//! overlaps with them was behind maintenance. **Complication.** With several threads a request waits for whichever is
//! free first: the maintenance that counts is that of the thread that took the request.

use plimsoll_core::{Span, Time};

/// Runs that are kept. A turn of maintenance ends with the run in which a client comes, so few are in one's wait.
const RUNS: usize = 16;

/// The last runs of maintenance of one thread.
#[derive(Debug)]
pub(super) struct Lately {
    /// From when until when; the oldest is overwritten.
    runs: [(Time, Time); RUNS],
    next: usize,
}

impl Default for Lately {
    fn default() -> Lately {
        Lately { runs: [(Time::ZERO, Time::ZERO); RUNS], next: 0 }
    }
}

impl Lately {
    /// Maintenance has run. Runs come in their order. O(1).
    pub(super) fn ran(&mut self, from: Time, until: Time) {
        self.runs[self.next] = (from, until);
        self.next = (self.next + 1) % RUNS;
    }

    /// How long of the time from `since` on maintenance ran. O(runs since then).
    pub(super) fn since(&self, since: Time) -> Span {
        let newest_first = (1..=RUNS).map(|back| self.runs[(self.next + RUNS - back) % RUNS]);
        let runs = newest_first.take_while(|&(_, until)| until > since);
        runs.map(|(from, until)| until.since(from.max(since))).fold(Span::ZERO, |sum, run| sum + run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted breaks: a run that had begun before counts whole; the oldest one counts first.
    #[test]
    fn what_ran_since_then_counts_and_no_more_of_it() {
        let at = |microseconds| Time::ZERO + Span::from_micros(microseconds);
        let mut lately = Lately::default();
        assert_eq!(lately.since(Time::ZERO), Span::ZERO);
        for number in 0..20 {
            lately.ran(at(100 * number), at(100 * number + 70));
        }
        assert_eq!(lately.since(at(1970)), Span::ZERO);
        assert_eq!(lately.since(at(1950)), Span::from_micros(20));
        assert_eq!(lately.since(at(1880)), Span::from_micros(70));
        assert_eq!(lately.since(at(1750)), Span::from_micros(20 + 2 * 70));
        assert_eq!(lately.since(Time::ZERO), Span::from_micros(16 * 70), "older ones are forgotten");
    }
}
