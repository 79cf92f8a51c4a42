//! Says when a service thread does not come back from a request, and when it does.
//!
//! **Rule.** A run that takes longer than any step is reported, and again each time that it has taken twice as long.
//! When its thread continues, that is reported once. A thread of the executor's owner has to look, once a second or so.
//! Service threads cannot, since the stuck thread may be the only one. **Complication.** A thread that was without a
//! processor for long looks the same, so patience is long.

use super::Figures;
use plimsoll_core::{Span, Time};

/// What is known of the service threads of one executor.
#[derive(Clone, Debug)]
pub struct Watch {
    patience: Span,
    /// By thread: the beginning of a reported run, and the time until the next report.
    stuck: Vec<Option<(Time, Span)>>,
}

/// What is to be told of a service thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// It has been at one run for so long, and nothing else is run by it meanwhile.
    Stuck {
        /// Its number.
        thread: usize,
        /// For how long.
        ran: Span,
    },
    /// It continues after a reported run, which took at most so long.
    GoesOn {
        /// Its number.
        thread: usize,
        /// How long.
        ran: Span,
    },
}

impl Watch {
    /// Tells of runs that take `patience` and more.
    pub fn new(patience: Span) -> Watch {
        Watch { patience, stuck: Vec::new() }
    }

    /// How many threads are at a run that was told of. O(threads).
    pub fn stuck_count(&self) -> usize {
        self.stuck.iter().flatten().count()
    }

    /// Looks at figures that are newer than the last ones. O(threads).
    pub fn look(&mut self, figures: &Figures) -> Vec<Watched> {
        self.stuck.resize(figures.threads.len(), None);
        let mut changes = Vec::new();
        for (thread, (figures_of, stuck)) in figures.threads.iter().zip(&mut self.stuck).enumerate() {
            let since = figures_of.running_since;
            if let Some((began, _)) = *stuck
                && since != Some(began)
            {
                changes.push(Watched::GoesOn { thread, ran: figures.at.since(began) });
                *stuck = None;
            }
            let Some(since) = since else { continue };
            let (ran, patience) = (figures.at.since(since), stuck.map_or(self.patience, |(_, again)| again));
            if ran >= patience {
                changes.push(Watched::Stuck { thread, ran });
                *stuck = Some((since, ran * 2));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThreadFigures;

    fn seconds(count: u64) -> Time {
        Time::ZERO + Span::from_secs(count)
    }

    fn look(watch: &mut Watch, at: u64, running: [Option<u64>; 2]) -> Vec<Watched> {
        let thread = |since: Option<u64>| ThreadFigures { running_since: since.map(seconds), ..Default::default() };
        watch.look(&Figures { threads: running.map(thread).to_vec(), at: seconds(at), ..Figures::default() })
    }

    /// Planted breaks: it is told of at each look; another run of the same thread is taken for the same one.
    /// Promise: executor-stuck.
    #[test]
    fn a_run_that_does_not_end_is_told_of_ever_more_seldom_and_its_end_once() {
        let mut watch = Watch::new(Span::from_secs(10));
        let stuck = |thread, ran| vec![Watched::Stuck { thread, ran: Span::from_secs(ran) }];
        assert_eq!(look(&mut watch, 9, [Some(0), Some(8)]), vec![]);
        assert_eq!(look(&mut watch, 10, [Some(0), Some(9)]), stuck(0, 10));
        assert_eq!(look(&mut watch, 19, [Some(0), Some(10)]), vec![]);
        assert_eq!(look(&mut watch, 21, [Some(0), Some(11)]), [stuck(0, 21), stuck(1, 10)].concat());
        assert_eq!(
            look(&mut watch, 41, [Some(0), None]),
            vec![Watched::GoesOn { thread: 1, ran: Span::from_secs(30) }]
        );
        assert_eq!(look(&mut watch, 42, [Some(0), Some(41)]), stuck(0, 42));
        let goes_on = vec![Watched::GoesOn { thread: 0, ran: Span::from_secs(43) }];
        assert_eq!(look(&mut watch, 43, [Some(42), Some(41)]), goes_on, "with another run");
        assert_eq!(look(&mut watch, 51, [Some(42), None]), vec![]);
        assert_eq!(look(&mut watch, 52, [Some(42), None]), stuck(0, 10));
    }
}
