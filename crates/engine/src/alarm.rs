//! Alarm of a device that is slower than its promises.
//!
//! **Intuition.** A drive that was measured may grow slower: it is full, it is dying, its host is busy. Then not all
//! reserves can be kept; a scheduler lets all fall behind alike and says by how much time ([`Scheduler::overload`]).
//! **Rule.** Once a second the engine looks at the part of the reserves that was kept since. A second in which more
//! than a hundredth was lost raises the alarm; a second without such a loss ends it. **Complication.** An engine that
//! has nothing to do takes no turns. What it looks at then is the whole pause, in which no tenant missed anything.
//!
//! [`Scheduler::overload`]: plimsoll_core::Scheduler::overload

use plimsoll_core::{Span, Time};

/// How often the reserves are looked at.
const WINDOW: Span = Span::from_secs(1);
/// Part of the reserves that may be lost without an alarm. Completions scatter around deadlines.
const LOST_PART_MAX: f64 = 0.01;

/// The alarm of one device.
pub(super) struct Alarm {
    window_start: Time,
    /// How far reserves had fallen behind when the window began.
    overload_before: Span,
    kept_part: f64,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// All reserves get this part of what was promised.
    Raised(f64),
    Ended,
}

impl Alarm {
    pub(super) fn new(now: Time) -> Alarm {
        Alarm { window_start: now, overload_before: Span::ZERO, kept_part: 1.0 }
    }

    /// Part of their reserves that accounts had in the last window. It is 1 where promises hold.
    pub(super) fn kept_part(&self) -> f64 {
        self.kept_part
    }

    /// Looks at what reserves have fallen behind in all, `overload`, once a window.
    pub(super) fn look(&mut self, now: Time, overload: Span) -> Option<Change> {
        let window = now.since(self.window_start);
        if window < WINDOW {
            return None;
        }
        // A scheduler that has just taken over begins anew.
        let lost = overload.saturating_sub(self.overload_before).as_secs_f64() / window.as_secs_f64();
        let kept_part = if lost > LOST_PART_MAX { (1.0 - lost).max(0.0) } else { 1.0 };
        let before = std::mem::replace(&mut self.kept_part, kept_part);
        (self.window_start, self.overload_before) = (now, overload);
        match (before < 1.0, kept_part < 1.0) {
            (false, true) => Some(Change::Raised(kept_part)),
            (true, false) => Some(Change::Ended),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    /// Planted break that was seen red: what was lost since the start counts in every window.
    #[test]
    fn it_is_raised_once_and_ends_once() {
        let mut alarm = Alarm::new(at(0));
        let overload = Span::from_millis;
        assert_eq!(alarm.look(at(999), overload(500)), None, "a window is a second");
        assert_eq!(alarm.look(at(1000), overload(5)), None, "completions scatter");
        assert_eq!(alarm.look(at(2000), overload(405)), Some(Change::Raised(0.6)));
        assert_eq!(alarm.look(at(4000), overload(1405)), None);
        assert_eq!(alarm.kept_part(), 0.5);
        assert_eq!(alarm.look(at(5000), overload(5)), Some(Change::Ended), "another scheduler");
        assert_eq!(alarm.look(at(6000), overload(5)), None);
        assert_eq!(alarm.kept_part(), 1.0);
        assert_eq!(alarm.look(at(7000), overload(5000)), Some(Change::Raised(0.0)));
    }
}
