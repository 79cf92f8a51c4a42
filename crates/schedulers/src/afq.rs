//! `afq`: Actually Fair Queuing, priorities that hold for reads, buffered writes and fsync alike.
//!
//! **Intuition.** Below the file system it is too late: a buffered write has lost its owner, and an fsync waits for blocks
//! of others. So reads are put in order at the block level, and calls that write at their entry; and whoever caused an
//! I/O pays for it, whoever submits it (split-level paper, section 5.1).
//!
//! **Rule.** Everybody walks along one line ([`crate::stride`]): a request's cost moves its causes ahead when it is
//! dispatched, the slower the higher their priority. A read, or a call that writes, goes on while its account is not
//! ahead of the others by more than [`SLACK`]. Block writes go out at once: the journal may need any of them.
//!
//! **Complications.**
//! - *Debts.* Pages are written long after they were dirtied. Who dirties a clean page is charged then what it will
//!   probably cost, and when it is written that is taken back and what it does cost is charged. A call that goes on
//!   leaves a deposit, so that a hundred threads do not go on at the same debt.
//! - *Batches.* Fsyncs of one commit share its cost, so those that may go on go together, and the next when they are back.
//! - *Lingering.* Who waited for the disk will want it again at once, but not in the same instant. So it still contends
//!   for a moment, and pays if it leaves the disk idle. A writer that asks nothing of the disk does not contend for long.
//!
//! O(log accounts) an event, and for each cause of a request.

mod member;
mod paying;
#[cfg(test)]
mod tests;

use crate::cost_model::{CostModel, DirtyModel};
use crate::dirty_ledger::DirtyLedger;
use crate::request_queues::RequestQueues;
use crate::stride::{Stride, passes};
use member::{Batch, Gate, Member};
use plimsoll_core::{
    Account, AccountId, BlockRequest, Call, CallDecision, CallId, Completion, DeviceProfile, Dispatch,
};
use plimsoll_core::{FileId, Operation, PageEvent, Priority, RequestId, Scheduler, Span, Time, Wish};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// How long a disk stays with one account's reads, as time of the device in sequence. Half of a slice of CFQ
/// (`cfq_slice_sync`): among readers of all levels, level 7 has its turn every 36 slices, two seconds.
pub const SLICE: Span = Span::from_millis(50);
/// What level 0 may be ahead of the others and go on, as time of the device; level 7 may be an eighth of it ahead. A slice
/// of CFQ at priority 0 is 180 ms (`cfq_prio_to_slice`).
pub const SLACK: Span = Span::from_millis(200);
/// How many slacks level 0 may be behind when it comes back: one, by which others may be ahead, and one for itself.
const CREDIT_SLACKS: u64 = 2;
/// What anybody may be ahead, as time of the device: a call may cost so much and still be paid in full.
pub const LEAD_MAX: Span = Span::from_secs(2);
/// How long who had a read or an fsync still contends, on a disk (CFQ: `cfq_slice_idle`).
const LINGER: Span = Span::from_millis(8);
/// How long a call that writes contends after it last made a clean page dirty: longer than a pause of the kernel's throttling
/// (`MAX_PAUSE`, 200 ms).
const STALE: Span = Span::from_millis(500);
/// How long a batch of fsyncs is gathered at the most: a process is back within some microseconds.
const GATHER_MAX: Span = Span::from_micros(500);
/// And at the most this part of the time that the last batch took.
const GATHER_PART: u64 = 16;
/// What fsyncs of a batch may cost together, as time of the device; twice as long the next batch waits for stragglers.
const BATCH_MAX: Span = Span::from_millis(500);
/// Superblock to directories (Differentiated Storage Services, table 2): read while a transaction is open, so that others
/// may wait for them.
const METADATA_CLASSES: RangeInclusive<u8> = 1..=6;
/// The file that stands for the device: its pages are metadata blocks, which are charged when they are written.
const METADATA: FileId = FileId(0);

