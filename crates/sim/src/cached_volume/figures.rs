//! What a cached volume counts, in blocks, by class.

use plimsoll_cache::Outcome;
use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;

/// One class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Blocks read.
    pub reads: u64,
    /// Of them those that were in the cache.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Of them those that were in the cache.
    pub write_hits: u64,
    /// Blocks that were not in the cache and came in.
    pub taken: u64,
    /// Units that it has in the cache's order now: what is free or being cleaned does not count.
    pub units: u64,
}

/// All classes, and the syncer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// By number.
    pub classes: [ClassCounts; CLASSES],
    /// Units that the syncer wrote back.
    pub cleaned: u64,
}

impl CacheFigures {
    /// Counts an access; `None` for one that the cache was not asked about.
    pub(super) fn count(&mut self, class: Class, is_write: bool, outcome: Option<Outcome>) {
        let counts = &mut self.classes[usize::from(class.number())];
        let is_hit = u64::from(matches!(outcome, Some(Outcome::Hit(_))));
        counts.taken += u64::from(matches!(outcome, Some(Outcome::Taken(_))));
        if is_write {
            counts.writes += 1;
            counts.write_hits += is_hit;
        } else {
            counts.reads += 1;
            counts.read_hits += is_hit;
        }
    }

    /// What was counted since `before`; units are those of now.
    pub fn since(&self, before: &CacheFigures) -> CacheFigures {
        let mut since = self.clone();
        since.cleaned -= before.cleaned;
        for (counts, before) in since.classes.iter_mut().zip(&before.classes) {
            counts.reads -= before.reads;
            counts.read_hits -= before.read_hits;
            counts.writes -= before.writes;
            counts.write_hits -= before.write_hits;
            counts.taken -= before.taken;
        }
        since
    }

    /// The sum over all classes.
    pub fn sum(&self, of: impl Fn(&ClassCounts) -> u64) -> u64 {
        self.classes.iter().map(of).sum()
    }

    /// The part of the blocks read that were in the cache, 0 to 1; 0 if none was read.
    pub fn read_hit_part(&self) -> f64 {
        part(self.sum(|counts| counts.read_hits), self.sum(|counts| counts.reads))
    }

    /// The part of all moved blocks that the syncer moved (Differentiated Storage Services, section 5.3). It moves two
    /// for each cleaned unit: out of the cache and to the store.
    pub fn syncer_part(&self) -> f64 {
        let moved = self.cleaned * 2;
        part(moved, moved + self.sum(|counts| counts.reads + counts.writes))
    }
}

fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}
