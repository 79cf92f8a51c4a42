//! The slow oracle of crash consistency: from what the device saw follows what may be on it after a crash at any point.
//!
//! A write may be on the device from its submission on. It surely is after a flush that was submitted after its
//! completion has completed, or if it was forced. So a law of the form "whenever x may be there, y surely is" holds at
//! every crash point if it holds at x's submission.

use super::{Seen, Under};
use crate::fs::history::History;
use plimsoll_core::{Operation, Time};
use plimsoll_devices::DeviceRequest;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// A write of one block: when by the clock, and where in the order of what the device saw.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub submitted_at: Time,
    pub completed_at: Time,
    pub submitted: usize,
    pub durable: usize,
    pub is_forced: bool,
}

/// All writes by block, in order of submission.
pub struct Disk {
    pub writes: BTreeMap<u64, Vec<Write>>,
    /// When each event was seen.
    times: Vec<Time>,
}

impl Disk {
    pub fn replay(seen: &[Seen]) -> Disk {
        let mut writes: BTreeMap<u64, Vec<Write>> = BTreeMap::new();
        let mut under_way: BTreeMap<u64, (DeviceRequest, Vec<(u64, usize)>)> = BTreeMap::new();
        let mut volatile: Vec<(u64, usize)> = Vec::new();
        for (now, event) in seen.iter().enumerate() {
            match event {
                Seen::Submitted(at, request) => {
                    let mut covered = Vec::new();
                    if request.operation == Operation::Flush {
                        covered = volatile.clone();
                    } else if request.operation == Operation::Write {
                        let first = request.offset / PAGE;
                        for block in first..first + u64::from(request.length).div_ceil(PAGE) {
                            let of_block = writes.entry(block).or_default();
                            covered.push((block, of_block.len()));
                            of_block.push(Write {
                                submitted_at: *at,
                                completed_at: Time::MAX,
                                submitted: now,
                                durable: usize::MAX,
                                is_forced: request.is_forced,
                            });
                        }
                    }
                    under_way.insert(request.token, (request.clone(), covered));
                }
                Seen::Completed(at, token) => {
                    let (request, covered) = under_way.remove(token).expect("submitted before");
                    for (block, number) in covered {
                        let write = &mut writes.get_mut(&block).unwrap()[number];
                        if request.operation == Operation::Write {
                            write.completed_at = *at;
                        }
                        if request.operation == Operation::Flush || request.is_forced {
                            write.durable = write.durable.min(now);
                        } else {
                            volatile.push((block, number));
                        }
                    }
                    if request.operation == Operation::Flush {
                        volatile.retain(|&(block, number)| writes[&block][number].durable == usize::MAX);
                    }
                }
            }
        }
        let at = |event: &Seen| match *event {
            Seen::Submitted(at, _) | Seen::Completed(at, _) => at,
        };
        Disk { writes, times: seen.iter().map(at).collect() }
    }

    /// How many events had been seen when the clock left `time`.
    fn seen_by(&self, time: Time) -> usize {
        self.times.partition_point(|&at| at <= time)
    }