/// Lines of [`Stride`]: who contends, who waits with a read, and from here on with a call of each [`Gate`].
const CONTENDS: usize = 0;
const READS: usize = 1;
const CALLS: usize = 2;
const SYNCS: usize = CALLS + Gate::Sync as usize;

/// See the module's text.
pub struct Afq {
    bytes_per_second: f64,
    outstanding_max: usize,
    linger: Span,
    deposit_sync: u64,
    /// In passes.
    slack: u64,
    /// What positioning costs a write, on average, normalised bytes.
    positioning: f64,
    stride: Stride,
    model: CostModel,
    dirty_model: DirtyModel,
    ledger: DirtyLedger,
    /// Kept for its memory.
    books_before: Vec<(AccountId, u64)>,
    members: Vec<Member>,
    queues: RequestQueues,
    at_once: VecDeque<BlockRequest>,
    reads_at_device: Vec<(RequestId, AccountId)>,
    outstanding: u32,
    /// Whose reads the disk is at, and the pass at which its slice ends.
    slice: Option<(AccountId, u64)>,
    batch: Batch,
}

impl Afq {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> Afq {
        let bytes_per_second = device.sequential_bytes_per_second;
        let cost = |span: Span| (span.as_secs_f64() * bytes_per_second) as u64;
        let run = bytes_per_second / device.worst_case_runs_per_second;
        Afq {
            bytes_per_second,
            outstanding_max: device.outstanding_max.max(1) as usize,
            linger: if device.is_rotational { LINGER } else { Span::ZERO },
            deposit_sync: run as u64,
            slack: passes(cost(SLACK)),
            positioning: run,
            stride: Stride::new(CREDIT_SLACKS * cost(SLACK), cost(LEAD_MAX)),
            model: CostModel::new(device),
            dirty_model: DirtyModel::new(device),
            ledger: DirtyLedger::default(),
            books_before: Vec::new(),
            members: Vec::new(),
            queues: RequestQueues::default(),
            at_once: VecDeque::new(),
            reads_at_device: Vec::new(),
            outstanding: 0,
            slice: None,
            batch: Batch::default(),
        }
    }

    fn cost_of(&self, span: Span) -> u64 {
        (span.as_secs_f64() * self.bytes_per_second) as u64
    }

    fn member(&mut self, account: AccountId) -> &mut Member {
        while self.members.len() <= account.index() {
            self.stride.open(AccountId(self.members.len() as u32), Priority::default());
            self.members.push(Member::new());
        }
        &mut self.members[account.index()]
    }

    /// Puts the account into the lines that it belongs in.
    fn place(&mut self, now: Time, account: AccountId) {
        let linger = self.linger;
        let member = self.member(account);
        member.contends_until = if member.is_waiting() {
            Time::MAX
        } else if member.inside[Gate::Modify as usize] > 0 {
            member.wrote + STALE
        } else if member.comes_back {
            member.done + linger
        } else {
            Time::ZERO
        };
        let [modifies, syncs] = [Gate::Modify, Gate::Sync].map(|gate| member.is_holding(gate));
        let stands = [member.contends_until > now, !member.reads.is_empty(), modifies, syncs];
        let lines = stands.iter().enumerate().map(|(line, &stands)| u8::from(stands) << line).sum();
        self.stride.stand_in(account, lines);
    }

    /// Lets go of those who contend for nothing any more.
    fn expire(&mut self, now: Time) {
        while let Some(first) = self.stride.first(CONTENDS)
            && self.members[first.index()].contends_until <= now
        {
            self.end_lingering(now, first, false);
            self.place(now, first);
        }
    }

