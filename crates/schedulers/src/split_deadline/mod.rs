//! `split_deadline`: deadlines for reads and for fsync calls (split-level paper, section 5.2).
//!
//! **Intuition.** A deadline for a block write means nothing where the file system's journal makes it wait for the blocks
//! of others. But at the entry of an fsync nothing is entangled yet, and the dirty pages of its file say what it will
//! cost. **Rule.** An fsync goes on at once if those who were promised a shorter deadline could wait for it. Otherwise its
//! file is written first, in the background and in slices, each as long as the fsyncs that go on can wait, until what is
//! left is small enough. Fsyncs that could go on do so by deadline. Below, two location queues and the queue of read deadlines
//! ([`blocks`]). **Complication.** What an fsync takes besides its data (its turn at the journal, the commit, the barrier)
//! nobody knows: it is measured, mean and deviation as TCP does its round trips, and taken off every deadline.
//!
//! | part | module |
//! | --- | --- |
//! | requests by place and deadline | [`blocks`] |
//! | what is dirty, what it will cost, since when | [`files`] |
//! | held and admitted fsyncs, slices, throttled writes | here |
//!
//! Writeback is the scheduler's own ([`Writeback::Own`]), or the kernel's flusher's, and then writes are held so that it
//! never has more to write than the shortest deadline can bear ([`Writeback::Flusher`]; the paper's Split-Pdflush).
//!
//! Cost: O(log queued) a request, O(log fsyncs) a call, O(causes) a page event; nothing is allocated once warm.

mod blocks;
mod files;
#[cfg(test)]
mod tests;

use crate::keyed_slab::KeyedSlab;
use crate::min_tree::{ABSENT, MinTree};
use blocks::Blocks;
use files::{Files, NONE};
use plimsoll_core::account::Account;
use plimsoll_core::{AccountId, BlockRequest, Call, CallDecision, CallId, CallKind, Completion, Deadlines};
use plimsoll_core::{DeviceProfile, Dispatch, FileId, PageEvent, Scheduler, Span, Time, Wish};
use std::collections::VecDeque;

/// How long a read may wait (Linux, `read_expire`).
const READ_EXPIRE: Span = Span::from_millis(500);
/// How long an fsync may take (Linux, `write_expire`: the paper's fsync deadlines stand in the place of those of writes).
const FSYNC_EXPIRE: Span = Span::from_secs(5);
/// No call is held longer. Ours: long enough for a checkpoint of some thousand random pages on a disk.
const HELD_MAX: Span = Span::from_secs(45);
/// Random writes that an fsync of one page takes before any was measured: data, journal, commit record, and a barrier.
const COMMIT_RUNS: f64 = 4.0;
/// Weights of a new measurement in mean and deviation (RFC 6298).
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;
/// How many deviations are allowed for. RFC 6298 has 4, where being late costs most; here what is kept free is not used by
/// others. Tried on `split-fig12`: with 4, 3 and 2 the 99th percentile is 75, 77 and 84 ms of 100, and B has 38, 54 and 65
/// blocks a second.
const DEVIATIONS: f64 = 2.0;
/// Bytes of a page (x86-64).
const PAGE_BYTES: u64 = 4096;
/// A slice takes the device at most so long. Ours: as the flusher's rounds (Linux, `writeback_sb_inodes`).
const SLICE_MAX: Span = Span::from_millis(100);
/// Where no fsync leaves time for a slice, writeback gets one page for so many times as long as it takes. Ours: a
/// tenth of the device, so that nothing waits for ever.
const STARVED_PART: u64 = 10;
/// How long is waited for the requests of a slice. Ours: longer than a file system thinks.
const UNANSWERED_MAX: Span = Span::from_millis(100);
/// Of what may be dirty, the part from which on the oldest is written (Linux: background ratio over dirty ratio), and the
/// part from which on writes are held: below where the kernel begins to throttle writers, half-way to all of it.
const BACKGROUND_PART: f64 = 0.5;
const HELD_PART: f64 = 0.7;
/// Who has less than one over so many of what is dirty is not held for it.
const WRITERS: u64 = 16;