    fn of(&self, block: u64) -> &[Write] {
        self.writes.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Whether `block` surely holds at `now` what was in memory at `since`.
    pub fn has(&self, block: u64, since: Time, now: usize) -> bool {
        self.of(block).iter().any(|write| write.submitted_at >= since && write.durable < now)
    }
}

/// # Panics
/// If a crash at some point would have left something that a journal promises not to.
pub fn assert_order(disk: &Disk, under: &Under) {
    let history = under.history();
    let mut previous = 0;
    let mut records = BTreeMap::new();
    for commit in &history.commits {
        let record = disk.of(commit.record()).iter().find(|write| write.is_forced && write.submitted >= previous);
        let record = record.unwrap_or_else(|| panic!("commit {} has no record", commit.id));
        for &place in &commit.places[..commit.before_record] {
            let is_there = |write: &&Write| write.submitted >= previous && write.durable < record.submitted;
            assert!(disk.of(place).iter().any(|w| is_there(&w)), "commit {}: its record before its blocks", commit.id);
        }
        for &(blocks, since) in &commit.ordered {
            for block in blocks.first..blocks.end() {
                let is_there = disk.has(block, since, record.submitted);
                assert!(is_there, "commit {}: its record before the data in block {block}", commit.id);
            }
        }
        previous = record.submitted;
        records.insert(commit.id, (record.durable, commit.ended));
    }
    let joins = Joins::of(&history);
    assert_write_ahead(disk, under, &records);
    assert_log_is_kept(disk, under, &joins, &records);
    assert_unchanged_on_the_way(disk, under, &joins);
}

/// When a block that joined at `joined` was metadata no longer.
fn end_as_metadata(under: &Under, block: u64, joined: Time) -> Time {
    let history = under.history();
    let ends = history.forgotten.get(&block).into_iter().flatten();
    ends.copied().find(|&at| at >= joined).unwrap_or(Time::MAX)
}

/// No block is written in place while changes to it are not committed.
fn assert_write_ahead(disk: &Disk, under: &Under, records: &BTreeMap<u64, (usize, Time)>) {
    for &(block, id, joined) in &under.history().joins {
        let committed = records.get(&id).map_or(Time::MAX, |&(_, ended)| ended);
        let until = committed.min(end_as_metadata(under, block, joined));
        for write in disk.of(block) {
            let is_inside = write.submitted_at < until && write.completed_at > joined;
            assert!(
                !is_inside,
                "block {block} is written in place before commit {id}: {write:?} in {joined:?}..{until:?}"
            );
        }
    }
}

/// Joins by what is asked of them: the blocks of a commit, and the commits of a block.
struct Joins {
    by_commit: BTreeMap<u64, Vec<(u64, Time)>>,
    by_block: BTreeMap<u64, Vec<(u64, Time)>>,
}

impl Joins {
    fn of(history: &History) -> Joins {
        let mut joins = Joins { by_commit: BTreeMap::new(), by_block: BTreeMap::new() };
        for &(block, id, joined) in &history.joins {
            joins.by_commit.entry(id).or_default().push((block, joined));
            joins.by_block.entry(block).or_default().push((id, joined));
        }
        joins
    }

    fn blocks(&self, commit: u64) -> impl Iterator<Item = &(u64, Time)> {
        self.by_commit.get(&commit).into_iter().flatten()
    }
}

/// What the log holds of a commit is there until its blocks are in place, or in a later commit: until then the tail
/// does not move past it, and its places are not overwritten.
fn assert_log_is_kept(disk: &Disk, under: &Under, joins: &Joins, records: &BTreeMap<u64, (usize, Time)>) {
    let history = under.history();
    let mut tail_moves = history.tail_moves.iter();
    let (mut given_up, mut logged, mut moved) = (0, 0, usize::MAX);
    for commit in &history.commits {
        logged += commit.places.len() as u64;
        while given_up < logged {
            let Some(&(at, blocks)) = tail_moves.next() else { break };
            given_up += blocks;
            moved = disk.seen_by(at);
        }
        let (durable, ended) = records[&commit.id];
        let overwritten = commit.places.iter().flat_map(|&place| disk.of(place)).map(|write| write.submitted);
        let overwritten = overwritten.filter(|&submitted| submitted > durable).min();
        let tail = (given_up >= logged).then_some(moved);
        assert!(tail.is_some() || overwritten.is_none(), "commit {} is overwritten before the tail", commit.id);
        for now in overwritten.into_iter().chain(tail) {
            for &(block, joined) in joins.blocks(commit.id) {
                let is_later = |&(id, _): &(u64, Time)| id > commit.id && records.get(&id).is_some_and(|r| r.0 < now);
                let is_kept = disk.has(block, ended, now)
                    || joins.by_block[&block].iter().any(is_later)
                    || end_as_metadata(under, block, joined) < Time::MAX;
                assert!(is_kept, "commit {} is given up in the log, and block {block} is nowhere", commit.id);
            }
        }
    }
}

/// No task changes a block that is on its way to the log. XFS need not care: it has copied what it writes.
fn assert_unchanged_on_the_way(disk: &Disk, under: &Under, joins: &Joins) {
    if matches!(under, Under::Xfs(_)) {
        return;
    }
    let mut previous = Time::ZERO;
    for commit in &under.history().commits {
        let places = commit.places[..commit.before_record].iter();
        let writes = places.filter_map(|&place| disk.of(place).iter().find(|write| write.submitted_at >= previous));
        let (mut from, mut to) = (Time::MAX, Time::ZERO);
        for write in writes {
            (from, to) = (from.min(write.submitted_at), to.max(write.completed_at));
        }
        for &(block, _) in joins.blocks(commit.id) {
            let changed = joins.by_block[&block].iter().find(|&&(id, at)| id > commit.id && from < at && at < to);
            assert!(changed.is_none(), "block {block} is changed {changed:?} while commit {} writes it", commit.id);
        }
        previous = commit.ended;
    }
}
