//! The syncer's way through the devices: units out of the cache, in the order of the store, and back to the store.

use super::CLEANING_RUN_UNITS_MAX;
use plimsoll_cache::{CleanJob, UnitId};

/// Jobs that wait for their turn, and runs under way.
#[derive(Default)]
pub(super) struct Syncer {
    /// In falling order of their blocks, the next one last.
    pub(super) waiting: Vec<CleanJob>,
    pub(super) runs: Vec<StoreRun>,
    pub(super) under_way: usize,
}

/// Neighbours on the store that are written back at once.
#[derive(Default)]
pub(super) struct StoreRun {
    pub(super) first_block: u64,
    pub(super) units: Vec<UnitId>,
    /// Reads from the fast device that are not done yet.
    pub(super) reads: u32,
}

impl Syncer {
    /// The next neighbours among the jobs that wait.
    pub(super) fn next_run(&mut self) -> Option<StoreRun> {
        let first = self.waiting.pop()?;
        let mut run = StoreRun { first_block: first.block, units: vec![first.unit], reads: 0 };
        while run.units.len() < CLEANING_RUN_UNITS_MAX
            && let Some(next) = self.waiting.pop_if(|job| job.block == run.first_block + run.units.len() as u64)
        {
            run.units.push(next.unit);
        }
        Some(run)
    }

    /// Gives the run a number that no other run has.
    pub(super) fn keep(&mut self, run: StoreRun) -> usize {
        self.under_way += 1;
        match self.runs.iter().position(|other| other.units.is_empty()) {
            Some(free) => {
                self.runs[free] = run;
                free
            }
            None => {
                self.runs.push(run);
                self.runs.len() - 1
            }
        }
    }
}
