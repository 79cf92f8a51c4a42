//! The syncer's way through the devices: units out of the cache, in the order of the store, and back to the store.

use super::{CLEANING_RUN_UNITS_MAX, CLEANING_RUNS_MAX, CLEANING_WINDOW, CachedVolumeState, Piece, Side};
use plimsoll_cache::{CleanJob, UnitId};
use plimsoll_core::{Operation, Time};

/// Jobs that wait for their turn, and runs under way.
#[derive(Default)]
pub(super) struct Syncer {
    /// In falling order of their blocks, the next one last.
    waiting: Vec<CleanJob>,
    runs: Vec<StoreRun>,
    under_way: usize,
}

/// Neighbours on the store that are written back at once.
#[derive(Default)]
struct StoreRun {
    first_block: u64,
    units: Vec<UnitId>,
    /// Reads from the fast device that are not done yet.
    reads: u32,
}

impl Syncer {
    /// The next neighbours among the jobs that wait.
    fn next_run(&mut self) -> Option<StoreRun> {
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
    fn keep(&mut self, run: StoreRun) -> usize {
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

impl CachedVolumeState {
    /// Starts as many runs as may be under way.
    pub(super) fn clean(&mut self, now: Time) {
        while self.syncer.under_way < CLEANING_RUNS_MAX {
            if self.syncer.waiting.is_empty() {
                let cache = &mut self.cache;
                let jobs = std::iter::from_fn(|| cache.clean_next()).take(CLEANING_WINDOW);
                self.syncer.waiting.extend(jobs);
                self.syncer.waiting.sort_unstable_by_key(|job| std::cmp::Reverse(job.block));
            }
            let Some(run) = self.syncer.next_run() else { break };
            let number = self.syncer.keep(run);
            self.read_run(now, number);
        }
    }

    fn read_run(&mut self, now: Time, number: usize) {
        let units = self.syncer.runs[number].units.clone();
        for stretch in units.chunk_by(|a, b| a.0 + 1 == b.0) {
            self.syncer.runs[number].reads += 1;
            let piece = Piece::CleanRead { run: number };
            self.send(now, Side::Fast, Operation::Read, stretch[0].0.into(), stretch.len(), piece);
        }
    }

    pub(super) fn clean_read_done(&mut self, number: usize, at: Time) {
        let run = &mut self.syncer.runs[number];
        run.reads -= 1;
        if run.reads == 0 {
            let (first, count) = (run.first_block, run.units.len());
            self.send(at, Side::Store, Operation::Write, first, count, Piece::CleanWrite { run: number });
        }
    }

    pub(super) fn clean_write_done(&mut self, number: usize) {
        let units = std::mem::take(&mut self.syncer.runs[number].units);
        self.syncer.under_way -= 1;
        self.figures.cleaned += units.len() as u64;
        units.into_iter().for_each(|unit| self.cache.cleaned(unit));
    }
}
