//! A time of its own for a rig: how long each device takes for what it does, and how long each request waits for what.
//! The cache's device does everything at once, the store one thing after the other.

use crate::rig::Rig;
use plimsoll_cache::store::{Action, Layout, Operation, RequestKind, Target};
use std::collections::VecDeque;

/// Never.
const STUCK: u64 = u64::MAX;

/// What takes how long.
pub struct Timing {
    pub now: u64,
    /// What the cache's device takes for a page of the map, and for everything else.
    pub map: u64,
    pub fast: u64,
    pub slow: u64,
    /// The next operation of that kind on the store never ends.
    pub sticks: Option<Action>,
    store_until: u64,
}

impl Timing {
    pub fn new() -> Timing {
        Timing { now: 0, map: 0, fast: 0, slow: 0, sticks: None, store_until: 0 }
    }

    /// When an operation is done that begins now.
    pub fn until(&mut self, operation: &Operation, layout: &Layout) -> u64 {
        if operation.target == Target::Cache {
            let block = operation.offset_bytes / 4096;
            let is_map =
                operation.action == Action::Write && (layout.map_start(0)..layout.map_start(2)).contains(&block);
            return self.now + if is_map { self.map } else { self.fast };
        }
        if self.sticks == Some(operation.action) {
            self.sticks = None;
            return STUCK;
        }
        self.store_until = self.store_until.max(self.now) + self.slow;
        self.store_until
    }
}

/// A request that was answered without a failure.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub kind: RequestKind,
    pub since: u64,
    pub at: u64,
}

impl Rig {
    /// Ends the operation that is done first, when it is. False if none ever is.
    pub fn end_next(&mut self) -> bool {
        self.take();
        let first = (0..self.doing.len()).min_by_key(|&at| self.doing[at].until);
        let Some(first) = first.filter(|&at| self.doing[at].until != STUCK) else { return false };
        self.timing.now = self.timing.now.max(self.doing[first].until);
        self.end(first);
        self.take();
        true
    }

    /// Stuck operations end after all.
    pub fn free_the_stuck(&mut self) {
        let now = self.timing.now;
        self.doing.iter_mut().filter(|doing| doing.until == STUCK).for_each(|doing| doing.until = now);
    }
}

/// Clients that stand in a line, and write as soon as they were let in.
pub struct Line {
    waiting: VecDeque<u64>,
    /// When the first became the first.
    first_since: u64,
    /// For each write that was let in: when, and how long it was the first in the line.
    pub let_in: Vec<(u64, u64)>,
}

impl Line {
    pub fn new() -> Line {
        Line { waiting: VecDeque::new(), first_since: 0, let_in: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A write of `block` comes.
    pub fn come(&mut self, rig: &mut Rig, block: u64) {
        if self.waiting.is_empty() {
            self.first_since = rig.timing.now;
        }
        self.waiting.push_back(block);
        self.let_in_who_may(rig);
    }

    /// Something has ended.
    pub fn let_in_who_may(&mut self, rig: &mut Rig) {
        while let Some(&block) = self.waiting.front() {
            if !rig.request(RequestKind::Write, block, u8::MAX) {
                return;
            }
            self.waiting.pop_front();
            self.let_in.push((rig.timing.now, rig.timing.now - self.first_since));
            self.first_since = rig.timing.now;
        }
    }

    /// The longest time for which a write was the first, of those let in from `from` on.
    pub fn longest(&self, from: usize) -> u64 {
        self.let_in[from..].iter().map(|(_, waited)| *waited).max().unwrap_or(0)
    }
}
