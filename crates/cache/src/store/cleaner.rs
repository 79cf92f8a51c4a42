//! What waits to be copied to the store, and what was copied and waits for a flush of the store.

use super::refused::{Damaged, Refused};
use super::slots::Kind;
use super::write_back::Sweeper;
use crate::units::UnitId;
use std::collections::VecDeque;

/// Units that may wait for a flush of the store.
pub(super) const CLEANED_MAX: usize = 256;
/// Units that are kept ready: so many parts of the cache, within these bounds (ours).
const READY_PARTS: u32 = 64;
const READY_MIN: u32 = 2;
const READY_MAX: u32 = 512;

/// Units of a cache of so many that are kept ready.
pub(super) fn ready_units(units: u32) -> u32 {
    (units / READY_PARTS).clamp(READY_MIN, READY_MAX)
}

/// Why a unit waits for a flush of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The policy gave the unit up, and the job of that number copied it.
    Victim { job: u64 },
    /// The unit was copied because everything is cleaned.
    InPlace,
    /// A read brought the block.
    Promoted,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cleaned {
    pub unit: UnitId,
    pub block: u64,
    pub store_writes: u64,
    pub why: Why,
    /// The block was written or forgotten since.
    pub is_stale: bool,
}

/// What waits for the store.
pub(super) struct Cleaner {
    pub cleaned: VecDeque<Cleaned>,
    /// Units of one turn, before they have slots.
    pub turn: Vec<(u64, Kind)>,
    /// Runs so far.
    pub runs: u64,
    /// The next unit to be looked at, while everything is cleaned.
    pub next: Option<u32>,
    /// Blocks that the store did not take.
    pub refused: Refused,
    /// Unreadable units with blocks that only the cache has.
    pub damaged: Damaged,
    /// A unit was damaged or refused meanwhile, so not everything will be clean.
    pub has_damaged: bool,
    /// Units that could not be copied since everything is cleaned, though the store works.
    pub unreadable: u32,
    /// The store failed: nothing is copied until a request asks for something.
    pub is_paused: bool,
    /// Units so far that were copied because the policy gave them up.
    pub copied_victims: u64,
    /// What is written back early.
    pub sweeper: Sweeper,
    /// How often all units were looked at; one more when nothing was dirty.
    pub passes: u64,
}

impl Cleaner {
    pub fn new() -> Cleaner {
        let cleaned = VecDeque::with_capacity(CLEANED_MAX);
        let turn = Vec::with_capacity(CLEANED_MAX);
        Cleaner {
            cleaned,
            turn,
            runs: 0,
            next: None,
            refused: Refused::new(),
            damaged: Damaged::default(),
            has_damaged: false,
            unreadable: 0,
            is_paused: false,
            copied_victims: 0,
            sweeper: Sweeper::default(),
            passes: 0,
        }
    }

    pub fn clean_all(&mut self) {
        (self.next, self.has_damaged, self.unreadable, self.is_paused) = (Some(0), false, 0, false);
        self.refused.begin();
    }

    pub fn clean_no_more(&mut self) {
        self.next = None;
    }

    pub fn is_cleaning_all(&self) -> bool {
        self.next.is_some()
    }

    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Units that were copied and wait for a flush of the store.
    pub fn waiting(&self) -> usize {
        self.copies(0)
    }

    pub fn is_idle(&self) -> bool {
        self.cleaned.is_empty()
    }

    /// What was in `from` is in `to`, in a newer version.
    pub fn moved(&mut self, from: UnitId, to: UnitId) {
        for entry in self.cleaned.iter_mut().filter(|entry| entry.unit == from) {
            (entry.unit, entry.is_stale) = (to, true);
        }
    }

    /// Nothing is in `unit` any more.
    pub fn forget(&mut self, unit: UnitId) {
        self.cleaned.retain(|entry| entry.unit != unit);
    }

    /// The jobs of units that wait for a flush.
    pub fn waiting_jobs(&self) -> impl Iterator<Item = u64> {
        self.cleaned.iter().filter_map(|entry| match entry.why {
            Why::Victim { job } => Some(job),
            Why::InPlace | Why::Promoted => None,
        })
    }

    /// Units that were copied by a later write of the store than that, and wait for a flush.
    pub fn copies(&self, after_writes: u64) -> usize {
        let is_meant = |entry: &&Cleaned| entry.why != Why::Promoted && entry.store_writes > after_writes;
        self.cleaned.iter().filter(is_meant).count()
    }
}
