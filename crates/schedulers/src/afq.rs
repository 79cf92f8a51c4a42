//! `afq`: Actually Fair Queuing, priorities that hold for reads, buffered writes and fsync alike.
//!
//! **Intuition.** Below the file system it is too late: a buffered write has lost its owner, and an fsync waits for
//! blocks of others. So reads are ordered at the block level, and calls that write at their entry. The account that
//! caused an I/O pays for it, whichever thread submits it (split-level paper, section 5.1).
//!
//! **Rule.** All accounts walk along one line ([`crate::stride`]): a request's cost moves its causes ahead when it is
//! dispatched, the slower the higher their priority. A read, or a call that writes, goes while its account is ahead of
//! the others by no more than [`SLACK`]. Block writes go out at once: the journal may need any of them.
//!
//! **Complications.**
//! - *Debts.* Pages are written long after they were dirtied. An account that dirties a clean page is charged the
//!   page's probable cost at once. When it is written the charge is refunded, and the real cost charged. A call that
//!   goes leaves a deposit, so that a hundred threads do not go at the same debt.
//! - *Batches.* Fsyncs of one commit share its cost, so those that may go on go together, and the next when they are
//!   back.
//! - *Lingering.* An account that waited for the disk will want it again at once, but not in the same instant. So it
//!   still contends for a moment, and pays if it leaves the disk idle. A writer that asks nothing of the disk does not
//!   contend for long.
//!
//! O(log accounts) an event, and for each cause of a request.

#[cfg(test)]
mod tests;

use crate::advances::Advances;
use crate::anticipation::Anticipation;
use crate::at_device::AtDevice;
use crate::call_batch::CallBatch;
use crate::joined_calls::JoinedCalls;
use crate::mean_positioning::MeanPositioning;
use crate::request_queues::{Queue, RequestQueues};
use crate::stride::{Stride, passes};
use plimsoll_core::{Account, AccountId, BlockRequest, Call, CallDecision, CallId, CallKind, Completion};
use plimsoll_core::{DeviceProfile, Dispatch, FileId, Operation, PageEvent, Priority, Scheduler, Span, Time, Wish};
use std::collections::VecDeque;

/// How long a disk stays with one account's reads, as time of the device in sequence. Half of a slice of CFQ
/// (`cfq_slice_sync`): among readers of all levels, level 7 has its turn every 36 slices, two seconds.
pub const SLICE: Span = Span::from_millis(50);
/// Lead over the others with which level 0 may still go, as time of the device. Level 7 may have an eighth of it. A
/// slice of CFQ at priority 0 is 180 ms (`cfq_prio_to_slice`).
pub const SLACK: Span = Span::from_millis(200);
/// Slacks by which level 0 may be behind when it comes back: one by which others may be ahead, and one for itself.
const CREDIT_SLACKS: u64 = 2;
/// Most lead of an account, as time of the device: a call may cost so much and still be paid in full.
pub const LEAD_MAX: Span = Span::from_secs(2);
/// How long an account that had a read or an fsync still contends, on a disk (CFQ: `cfq_slice_idle`).
const LINGER: Span = Span::from_millis(8);
/// Most cost of a batch's fsyncs together, as time of the device. The next batch waits twice as long for stragglers.
const BATCH_MAX: Span = Span::from_millis(500);

/// Lines of [`Stride`]: the accounts that contend, those that wait with a read, and from here on those with a call of
/// each queue.
const CONTENDS: usize = 0;
const READS: usize = 1;
const CALLS: usize = 2;
const SYNCS: usize = CALLS + SYNC;

/// The queues of held calls: of those that change files, and of fsync and fdatasync.
const MODIFY: usize = 0;
const SYNC: usize = 1;

/// What is known of an account.
#[derive(Default)]
struct AfqAccount {
    reads: Queue,
    reads_at_device: u32,
    /// By queue: calls at the entry, with their deposits, and how many are under way.
    held: [VecDeque<(CallId, u64)>; 2],
    inside: [u32; 2],
    anticipation: Anticipation,
}

/// See the module's text. Costs are in normalised bytes.
pub struct Afq {
    bytes_per_second: f64,
    outstanding_max: usize,
    linger: Span,
    deposit_sync: u64,
    /// In passes.
    slack: u64,
    stride: Stride,
    model: MeanPositioning,
    advances: Advances,
    members: Vec<AfqAccount>,
    queues: RequestQueues,
    at_once: VecDeque<BlockRequest>,
    /// Reads are noted.
    at_device: AtDevice<AccountId>,
    /// The account that the disk reads for, and the pass at which its slice ends.
    slice: Option<(AccountId, u64)>,
    batch: CallBatch,
    joined: JoinedCalls,
}