    /// The account wants the disk again, or does not. If the disk was kept idle for it, it pays for that time.
    fn end_lingering(&mut self, now: Time, account: AccountId, comes_back: bool) {
        let is_reader = self.slice.is_some_and(|(reader, _)| reader == account);
        let (linger, is_waited_for) = (self.linger, is_reader || self.stride.first(CONTENDS) == Some(account));
        let member = self.member(account);
        let (was_lingering, away) = (member.is_lingering(), now.since(member.done));
        member.comes_back = comes_back && (away <= linger || (member.comes_back && !was_lingering));
        if was_lingering && is_waited_for && self.outstanding == 0 {
            self.stride.charge(account, self.cost_of(away.min(linger)));
        }
    }

    fn deposit(&self, gate: Gate, call: &Call) -> u64 {
        if gate == Gate::Sync { self.deposit_sync } else { call.length }
    }

    /// A call goes on.
    fn go_on(&mut self, now: Time, account: AccountId, gate: Gate, deposit: u64) {
        let member = self.member(account);
        member.inside[gate as usize] += 1;
        member.deposit += deposit;
        if gate == Gate::Modify {
            member.joined += 1;
        } else {
            self.batch.began = if self.batch.inside == 0 { now } else { self.batch.began };
            self.batch.inside += 1;
        }
        self.stride.charge(account, deposit);
        self.place(now, account);
    }

    /// Lets the first held call of the account go on; answers with its deposit.
    fn release(&mut self, now: Time, account: AccountId, gate: Gate, released: &mut Vec<CallId>) -> u64 {
        let Some((id, deposit)) = self.member(account).held[gate as usize].pop_front() else { return 0 };
        released.push(id);
        self.go_on(now, account, gate, deposit);
        deposit
    }

    /// When a batch of fsyncs may begin: if the last one is not back, at the latest.
    fn batch_may_begin(&self) -> Time {
        if self.batch.inside > 0 { self.batch.began + BATCH_MAX * 2 } else { self.batch.gathered }
    }

    fn release_syncs(&mut self, now: Time, released: &mut Vec<CallId>) {
        if self.batch_may_begin() > now && self.stride.count(CONTENDS) > 1 {
            return;
        }
        let (mut cost, cost_max) = (0, self.cost_of(BATCH_MAX));
        while cost <= cost_max
            && let Some(first) = self.stride.first(SYNCS)
            && self.stride.is_due(first, self.slack)
        {
            self.batch.began = if cost == 0 { now } else { self.batch.began };
            cost += self.release(now, first, Gate::Sync, released);
        }
    }

    /// Whose read is next; otherwise what to answer.
    fn choose(&mut self, now: Time) -> Result<AccountId, Dispatch> {
        if let Some((reader, end)) = self.slice
            && self.stride.pass(reader) < end
            && self.linger > Span::ZERO
        {
            let member = &self.members[reader.index()];
            if !member.reads.is_empty() {
                return Ok(reader);
            }
            if member.reads_at_device > 0 || self.stride.count(READS) == 0 {
                return Err(Dispatch::Nothing);
            }
            if member.is_lingering() && member.contends_until > now {
                return Err(Dispatch::NotBefore(member.contends_until));
            }
            self.end_lingering(now, reader, false);
            self.place(now, reader);
        }
        let first = self.stride.first(READS).ok_or(Dispatch::Nothing)?;
        if !self.stride.is_due(first, self.slack) {
            if self.outstanding > 0 {
                return Err(Dispatch::Nothing);
            }
            let before = self.stride.first(CONTENDS).map(|before| &self.members[before.index()]);
            if let Some(before) = before.filter(|before| before.is_lingering()) {
                return Err(Dispatch::NotBefore(before.contends_until));
            }
        }
        self.slice = Some((first, self.stride.pass_after(first, self.cost_of(SLICE))));
        Ok(first)
    }
}

