//! What the journal did, kept for tests that look whether the device was written in an order that survives a crash.

use crate::fs::space::Blocks;
use plimsoll_core::Time;
use std::collections::BTreeMap;

/// A commit.
pub struct Commit {
    /// The transaction.
    pub id: u64,
    /// Places of its blocks in the log.
    pub log: Vec<u64>,
    /// Place of its commit block.
    pub record: u64,
    /// Blocks of data that had to be on the device first.
    pub ordered: Vec<Blocks>,
    /// When it was durable.
    pub ended: Time,
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
}

impl History {
    pub(super) fn joined(&mut self, block: u64, id: u64, now: Time) {
        self.joins.push((block, id, now));
    }

    pub(super) fn forgotten(&mut self, block: u64, now: Time) {
        self.forgotten.entry(block).or_default().push(now);
    }

    pub(super) fn committed(&mut self, id: u64, log: Vec<u64>, record: u64, ordered: Vec<Blocks>, ended: Time) {
        self.commits.push(Commit { id, log, record, ordered, ended });
    }
}