/// Who starts writeback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writeback {
    /// The scheduler: the host has no flusher.
    Own,
    /// The host's flusher.
    Flusher,
}

/// Where an fsync is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Held until its file is written.
    Waiting,
    /// Held until its turn.
    Ready,
    /// It goes on.
    Admitted { since: Time, data: Span },
}

struct Fsync {
    file: FileId,
    promise: Promise,
    deadline: Time,
    /// When it goes on whatever it does to others.
    patience_ends: Time,
    state: State,
    /// The next in its file's list of waiting ones.
    next_waiting: u32,
}

/// Who was promised a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    Account(AccountId),
    File(FileId),
    Default,
}

/// What an fsync takes besides its data.
struct CommitTime {
    mean_ns: f64,
    deviation_ns: f64,
}

impl CommitTime {
    fn measured(&mut self, time: Span) {
        let error = time.as_nanos() as f64 - self.mean_ns;
        self.deviation_ns += (error.abs() - self.deviation_ns) * DEVIATION_WEIGHT;
        self.mean_ns += error * MEAN_WEIGHT;
    }

    fn most(&self) -> Span {
        Span::from_nanos((self.mean_ns + DEVIATIONS * self.deviation_ns) as u64)
    }
}

/// See the module's text.
pub struct SplitDeadline {
    writeback: Writeback,
    blocks: Blocks,
    files: Files,
    deadlines: Vec<Deadlines>,
    /// Fsync deadlines that were promised, shortest first.
    promises: Vec<(Span, Promise)>,
    fsyncs: KeyedSlab<CallId, Fsync>,
    /// Deadlines by place in `fsyncs`: of those that wait for writeback, that are ready, and that go on.
    by_deadline: MinTree,
    /// Likewise, when the patience of held ones ends.
    by_patience: MinTree,
    commit: CommitTime,
    /// Until when the device is busy with slices and data of fsyncs, as far as they were estimated.
    busy_until: Time,
    /// When a page is written even if no fsync leaves time for it.
    starved_at: Time,
    /// The slice that was asked for and of which nothing has come yet, and when that was.
    asked: Option<(FileId, Time)>,
    /// What a page at a random place takes.
    page_time: Span,
    /// Held writes, and when they go on whatever is dirty.
    held_writes: VecDeque<(CallId, AccountId, Time)>,
    /// What the host allows.
    dirty_bytes_max: u64,
}

const WAITING: usize = 0;
const READY: usize = 1;
const ADMITTED: usize = 2;