impl Scheduler for Afq {
    fn name(&self) -> &'static str {
        "afq"
    }

    fn account_opened(&mut self, _now: Time, account: &Account) {
        self.member(account.id);
        self.stride.open(account.id, account.allocation.priority);
    }

    fn account_changed(&mut self, _now: Time, account: &Account) {
        self.stride.open(account.id, account.allocation.priority);
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        *self.member(account) = Member::new();
        self.stride.close(account);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        let Some(gate) = Gate::of(call.kind) else { return CallDecision::Admit };
        self.expire(now);
        let (account, deposit) = (call.account, self.deposit(gate, call));
        if gate == Gate::Sync {
            self.end_lingering(now, account, true);
        }
        self.member(account).held[gate as usize].push_back((call.id, deposit));
        self.place(now, account);
        let may_go_on = match gate {
            Gate::Modify => self.stride.is_due(account, self.slack),
            Gate::Sync => self.stride.count(CONTENDS) == 1,
        };
        let held = &mut self.member(account).held[gate as usize];
        if held.len() > 1 || !may_go_on {
            return CallDecision::Hold;
        }
        held.pop_back();
        self.go_on(now, account, gate, deposit);
        CallDecision::Admit
    }

    fn call_returned(&mut self, now: Time, call: &Call) {
        let Some(gate) = Gate::of(call.kind) else { return };
        let deposit = self.deposit(gate, call);
        let member = self.member(call.account);
        member.inside[gate as usize] -= 1;
        let left = deposit.min(member.deposit);
        member.deposit -= left;
        if gate == Gate::Sync {
            member.done = now;
            self.batch.inside -= 1;
            let took = now.since(self.batch.began).as_nanos();
            self.batch.gathered = now + Span::from_nanos(took / GATHER_PART).min(GATHER_MAX);
        }
        self.stride.refund(call.account, left);
        self.place(now, call.account);
    }

    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        if self.stride.count(CALLS) + self.stride.count(SYNCS) == 0 {
            return;
        }
        self.expire(now);
        while let Some(first) = self.stride.first(CALLS)
            && self.stride.is_due(first, self.slack)
        {
            self.release(now, first, Gate::Modify, released);
        }
        self.release_syncs(now, released);
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let has_syncs = self.stride.count(SYNCS) > 0;
        if has_syncs || self.stride.count(CALLS) > 0 {
            let contends = self.stride.first(CONTENDS).map(|first| self.members[first.index()].contends_until);
            let times = [contends, has_syncs.then(|| self.batch_may_begin())].into_iter().flatten();
            wishes.extend(times.filter(|&at| at > now && at < Time::MAX).min().map(Wish::WakeAt));
        }
    }

    fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        self.charge_dirty(now, event);
    }

    fn pages_freed(&mut self, _now: Time, event: &PageEvent) {
        self.forgive_freed(event);
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        let session = request.session;
        if request.operation != Operation::Read || METADATA_CLASSES.contains(&request.class.number()) {
            return self.at_once.push_back(request);
        }
        self.expire(now);
        self.end_lingering(now, session, true);
        self.queues.push(&mut self.members[session.index()].reads, request);
        self.place(now, session);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if let Some(request) = self.at_once.pop_front() {
            self.outstanding += 1;
            self.charge_write(&request);
            return Dispatch::Now(request);
        }
        if self.reads_at_device.len() >= self.outstanding_max || self.stride.count(READS) == 0 {
            return Dispatch::Nothing;
        }
        self.expire(now);
        let reader = match self.choose(now) {
            Ok(reader) => reader,
            Err(otherwise) => return otherwise,
        };
        let member = &mut self.members[reader.index()];
        let Some(request) = self.queues.pop(&mut member.reads) else { return Dispatch::Nothing };
        member.reads_at_device += 1;
        self.outstanding += 1;
        self.reads_at_device.push((request.id, reader));
        self.charge(&request);
        self.place(now, reader);
        Dispatch::Now(request)
    }

    fn request_completed(&mut self, now: Time, completion: &Completion) {
        self.outstanding -= 1;
        let place = self.reads_at_device.iter().position(|(id, _)| *id == completion.id);
        if let Some(place) = place {
            let (_, reader) = self.reads_at_device.swap_remove(place);
            let member = self.member(reader);
            member.reads_at_device -= 1;
            member.done = now;
            self.place(now, reader);
        }
    }
}
