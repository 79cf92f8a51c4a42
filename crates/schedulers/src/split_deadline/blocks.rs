//! The block level: location queues, and the queue of read deadlines.
//!
//! Reads, writes that somebody waits for, and writes that nobody waits for are kept apart, each in the order of place.
//! The kind goes first whose deadline is nearest: of reads the earliest of them all, of awaited writes that of the fsync
//! that goes on below, of the others the time by which none of them should wait any more. A read whose deadline has passed
//! goes out of turn.
//!
//! A sweep over the device takes what was there when it began; what comes meanwhile waits for the next one. So nothing
//! waits for more than two sweeps of its kind, and two heaps are all that the order of place needs.

use crate::min_tree::{ABSENT, MinTree};
use plimsoll_core::{BlockRequest, DeviceProfile, Operation, RequestId, Span, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How long a write may wait in the queue before reads that come later let it pass (as long as a read: Linux,
/// `read_expire`).
pub(super) const WRITE_EXPIRE: Span = Span::from_millis(500);
/// While an fsync goes on, the device has this part of its requests, one over so many, from writes that nobody waits for.
/// Ours: a drive's own queue knows no deadlines.
const UNAWAITED_PART: usize = 4;

/// Requests of one kind in the order of place.
#[derive(Default)]
struct Sweep {
    /// Place and slot of those of this sweep.
    current: BinaryHeap<Reverse<(u64, u32)>>,
    /// And of the next one.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    /// When the first of them came.
    current_since: Time,
    later_since: Time,
}

impl Sweep {
    fn add(&mut self, now: Time, place: u64, slot: u32) {
        if self.later.is_empty() {
            self.later_since = now;
        }
        self.later.push(Reverse((place, slot)));
    }

    /// Begins another sweep if this one is over.
    fn begin(&mut self) {
        if self.current.is_empty() {
            std::mem::swap(&mut self.current, &mut self.later);
            self.current_since = self.later_since;
        }
    }

    /// The next slot of this sweep in the order of place.
    fn first(&self) -> Option<u32> {
        self.current.peek().map(|&Reverse((_, slot))| slot)
    }

    fn pop(&mut self) -> Option<u32> {
        self.begin();
        self.current.pop().map(|Reverse((_, slot))| slot)
    }

    /// When the one that waits longest came, or earlier; `None` if nothing waits.
    fn since(&self) -> Option<Time> {
        let since = if self.current.is_empty() { self.later_since } else { self.current_since };
        (!self.current.is_empty() || !self.later.is_empty()).then_some(since)
    }
}

/// The kinds, in the order in which they go if their deadlines are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Awaited,
    Read,
    Unawaited,
}

/// See the module's text.
pub(super) struct Blocks {
    /// `None` for a read that went out of turn and whose entry in the sweep is still there.
    slots: Vec<Option<BlockRequest>>,
    free: Vec<u32>,
    reads: Sweep,
    awaited: Sweep,
    unawaited: Sweep,
    /// Deadlines of reads, by slot.
    read_deadlines: MinTree,
    reads_queued: usize,
    unawaited_queued: usize,
    flushes: VecDeque<BlockRequest>,
    has_just_flushed: bool,
    /// Writes at the device that nobody waits for.
    unawaited_at_device: Vec<RequestId>,
    at_device: usize,
    at_device_max: usize,
}

impl Blocks {
    pub(super) fn new(device: &DeviceProfile) -> Blocks {
        Blocks {
            slots: Vec::new(),
            free: Vec::new(),
            reads: Sweep::default(),
            awaited: Sweep::default(),
            unawaited: Sweep::default(),
            read_deadlines: MinTree::default(),
            reads_queued: 0,
            unawaited_queued: 0,
            flushes: VecDeque::new(),
            has_just_flushed: false,
            unawaited_at_device: Vec::new(),
            at_device: 0,
            at_device_max: device.outstanding_max.max(1) as usize,
        }
    }

    /// Writes queued or at the device that nobody waits for.
    pub(super) fn unawaited(&self) -> usize {
        self.unawaited_queued + self.unawaited_at_device.len()
    }

    /// A request arrived; `deadline` is a read's.
    pub(super) fn add(&mut self, now: Time, request: BlockRequest, deadline: Time) {
        if request.operation == Operation::Flush {
            return self.flushes.push_back(request);
        }
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        if request.operation == Operation::Read {
            self.read_deadlines.assign(slot as usize, slot);
            self.read_deadlines.set(slot as usize, [deadline.as_nanos(), ABSENT, ABSENT]);
            self.reads_queued += 1;
            self.reads.add(now, request.offset, slot);
        } else if request.is_sync {
            self.awaited.add(now, request.offset, slot);
        } else {
            self.unawaited_queued += 1;
            self.unawaited.add(now, request.offset, slot);
        }
        self.slots[slot as usize] = Some(request);
    }

    pub(super) fn completed(&mut self, id: RequestId) {
        self.at_device -= 1;
        if let Some(place) = self.unawaited_at_device.iter().position(|&at_device| at_device == id) {
            self.unawaited_at_device.swap_remove(place);
        }
    }

    /// What goes to the device now; `fsync_deadline` is the earliest of the fsyncs that go on.
    pub(super) fn next(&mut self, now: Time, fsync_deadline: Option<Time>) -> Option<BlockRequest> {
        if self.at_device >= self.at_device_max {
            return None;
        }
        let kind = self.choose(fsync_deadline);
        let is_others_turn = kind.is_some() && self.has_just_flushed;
        self.has_just_flushed = !self.flushes.is_empty() && !is_others_turn;
        let request = match kind {
            _ if self.has_just_flushed => self.flushes.pop_front(),
            Some(Kind::Read) => self.take_read(now),
            Some(Kind::Awaited) => self.awaited.pop().and_then(|slot| self.take(slot)),
            Some(Kind::Unawaited) => {
                let request = self.unawaited.pop().and_then(|slot| self.take(slot));
                self.unawaited_queued -= 1;
                self.unawaited_at_device.extend(request.iter().map(|request| request.id));
                request
            }
            None => None,
        };
        self.at_device += usize::from(request.is_some());
        request
    }

    /// The kind with the nearest deadline.
    fn choose(&self, fsync_deadline: Option<Time>) -> Option<Kind> {
        let read = (self.reads_queued > 0).then(|| Time::from_nanos(self.read_deadlines.first(0).key));
        let awaited = self.awaited.since().map(|since| (since + WRITE_EXPIRE).min(fsync_deadline.unwrap_or(Time::MAX)));
        let part = if fsync_deadline.is_some() { UNAWAITED_PART } else { 1 };
        let has_room = self.unawaited_at_device.len() < self.at_device_max.div_ceil(part);
        let unawaited = self.unawaited.since().filter(|_| has_room).map(|since| since + WRITE_EXPIRE);
        let kinds = [(awaited, Kind::Awaited), (read, Kind::Read), (unawaited, Kind::Unawaited)];
        kinds.into_iter().filter_map(|(deadline, kind)| Some((deadline?, kind))).min().map(|(_, kind)| kind)
    }

    /// The read whose deadline has passed, or else the next by place.
    fn take_read(&mut self, now: Time) -> Option<BlockRequest> {
        self.reads_queued -= 1;
        self.skip_gone();
        let expired = Some(self.read_deadlines.first(0)).filter(|first| first.key <= now.as_nanos());
        let slot = expired.map(|first| first.owner).or(self.reads.first())?;
        self.read_deadlines.set(slot as usize, [ABSENT; 3]);
        self.slots[slot as usize].take()
    }

    /// Reads that went out of turn leave the sweep when it comes to them. There is one that did not.
    fn skip_gone(&mut self) {
        loop {
            self.reads.begin();
            match self.reads.first().filter(|&first| self.slots[first as usize].is_none()) {
                Some(gone) => self.free.extend(self.reads.pop().map(|_| gone)),
                None => return,
            }
        }
    }

    /// Empties a slot whose entry has left its sweep.
    fn take(&mut self, slot: u32) -> Option<BlockRequest> {
        self.free.push(slot);
        self.slots[slot as usize].take()
    }
}