impl SplitDeadline {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile, writeback: Writeback) -> SplitDeadline {
        let run_ns = Span::from_secs(1).as_nanos() as f64 / device.worst_case_runs_per_second.max(1.0);
        let mean_ns = COMMIT_RUNS * run_ns;
        SplitDeadline {
            writeback,
            blocks: Blocks::new(device),
            files: Files::new(device),
            deadlines: Vec::new(),
            promises: vec![(FSYNC_EXPIRE, Promise::Default)],
            fsyncs: KeyedSlab::default(),
            by_deadline: MinTree::default(),
            by_patience: MinTree::default(),
            commit: CommitTime { mean_ns, deviation_ns: mean_ns / DEVIATIONS },
            busy_until: Time::ZERO,
            starved_at: Time::ZERO,
            asked: None,
            page_time: Span::from_nanos(run_ns as u64),
            held_writes: VecDeque::new(),
            dirty_bytes_max: u64::MAX,
        }
    }

    fn remember(&mut self, account: AccountId, deadlines: Deadlines) {
        if self.deadlines.len() <= account.index() {
            self.deadlines.resize(account.index() + 1, Deadlines::default());
        }
        self.deadlines[account.index()] = deadlines;
        self.promise(Promise::Account(account), deadlines.fsync);
    }

    fn promise(&mut self, promise: Promise, fsync: Option<Span>) {
        self.promises.retain(|&(_, other)| other != promise);
        self.promises.extend(fsync.map(|deadline| (deadline, promise)));
        self.promises.sort_by_key(|&(deadline, _)| deadline);
    }

    fn account_deadlines(&self, account: AccountId) -> Deadlines {
        self.deadlines.get(account.index()).copied().unwrap_or_default()
    }

    /// How long the device may be busy for whom this was promised, so that nobody else whose fsync comes meanwhile misses
    /// his deadline.
    fn allowance(&self, promise: Promise) -> Span {
        let mut others = self.promises.iter().filter(|&&(_, other)| other != promise || promise == Promise::Default);
        others.next().map_or(Span::MAX, |&(deadline, _)| deadline.saturating_sub(self.commit.most()))
    }

    /// How long the device may be busy from now on so that no fsync in this state misses its deadline.
    fn laxity(&self, now: Time, state: usize) -> Span {
        match self.by_deadline.first(state).key {
            ABSENT => Span::MAX,
            key => Time::from_nanos(key).saturating_sub(self.commit.most()).since(self.busy_until.max(now)),
        }
    }

    fn set_state(&mut self, place: u32, state: State) {
        let fsync = self.fsyncs.get_mut(place);
        fsync.state = state;
        let (deadline, patience_ends) = (fsync.deadline.as_nanos(), fsync.patience_ends.as_nanos());
        let mut keys = [ABSENT; 3];
        keys[match state {
            State::Waiting => WAITING,
            State::Ready => READY,
            State::Admitted { .. } => ADMITTED,
        }] = deadline;
        let is_held = !matches!(state, State::Admitted { .. });
        self.by_deadline.set(place as usize, keys);
        self.by_patience.set(place as usize, [if is_held { patience_ends } else { ABSENT }, ABSENT, ABSENT]);
    }

    /// Holds an fsync until its file is written.
    fn wait(&mut self, place: u32) {
        let file = self.fsyncs.get(place).file;
        let next = self.files.change(file, |file| std::mem::replace(&mut file.waiting, place));
        self.fsyncs.get_mut(place).next_waiting = next;
        self.set_state(place, State::Waiting);
    }

    /// Those that wait for a file that is written far enough are ready.
    fn look_at_waiting(&mut self, file: FileId) {
        let mut place = self.files.waiting(file);
        if place == NONE {
            return;
        }
        let allowance = self.allowance(self.fsyncs.get(place).promise);
        if self.files.time_of(file) > allowance.max(self.page_time) {
            return;
        }
        self.files.change(file, |file| file.waiting = NONE);
        while place != NONE {
            let next = self.fsyncs.get(place).next_waiting;
            self.set_state(place, State::Ready);
            place = next;
        }
    }

    /// Takes one out of its file's list.
    fn stop_waiting(&mut self, place: u32) {
        let (file, next) = (self.fsyncs.get(place).file, self.fsyncs.get(place).next_waiting);
        let first = self.files.change(file, |file| file.waiting);
        if first == place {
            self.files.change(file, |file| file.waiting = next);
            return;
        }
        let mut before = first;
        while self.fsyncs.get(before).next_waiting != place {
            before = self.fsyncs.get(before).next_waiting;
        }
        self.fsyncs.get_mut(before).next_waiting = next;
    }

    fn admit(&mut self, now: Time, place: u32) -> CallId {
        let data = self.files.time_of(self.fsyncs.get(place).file);
        self.busy_until = self.busy_until.max(now) + data;
        self.set_state(place, State::Admitted { since: now, data });
        self.fsyncs.key(place)
    }

    /// The ready fsync whose turn it is, if it may go on now: nobody who goes on already was promised to be done
    /// earlier, or can wait for it; or it writes no more than a page, which is not worth waiting for.
    fn next_ready(&mut self, now: Time) -> Option<u32> {
        let first = self.by_deadline.first(READY);
        if first.key == ABSENT {
            return None;
        }
        let Fsync { file, promise, .. } = *self.fsyncs.get(first.owner);
        let data = self.files.time_of(file);
        if data > self.allowance(promise).max(self.page_time) {
            // It was dirtied again meanwhile.
            self.wait(first.owner);
            return self.next_ready(now);
        }
        let is_first = first.key <= self.by_deadline.first(ADMITTED).key;
        (is_first || data <= self.laxity(now, ADMITTED).max(self.page_time)).then_some(first.owner)
    }

    fn fsync_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        let own = (self.files.deadlines_of(call.file).fsync, self.account_deadlines(call.account).fsync);
        let (span, promise) = match own {
            (Some(span), _) => (span, Promise::File(call.file)),
            (None, Some(span)) => (span, Promise::Account(call.account)),
            (None, None) => (FSYNC_EXPIRE, Promise::Default),
        };
        let (deadline, patience_ends) = (now + span, now + HELD_MAX);
        let (file, state, next_waiting) = (call.file, State::Ready, NONE);
        let fsync = Fsync { file, promise, deadline, patience_ends, state, next_waiting };
        let place = self.fsyncs.insert(call.id, fsync);
        self.by_deadline.assign(place as usize, place);
        self.by_patience.assign(place as usize, place);
        self.set_state(place, State::Ready);
        if self.next_ready(now) == Some(place) {
            self.admit(now, place);
            return CallDecision::Admit;
        }
        CallDecision::Hold
    }

    /// Whether a write of this account waits, because too much is dirty and enough of it is the account's.
    fn must_wait(&self, account: AccountId) -> bool {
        let (total, own) = (self.files.ledger.total_bytes(), self.files.ledger.account_bytes(account));
        let is_too_much = match self.writeback {
            Writeback::Own => total as f64 >= self.dirty_bytes_max as f64 * HELD_PART,
            Writeback::Flusher => self.files.total_time() >= self.allowance(Promise::Account(account)),
        };
        own > 0 && own * WRITERS >= total && is_too_much
    }

    /// What is to be written in the background: of whom, and in whose name.
    fn writeback_target(&mut self, now: Time) -> Option<(FileId, Promise)> {
        let waiting = self.by_deadline.first(WAITING);
        if waiting.key != ABSENT {
            let fsync = self.fsyncs.get(waiting.owner);
            return Some((fsync.file, fsync.promise));
        }
        let is_much = self.files.ledger.total_bytes() as f64 >= self.dirty_bytes_max as f64 * BACKGROUND_PART;
        let oldest = self.files.oldest(now, is_much || !self.held_writes.is_empty());
        oldest.map(|file| (file, Promise::Default))
    }

    /// Asks for a slice of writeback, if there is time for one; answers when to look again.
    fn begin_slice(&mut self, now: Time, file: FileId, promise: Promise, wishes: &mut Vec<Wish>) -> Option<Time> {
        let asked_until = self.asked.map_or(Time::ZERO, |(_, at)| at + UNANSWERED_MAX);
        let not_before = self.busy_until.max(asked_until);
        if not_before > now {
            return Some(not_before);
        }
        if self.blocks.unawaited() > 0 {
            return None;
        }
        let laxity = self.laxity(now, READY).min(self.laxity(now, ADMITTED));
        let room = laxity.min(self.allowance(promise)).min(SLICE_MAX);
        let (bytes_max, takes) = self.files.slice(file, room, PAGE_BYTES);
        if takes > room && self.starved_at > now {
            return Some(self.starved_at);
        }
        wishes.push(Wish::StartWriteback { file, bytes_max });
        self.busy_until = now + takes;
        self.starved_at = now + takes * STARVED_PART;
        self.asked = Some((file, now));
        self.files.slice_begun(file);
        self.look_at_waiting(file);
        Some(self.busy_until)
    }
}

