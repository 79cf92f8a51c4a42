//! Telling the log what the tags have lost.
//!
//! Tables and rings are bounded. An entry without room is counted and dropped. For example, a tenant that forks without
//! end makes every tenant's new processes count as others. An operator would not know why the books are off. So the
//! housekeeping thread logs losses: at once for the first one, and then once in [`TOLD_EVERY`] as long as there are
//! more.

use plimsoll_core::{Span, Time};
use plimsoll_tags::Losses;

/// How often the log is told.
const TOLD_EVERY: Span = Span::from_secs(60);

/// What was told of some tags already.
#[derive(Default)]
pub(crate) struct LossLog {
    told: Losses,
    told_at: Option<Time>,
}

impl LossLog {
    /// A line for the log, if it is time for one.
    pub(crate) fn look(&mut self, now: Time, losses: Losses) -> Option<String> {
        if losses == self.told || self.told_at.is_some_and(|at| now.since(at) < TOLD_EVERY) {
            return None;
        }
        let since = match self.told_at {
            None => "since they were loaded".to_owned(),
            Some(at) => format!("in the last {}", now.since(at)),
        };
        let Losses { entries, events, registrations } = self.told;
        let lost = [
            (losses.registrations - registrations, REGISTRATIONS),
            (losses.events - events, EVENTS),
            (losses.entries - entries, ENTRIES),
        ];
        let lost = lost.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let line = format!("tags have found no room {since} for {}", lost.collect::<Vec<_>>().join("; for "));
        (self.told, self.told_at) = (losses, Some(now));
        Some(line)
    }
}

const REGISTRATIONS: &str =
    "processes or threads that tenants have started: they and all that they start are charged to the others";
const EVENTS: &str =
    "events: the pages, requests and calls in them are charged to no account, and limits let so much more pass";
const ENTRIES: &str =
    "dirty pages or blocks of metadata: they are charged to the last writers of their file, or to no account";

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken on purpose and seen red: a line for each look at which something was lost.
    #[test]
    fn a_loss_is_told_at_once_and_what_follows_once_a_minute() {
        let (mut log, at) = (LossLog::default(), |seconds| Time::ZERO + Span::from_secs(seconds));
        let lost = |entries, events, registrations| Losses { entries, events, registrations };
        assert_eq!(log.look(at(0), lost(0, 0, 0)), None);
        let first = log.look(at(1), lost(0, 0, 3)).unwrap();
        assert_eq!(first, format!("tags have found no room since they were loaded for 3 {REGISTRATIONS}"));
        assert_eq!(log.look(at(2), lost(0, 5, 4)), None, "too soon");
        assert_eq!(log.look(at(60), lost(2, 6, 4)), None);
        let second = log.look(at(61), lost(2, 7, 4)).unwrap();
        let expected =
            format!("tags have found no room in the last 60 s for 1 {REGISTRATIONS}; for 7 {EVENTS}; for 2 {ENTRIES}");
        assert_eq!(second, expected);
        assert_eq!(log.look(at(1000), lost(2, 7, 4)), None, "nothing more");
        assert!(log.look(at(1001), lost(2, 8, 4)).unwrap().contains("in the last 940 s for 1 events"));
    }
}
