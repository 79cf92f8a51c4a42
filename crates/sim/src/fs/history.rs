//! What a journal did, kept for tests that look whether the device was written in an order that survives a crash.

use crate::fs::space::Blocks;
use plimsoll_core::Time;
use std::collections::BTreeMap;

/// A commit.
pub struct Commit {
    /// The transaction.
    pub id: u64,
    /// All its places in the log, and how many of them are written before its last record.
    pub places: Vec<u64>,
    /// See `places`.
    pub before_record: usize,
    /// Blocks of data that had to be on the device first, and since when.
    pub ordered: Vec<(Blocks, Time)>,
    /// When it was durable.
    pub ended: Time,
}

impl Commit {
    /// The place of its commit record.
    pub fn record(&self) -> u64 {
        *self.places.last().expect("a commit has a record")
    }
}

/// Everything that was done.
#[derive(Default)]
pub struct History {
    /// Commits in order.
    pub commits: Vec<Commit>,
    /// When blocks joined transactions, and which.
    pub joins: Vec<(u64, u64, Time)>,
    /// When blocks were metadata no longer.
    pub forgotten: BTreeMap<u64, Vec<Time>>,
    /// When the log's tail moved, and by how many blocks: what they held is not needed any more.
    pub tail_moves: Vec<(Time, u64)>,
}

impl History {
    pub(crate) fn joined(&mut self, block: u64, id: u64, now: Time) {
        self.joins.push((block, id, now));
    }

    pub(crate) fn forgotten(&mut self, block: u64, now: Time) {
        self.forgotten.entry(block).or_default().push(now);
    }

    pub(crate) fn tail_moved(&mut self, blocks: u64, now: Time) {
        self.tail_moves.push((now, blocks));
    }

    pub(crate) fn committed(
        &mut self,
        id: u64,
        places: Vec<u64>,
        before_record: usize,
        ordered: Vec<(Blocks, Time)>,
        ended: Time,
    ) {
        self.commits.push(Commit { id, places, before_record, ordered, ended });
    }
}