impl Scheduler for SplitDeadline {
    fn name(&self) -> &'static str {
        match self.writeback {
            Writeback::Own => "split_deadline",
            Writeback::Flusher => "split_deadline_flusher",
        }
    }

    fn account_opened(&mut self, _now: Time, account: &Account) {
        self.remember(account.id, account.allocation.deadlines);
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        self.remember(account.id, account.allocation.deadlines);
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        self.remember(account, Deadlines::default());
    }

    fn owns_writeback(&self) -> bool {
        self.writeback == Writeback::Own
    }

    fn dirty_memory_limited(&mut self, _now: Time, bytes_max: u64) {
        self.dirty_bytes_max = bytes_max;
    }

    fn file_promised(&mut self, _now: Time, file: FileId, deadlines: &Deadlines) {
        self.files.change(file, |file| file.deadlines = *deadlines);
        self.promise(Promise::File(file), deadlines.fsync);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        match call.kind {
            CallKind::Fsync | CallKind::Fdatasync => self.fsync_entered(now, call),
            CallKind::Write if self.must_wait(call.account) => {
                self.held_writes.push_back((call.id, call.account, now + HELD_MAX));
                CallDecision::Hold
            }
            _ => CallDecision::Admit,
        }
    }

    fn call_returned(&mut self, now: Time, call: &Call) {
        let Some(place) = self.fsyncs.find(call.id) else { return };
        if let State::Admitted { since, data } = self.fsyncs.get(place).state {
            self.commit.measured(now.since(since).saturating_sub(data));
        }
        self.by_deadline.set(place as usize, [ABSENT; 3]);
        self.by_patience.set(place as usize, [ABSENT; 3]);
        self.fsyncs.remove(place);
    }

    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        while self.by_patience.first(0).key <= now.as_nanos() {
            let place = self.by_patience.first(0).owner;
            if self.fsyncs.get(place).state == State::Waiting {
                self.stop_waiting(place);
            }
            released.push(self.admit(now, place));
        }
        while let Some(place) = self.next_ready(now) {
            released.push(self.admit(now, place));
        }
        // One at a time: what it dirties counts before the next one is looked at.
        if let Some(&(call, account, patience_ends)) = self.held_writes.front()
            && (patience_ends <= now || !self.must_wait(account))
        {
            self.held_writes.pop_front();
            released.push(call);
        }
    }

    fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        self.files.pages_dirtied(now, event);
    }

    fn pages_freed(&mut self, _now: Time, event: &PageEvent) {
        self.files.pages_freed(event);
        self.look_at_waiting(event.file);
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        let file = request.file;
        let own = file.and_then(|file| self.files.deadlines_of(file).read);
        let deadline = own.or(self.account_deadlines(request.session).read).unwrap_or(READ_EXPIRE);
        if let Some(file) = file.filter(|_| request.operation.is_write()) {
            self.asked = self.asked.filter(|&(asked, _)| asked != file);
            self.files.request_added(&request);
            self.look_at_waiting(file);
        }
        self.blocks.add(now, request, now + deadline);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        let first = self.by_deadline.first(ADMITTED).key;
        let fsync_deadline = (first != ABSENT).then_some(Time::from_nanos(first));
        self.blocks.next(now, fsync_deadline).map_or(Dispatch::Nothing, Dispatch::Now)
    }

    fn request_completed(&mut self, _now: Time, completion: &Completion) {
        self.blocks.completed(completion.id);
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let target = self.writeback_target(now);
        let slice_at = target.and_then(|(file, promise)| self.begin_slice(now, file, promise, wishes));
        let patience_ends = Time::from_nanos(self.by_patience.first(0).key);
        let write_at = self.held_writes.front().map(|&(_, _, patience_ends)| patience_ends);
        let next = [slice_at, write_at, self.files.due_at(), Some(patience_ends)]
            .into_iter()
            .flatten()
            .filter(|&at| at > now)
            .min();
        wishes.extend(next.filter(|&at| at < Time::MAX).map(Wish::WakeAt));
    }
}