impl Afq {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> Afq {
        let bytes_per_second = device.sequential_bytes_per_second;
        let cost = |span: Span| (span.as_secs_f64() * bytes_per_second) as u64;
        Afq {
            bytes_per_second,
            outstanding_max: device.outstanding_max.max(1) as usize,
            linger: if device.is_rotational { LINGER } else { Span::ZERO },
            deposit_sync: (bytes_per_second / device.worst_case_runs_per_second) as u64,
            slack: passes(cost(SLACK)),
            stride: Stride::new(CREDIT_SLACKS * cost(SLACK), cost(LEAD_MAX)),
            model: MeanPositioning::new(device),
            advances: Advances::new(device),
            members: Vec::new(),
            queues: RequestQueues::default(),
            at_once: VecDeque::new(),
            at_device: AtDevice::default(),
            slice: None,
            batch: CallBatch::new(BATCH_MAX * 2, device.is_rotational),
            joined: JoinedCalls::default(),
        }
    }

    fn cost_of(&self, span: Span) -> u64 {
        (span.as_secs_f64() * self.bytes_per_second) as u64
    }

    fn member(&mut self, account: AccountId) -> &mut AfqAccount {
        while self.members.len() <= account.index() {
            self.stride.open(AccountId(self.members.len() as u32), Priority::default());
            self.members.push(AfqAccount::default());
        }
        &mut self.members[account.index()]
    }

    /// Puts the account into the lines that it belongs in; best before it is charged, which moves it in all of them.
    fn place(&mut self, now: Time, account: AccountId) {
        let linger = self.linger;
        let member = self.member(account);
        let [modifies, syncs] = member.held.each_ref().map(|held| !held.is_empty());
        let has_reads = !member.reads.is_empty();
        let is_waiting = has_reads || member.reads_at_device > 0 || modifies || syncs || member.inside[SYNC] > 0;
        member.anticipation.does(is_waiting, member.inside[MODIFY] > 0, linger);
        let stands = [member.anticipation.contends_until() > now, has_reads, modifies, syncs];
        let lines = stands.iter().enumerate().map(|(line, &stands)| u8::from(stands) << line).sum();
        self.stride.stand_in(account, lines);
    }

    /// Lets go of accounts that contend for nothing any more.
    fn expire(&mut self, now: Time) {
        while let Some(first) = self.stride.first(CONTENDS)
            && self.members[first.index()].anticipation.contends_until() <= now
        {
            self.end_lingering(now, first, false);
            self.place(now, first);
        }
    }

    /// The account wants the disk again, or does not. If the disk was kept idle for it, it pays for that time.
    fn end_lingering(&mut self, now: Time, account: AccountId, wants_it: bool) {
        let is_reader = self.slice.is_some_and(|(reader, _)| reader == account);
        let (linger, is_waited_for) = (self.linger, is_reader || self.stride.first(CONTENDS) == Some(account));
        let lingered = self.member(account).anticipation.stop_lingering(now, wants_it, linger);
        if let Some(lingered) = lingered.filter(|_| is_waited_for && self.at_device.is_empty()) {
            self.stride.charge(account, self.cost_of(lingered));
        }
    }

    /// The queue in which a call is held, and its deposit; `None` if it is never held.
    fn gate(&self, call: &Call) -> Option<(usize, u64)> {
        match call.kind {
            CallKind::Read => None,
            CallKind::Fsync | CallKind::Fdatasync => Some((SYNC, self.deposit_sync)),
            _ => Some((MODIFY, call.length)),
        }
    }

    /// Releases the account's first held call. Answers it and its deposit.
    fn release(&mut self, now: Time, account: AccountId, gate: usize) -> Option<(CallId, u64)> {
        let member = self.member(account);
        let (id, deposit) = member.held[gate].pop_front()?;
        member.inside[gate] += 1;
        match gate {
            MODIFY => self.joined.joins(account),
            _ => self.batch.entered(now),
        }
        self.advances.deposit(account, deposit);
        self.stride.charge(account, deposit);
        self.place(now, account);
        Some((id, deposit))
    }

    fn release_syncs(&mut self, now: Time, released: &mut Vec<CallId>) {
        if self.batch.next_at() > now && self.stride.count(CONTENDS) > 1 {
            return;
        }
        let (mut cost, cost_max, before) = (0, self.cost_of(BATCH_MAX), released.len());
        while cost <= cost_max
            && let Some(first) = self.stride.first(SYNCS)
            && self.stride.is_due(first, self.slack)
            && (cost > 0 || !self.batch.waits_for_commit(now))
        {
            let Some((id, deposit)) = self.release(now, first, SYNC) else { break };
            released.push(id);
            cost += deposit;
        }
        self.batch.begin(now, released.len() - before);
    }

