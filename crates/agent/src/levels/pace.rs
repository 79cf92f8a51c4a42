//! How long to wait until the next look at what happened.
//!
//! A look takes a busy processor some thirty microseconds, with its effect on the thread that it displaces. One each
//! millisecond is two to three per cent of a write with its fsync on a disk in memory (`docs/tags.md`). An agent that
//! learns of a write a millisecond later lets that much more happen before it closes a gate. So while many events come,
//! or a call waits for another's I/O to be seen, a look follows each [`FETCH_BUSY`]. That also holds for a while
//! afterwards, and after a silence, since the coming load is not known yet. Else it is each [`FETCH_QUIET`].

use plimsoll_core::{Span, Time};
use plimsoll_tags::{BLOCK_BYTES, Event};

/// How long until the next look, while much happens or a call waits.
pub const FETCH_BUSY: Span = Span::from_millis(1);
/// How long else: no longer, as a new writer is seen so much later then.
pub const FETCH_QUIET: Span = Span::from_millis(5);
/// How long it stays busy after the last time that it was.
const BUSY_LASTS: Span = Span::from_millis(100);
/// Bytes in [`FETCH_QUIET`] that are much: more than 800 MB/s.
const MUCH_BYTES: u64 = 4 << 20;

/// See the [module's text](self). O(1).
#[derive(Debug)]
pub struct Pace {
    /// When to look next; never: whatever comes next wakes us.
    at: Time,
    is_silent: bool,
    busy_until: Time,
    /// Since when `bytes` are counted.
    since: Time,
    bytes: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { at: Time::ZERO, is_silent: true, busy_until: Time::ZERO, since: Time::ZERO, bytes: 0 }
    }
}

impl Pace {
    /// A look has found this.
    pub fn found(&mut self, event: &Event) {
        self.bytes += match *event {
            Event::Dirtied { pages, .. } => u64::from(pages) * BLOCK_BYTES,
            Event::Issued { bytes, .. } => u64::from(bytes),
            _ => 0,
        };
    }

    /// When to look again after a look that found something, which is the next time.
    pub fn next(&mut self, now: Time, is_anybody_waiting: bool) -> Time {
        if std::mem::take(&mut self.is_silent) || is_anybody_waiting || self.bytes > MUCH_BYTES {
            self.busy_until = now + BUSY_LASTS;
        }
        if now.since(self.since) >= FETCH_QUIET {
            (self.since, self.bytes) = (now, 0);
        }
        self.at = now + if now < self.busy_until { FETCH_BUSY } else { FETCH_QUIET };
        self.at
    }

    /// A look has found nothing. Says whether that is a silence, so that the next event has to wake the thread. A look
    /// before its time is none, as in turns that began for another reason.
    pub fn is_silence(&mut self, now: Time) -> bool {
        let is_silence = now >= self.at || self.at == Time::MAX;
        if is_silence {
            (self.at, self.is_silent) = (Time::MAX, true);
        }
        is_silence
    }

    /// There may be more events: the next look follows as soon as others have had their turn.
    pub fn at_once(&mut self, now: Time) {
        self.at = now;
    }

    /// When the next look is due.
    pub fn at(&self) -> Time {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirtied(pages: u32) -> Event {
        Event::Dirtied { time_ns: 0, inode: 1, first_page: 0, pages, causes: 1, previous: 0 }
    }

    /// Looks from `now` until `until`, each of which finds `pages` dirtied for each millisecond; says how long the
    /// pauses were.
    fn look(pace: &mut Pace, mut now: Time, until: Time, pages: u64, is_anybody_waiting: bool) -> Vec<Span> {
        let mut pauses = Vec::new();
        let mut found = pages;
        while now < until {
            pace.found(&dirtied(found as u32));
            let next = pace.next(now, is_anybody_waiting);
            pauses.push(next.since(now));
            found = pages * next.since(now).as_nanos() / Span::from_millis(1).as_nanos();
            now = next;
        }
        pauses
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Span::from_millis(milliseconds)
    }

    /// Planted breaks: it is never quiet; never busy; not busy after a silence; busy no longer than much happens;
    /// waiters and bytes not looked at; bytes counted for ever.
    #[test]
    fn looks_are_rare_while_little_happens_and_no_call_waits() {
        let mut pace = Pace::default();
        let pauses = look(&mut pace, at(1000), at(2000), 50, false);
        assert_eq!(pauses[..100], [FETCH_BUSY; 100], "what comes after a silence is not known");
        assert!(pauses[100..].iter().all(|&pause| pause == FETCH_QUIET), "{pauses:?}");
        assert_eq!(look(&mut pace, at(2000), at(2050), 50, true), [FETCH_BUSY; 50], "somebody waits");
        assert_eq!(look(&mut pace, at(2050), at(2149), 50, false), [FETCH_BUSY; 99], "and has until now");
        assert_eq!(look(&mut pace, at(2149), at(2189), 50, false), [FETCH_QUIET; 8]);
        assert_eq!(look(&mut pace, at(2189), at(2190), 2000, false), [FETCH_BUSY], "8 MB");
        assert_eq!(look(&mut pace, at(2190), at(2489), 200, false)[99..], [FETCH_QUIET; 40], "little again");
        assert!(pace.is_silence(at(3000)));
        assert_eq!(look(&mut pace, at(9000), at(9100), 1, false), [FETCH_BUSY; 100]);
    }

    /// Planted breaks: a look before its time is a silence; one that is due is none.
    #[test]
    fn a_look_before_its_time_that_finds_nothing_is_no_silence() {
        let mut pace = Pace::default();
        look(&mut pace, at(1000), at(1200), 1, false);
        let due = pace.at();
        assert_eq!(due, at(1200));
        assert!(!pace.is_silence(at(1199)));
        assert_eq!(pace.at(), due, "it is due as before");
        assert!(pace.is_silence(due));
        assert_eq!(pace.at(), Time::MAX);
        assert!(pace.is_silence(at(1201)), "and still is one");
        pace.at_once(at(1300));
        assert_eq!(pace.at(), at(1300));
        assert_eq!(pace.next(at(1300), false), at(1301), "what comes after a silence is not known");
    }

    #[test]
    fn what_is_read_counts_and_what_only_ends_does_not() {
        let (time_ns, id, sector, bytes) = (0, 1, 0, 5 << 20);
        let issued = Event::Issued {
            time_ns,
            id,
            sector,
            bytes,
            operation: 0,
            causes: 1,
            class: Default::default(),
            is_sync: false,
            inode: 1,
        };
        let completed = Event::Completed { time_ns, id, sector, bytes, status: 0 };
        for (event, pause) in [(issued, FETCH_BUSY), (completed, FETCH_QUIET)] {
            let mut pace = Pace::default();
            look(&mut pace, at(1000), at(1200), 1, false);
            pace.found(&event);
            assert_eq!(pace.next(at(1203), false), at(1203) + pause);
        }
    }
}
