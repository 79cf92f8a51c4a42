//! Whether an account with nothing under way will want the disk again at once (anticipatory scheduling: Iyer and
//! Druschel, SOSP 2001).
//!
//! **Intuition.** An account that reads or syncs a file asks for the next block right after it has the last one. In
//! between it wants nothing. A disk that turns to others then goes there and back for each of its blocks. **Rule.** A
//! served account contends for a moment more: it *lingers*. A waiting account contends in any case, and one in a call
//! that writes as long as it makes clean pages dirty. **Complication.** An account that did not come back in time is
//! not waited for until it has been back soon once more.
//!
//! All is O(1).

use plimsoll_core::{Span, Time};

/// How long a call that writes contends after it last made a clean page dirty. That is longer than a pause of the
/// kernel's throttling (`MAX_PAUSE`, 200 ms).
pub const STALE: Span = Span::from_millis(500);

/// What is known of an account; it does nothing at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anticipation {
    contends_until: Time,
    is_writing: bool,
    /// When it last made something dirty that was clean, and when it was last served.
    wrote: Time,
    served: Time,
    /// Whether it came back soon the last time.
    comes_back: bool,
}

impl Anticipation {
    /// Until when it contends, if nothing happens; [`Time::MAX`] while it waits.
    pub fn contends_until(&self) -> Time {
        self.contends_until
    }

    /// Whether it has nothing under way, and contends, if it does, because it will come back.
    pub fn is_lingering(&self) -> bool {
        self.contends_until < Time::MAX && !self.is_writing
    }

    /// The account made something dirty that was clean.
    pub fn has_written(&mut self, now: Time) {
        self.wrote = now;
    }

    /// The account was served.
    pub fn was_served(&mut self, now: Time) {
        self.served = now;
    }

    /// Sets its state: whether it waits for the disk, and whether it is in a call that writes.
    pub fn does(&mut self, is_waiting: bool, is_writing: bool, linger: Span) {
        self.is_writing = is_writing;
        self.contends_until = match (is_waiting, is_writing) {
            (true, _) => Time::MAX,
            (_, true) => self.wrote + STALE,
            _ if self.comes_back => self.served + linger,
            _ => Time::ZERO,
        };
    }

    /// The account wants the disk again, or is waited for no longer. Answers how long it was, if it was lingering.
    pub fn stop_lingering(&mut self, now: Time, wants_it: bool, linger: Span) -> Option<Span> {
        let (was_lingering, away) = (self.is_lingering(), now.since(self.served));
        self.comes_back = wants_it && (away <= linger || (self.comes_back && !was_lingering));
        was_lingering.then_some(away.min(linger))
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and that turned the test red: an account that did not come back is not forgotten; a
    //! waiting account contends only as long as a lingering one.

    use super::*;

    const LINGER: Span = Span::from_millis(8);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    /// The account asks for something at one time and has it at another. Answers how long it was waited for, and until
    /// when it will be.
    fn serve(him: &mut Anticipation, from: u64, to: u64) -> (Option<Span>, Time) {
        let waited = him.stop_lingering(at(from), true, LINGER);
        him.does(true, false, LINGER);
        assert_eq!((him.contends_until(), him.is_lingering()), (Time::MAX, false));
        him.was_served(at(to));
        him.does(false, false, LINGER);
        (waited, him.contends_until())
    }

    #[test]
    fn an_account_that_comes_back_soon_is_waited_for_until_it_does_not() {
        let mut him = Anticipation::default();
        assert_eq!(serve(&mut him, 100, 110), (Some(LINGER), Time::ZERO), "its account has no history");
        assert_eq!(serve(&mut him, 115, 120), (Some(Span::from_millis(5)), at(128)));
        assert_eq!(him.stop_lingering(at(128), false, LINGER), Some(LINGER));
        him.does(false, false, LINGER);
        assert_eq!(him.contends_until(), Time::ZERO);
        assert_eq!(serve(&mut him, 200, 210).1, Time::ZERO, "he was away for long");
        assert_eq!(serve(&mut him, 211, 212).1, at(220));
    }

    #[test]
    fn a_writer_contends_while_it_dirties_clean_pages() {
        let mut him = Anticipation::default();
        him.has_written(at(50));
        him.does(false, true, LINGER);
        assert_eq!((him.contends_until(), him.is_lingering()), (at(50) + STALE, false));
        him.has_written(at(60));
        him.does(true, true, LINGER);
        assert_eq!(him.contends_until(), Time::MAX);
        him.does(false, false, LINGER);
        assert_eq!((him.contends_until(), him.is_lingering()), (Time::ZERO, true));
    }
}