    /// The account with the next read; otherwise what to answer.
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
            let until = member.anticipation.contends_until();
            if member.anticipation.is_lingering() && until > now {
                return Err(Dispatch::NotBefore(until));
            }
            self.end_lingering(now, reader, false);
            self.place(now, reader);
        }
        let first = self.stride.first(READS).ok_or(Dispatch::Nothing)?;
        if !self.stride.is_due(first, self.slack) {
            if !self.at_device.is_empty() {
                return Err(Dispatch::Nothing);
            }
            let before = self.stride.first(CONTENDS).map(|before| &self.members[before.index()].anticipation);
            if let Some(before) = before.filter(|before| before.is_lingering()) {
                return Err(Dispatch::NotBefore(before.contends_until()));
            }
        }
        self.slice = Some((first, self.stride.pass_after(first, self.cost_of(SLICE))));
        Ok(first)
    }

    /// Charges what the account has not left as a deposit.
    fn pay(&mut self, account: AccountId, cost: u64) {
        self.stride.charge(account, self.advances.spend(account, cost));
    }

    /// A request goes to the device: its causes pay. A commit is shared by the calls that joined it.
    fn charge(&mut self, request: &BlockRequest) {
        let cost = self.model.cost(request);
        if request.causes.is_empty() {
            return self.pay(request.session, cost);
        }
        let total: u64 = request.causes.iter().map(|cause| self.joined.parts(cause, request)).sum();
        for cause in request.causes.iter() {
            let part = cost * self.joined.parts(cause, request) / total;
            self.pay(cause, part);
        }
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
        *self.member(account) = AfqAccount::default();
        self.advances.forget(account);
        self.joined.forget(account);
        self.stride.close(account);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        let Some((gate, deposit)) = self.gate(call) else { return CallDecision::Admit };
        self.expire(now);
        let account = call.account;
        if gate == SYNC {
            self.end_lingering(now, account, true);
            self.batch.came(call.file);
        }
        self.member(account).held[gate].push_back((call.id, deposit));
        self.place(now, account);
        let may_go_on = match gate {
            MODIFY => self.stride.is_due(account, self.slack),
            _ => self.stride.count(CONTENDS) == 1,
        };
        if !may_go_on || self.member(account).held[gate].len() > 1 {
            return CallDecision::Hold;
        }
        self.release(now, account, gate);
        CallDecision::Admit
    }

    fn call_returned(&mut self, now: Time, call: &Call) {
        let Some((gate, deposit)) = self.gate(call) else { return };
        let member = self.member(call.account);
        member.inside[gate] -= 1;
        if gate == SYNC {
            member.anticipation.was_served(now);
            self.batch.left(now);
        }
        self.stride.refund(call.account, self.advances.withdraw(call.account, deposit));
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
            released.extend(self.release(now, first, MODIFY).map(|(id, _)| id));
        }
        self.release_syncs(now, released);
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let has_syncs = self.stride.count(SYNCS) > 0;
        if has_syncs || self.stride.count(CALLS) > 0 {
            let contends =
                self.stride.first(CONTENDS).map(|first| self.members[first.index()].anticipation.contends_until());
            let times = [contends, has_syncs.then(|| self.batch.next_at())].into_iter().flatten();
            wishes.extend(times.filter(|&at| at > now && at < Time::MAX).min().map(Wish::WakeAt));
        }
        self.batch.wishes(now, wishes);
    }

    fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        // Only what was clean: a file's times change with every write, and the disk is not asked for more.
        let was_clean = event.previous.is_empty();
        let cost = self.advances.pages_dirtied(event);
        for cause in event.causes.iter().filter(|_| was_clean) {
            self.member(cause).anticipation.has_written(now);
            // Metadata blocks are charged when they are written.
            if event.file != FileId::DEVICE {
                self.pay(cause, cost);
                self.place(now, cause);
            }
        }
    }

    fn pages_freed(&mut self, _now: Time, event: &PageEvent) {
        self.advances.pages_freed(event, |account, cost| self.stride.refund(account, cost));
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        let session = request.session;
        self.joined.request_added(&request);
        self.batch.request_added(now, &request);
        if request.operation != Operation::Read || request.class.is_metadata() {
            return self.at_once.push_back(request);
        }
        self.expire(now);
        self.end_lingering(now, session, true);
        self.queues.push(&mut self.members[session.index()].reads, request);
        self.place(now, session);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if let Some(request) = self.at_once.pop_front() {
            self.at_device.dispatched(request.id, None);
            self.advances.request_added(&request, |account, cost| self.stride.refund(account, cost));
            self.charge(&request);
            return Dispatch::Now(request);
        }
        if self.at_device.noted() >= self.outstanding_max || self.stride.count(READS) == 0 {
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
        self.at_device.dispatched(request.id, Some(reader));
        self.place(now, reader);
        self.charge(&request);
        Dispatch::Now(request)
    }

    fn request_completed(&mut self, now: Time, completion: &Completion) {
        self.batch.request_completed(completion.id);
        if let Some(reader) = self.at_device.completed(completion.id) {
            let member = self.member(reader);
            member.reads_at_device -= 1;
            member.anticipation.was_served(now);
            self.place(now, reader);
        }
    }
}
