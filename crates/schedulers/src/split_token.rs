//! `split_token`: limits in *normalised bytes*, kept across all three levels (split-level paper, section 5.3).
//!
//! **Intuition.** Who is limited may use so much of the disk, and what uses a disk is known for certain only at the bottom,
//! when it is too late to hold a write back: the journal has entangled it with everybody else's. So a write is *charged
//! early and roughly*, when its pages become dirty, and *again and exactly* when it is dispatched; and it is held back
//! before it enters the file system.
//!
//! ```text
//!   calls        those that modify wait while the balance is negative; reads never (the cache may have them)
//!   page cache   pages dirtied anew are charged by a guess; pages freed get it back
//!   block layer  requests are charged by the disk's model, less the guess; reads wait while the balance is negative,
//!                writes never (others' may depend on them)
//! ```
//!
//! **Rule.** Each limited account, session or pool, has a balance that grows at its limit up to what a tenth of a second
//! brings. A cost is divided among its causes, and each part is taken from the cause and from every pool that it is in.
//! Who waits, waits for the first of these balances that is negative.
//!
//! **Complication.** *Guesses have to come back.* A request does not say which guess was made for its bytes, so each account
//! remembers what it was charged for how many dirty bytes, and gets back the average: in all exactly what was charged.
//! *Somebody's stream is interrupted.* Then the disk goes there and back again, and who interrupted pays for both.
//! *Metadata reads never wait*: who makes one may have a transaction open that others need committed.
//!
//! Cost: O(depth of the account x causes) per event, and O(log8 accounts) where somebody waits. Requests that may go are
//! given to the device in the order in which they came, as many as [`DeviceWindow`] allows.

use crate::cost_model::{CostModel, DirtyModel};
use crate::device_window::DeviceWindow;
use crate::min_tree::{ABSENT, KEYS, MinTree};
use crate::request_queues::{Queue, RequestQueues};
use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{
    Account, AccountId, BlockRequest, Call, CallDecision, CallId, CallKind, CauseSet, Completion, DeviceProfile,
};
use plimsoll_core::{Dispatch, FileId, Operation, PageEvent, Rate, Scheduler, Span, Time, Wish};
use std::collections::VecDeque;

/// For how long a balance grows at the most. As in [`scs_token`](crate::scs_token): longer than a call takes on a busy
/// disk, so that who always has a next one loses nothing, and short, so that an idle hour earns no burst.
pub const BURST: Span = Span::from_millis(100);

/// The part of a positioning that an interrupted stream loses on its way back: what the drive had read ahead before it went
/// is in its buffer when it returns. Fitted to `hdd.wd-aakx` and `hdd.15k-sas`: a sequential reader loses about as much to
/// random reads as to writes that are charged alike.
const WAY_BACK_PART: f64 = 2.0 / 3.0;

/// Whose turn comes first at the calls, and at the reads: keys of the tree.
const CALLS: usize = 0;
const READS: usize = 1;

/// A balance as a point in time: when it is zero again if nothing more is taken.
#[derive(Clone, Copy)]
struct Balance {
    nanoseconds_per_byte: f64,
    zero_at: Time,
}

impl Balance {
    /// Takes so many bytes; gives them back if they are negative.
    fn take(&mut self, now: Time, bytes: f64) {
        let span = Span::from_nanos((bytes.abs() * self.nanoseconds_per_byte).round() as u64);
        let full_at = now.saturating_sub(BURST);
        self.zero_at = match bytes < 0.0 {
            true => self.zero_at.saturating_sub(span).max(full_at),
            false => self.zero_at.max(full_at) + span,
        };
    }
}

/// What an account was charged for pages that are dirty still, in bytes; pages of several causes in equal parts.
#[derive(Clone, Copy, Default)]
struct Dirty {
    bytes: f64,
    charged: f64,
}

impl Dirty {
    fn add(&mut self, bytes: f64, charged: f64) {
        self.bytes += bytes;
        self.charged += charged;
    }

    /// Takes so many bytes out, or all there are; answers with what was charged for them, on average.
    fn take(&mut self, bytes: f64) -> f64 {
        // What is left of the last page is rounding.
        let part = match bytes {
            0.0 => 0.0,
            _ if self.bytes - bytes < 1.0 => 1.0,
            _ => bytes / self.bytes,
        };
        let charged = self.charged * part;
        *self = Dirty { bytes: self.bytes * (1.0 - part), charged: self.charged - charged };
        charged
    }
}

/// What is known of an account, and who waits for its balance: calls and reads of it and of all that are in it.
struct Node {
    parent: Option<AccountId>,
    balance: Option<Balance>,
    /// Of files, and of metadata: a guess for the one says little of the other.
    dirty: [Dirty; 2],
    calls: VecDeque<(CallId, AccountId)>,
    reads: Queue,
}

impl Node {
    const UNKNOWN: Node = Node {
        parent: None,
        balance: None,
        dirty: [Dirty { bytes: 0.0, charged: 0.0 }; 2],
        calls: VecDeque::new(),
        reads: Queue::EMPTY,
    };

    fn zero_at(&self) -> Time {
        self.balance.map_or(Time::ZERO, |balance| balance.zero_at)
    }
}

/// See the module's text.
pub struct SplitToken {
    device_runs_per_second: f64,
    guess: DirtyModel,
    model: CostModel,
    nodes: Vec<Node>,
    /// Accounts whose balance somebody waits for, by when it will be zero.
    waiting: MinTree,
    /// Requests that wait for the device only, or whose account has not been looked at yet.
    arrived: Queue,
    queues: RequestQueues,
    window: DeviceWindow,
    /// Who caused what was dispatched last.
    last_causes: Vec<AccountId>,
}

impl SplitToken {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> SplitToken {
        SplitToken {
            device_runs_per_second: device.worst_case_runs_per_second,
            guess: DirtyModel::new(device),
            model: CostModel::new(device),
            nodes: Vec::new(),
            waiting: MinTree::default(),
            arrived: Queue::EMPTY,
            queues: RequestQueues::default(),
            window: DeviceWindow::new(device),
            last_causes: Vec::new(),
        }
    }

    /// Bytes per second of a limit: a run counts as full, 32 KiB; per cent are of the device's worst case in runs.
    fn bytes_per_second(&self, limit: Rate) -> f64 {
        match limit {
            Rate::BytesPerSecond(bytes) => bytes,
            runs => runs.runs_per_second(self.device_runs_per_second) * RUN_BYTES_MAX as f64,
        }
    }

    fn learn(&mut self, now: Time, account: &Account) {
        let index = account.id.index();
        while self.nodes.len() <= index {
            self.waiting.assign(self.nodes.len(), self.nodes.len() as u32);
            self.nodes.push(Node::UNKNOWN);
        }
        let before = self.nodes[index].balance;
        self.nodes[index].parent = account.parent;
        self.nodes[index].balance = account.allocation.limit.map(|limit| {
            let nanoseconds_per_byte = 1e9 / self.bytes_per_second(limit);
            let mut balance = Balance { nanoseconds_per_byte, zero_at: now };
            if let Some(before) = before {
                balance.take(now, before.zero_at.since(now).as_nanos() as f64 / before.nanoseconds_per_byte);
            }
            balance
        });
        self.note_waiting(account.id);
    }

    /// Of the account and all that it is in, the one whose balance is negative for longest; `None` if none is.
    fn blocking(&self, now: Time, account: AccountId) -> Option<AccountId> {
        let (mut latest, mut blocking, mut next) = (now, None, Some(account));
        while let Some((id, node)) = next.and_then(|id| Some((id, self.nodes.get(id.index())?))) {
            if node.zero_at() > latest {
                (latest, blocking) = (node.zero_at(), Some(id));
            }
            next = node.parent;
        }
        blocking
    }

    /// Tells the tree who waits for this account's balance, and until when.
    fn note_waiting(&mut self, account: AccountId) {
        let node = &self.nodes[account.index()];
        let mut keys = [ABSENT; KEYS];
        let zero_at = node.zero_at().as_nanos();
        keys[CALLS] = if node.calls.is_empty() { ABSENT } else { zero_at };
        keys[READS] = if node.reads.is_empty() { ABSENT } else { zero_at };
        self.waiting.set(account.index(), keys);
    }

    /// Takes `bytes` from the balance of the account and of all that it is in; gives them back if they are negative.
    fn charge(&mut self, now: Time, account: AccountId, bytes: f64) {
        let mut next = Some(account);
        while let Some((id, node)) = next.and_then(|id| Some((id, self.nodes.get_mut(id.index())?))) {
            next = node.parent;
            if let Some(balance) = &mut node.balance {
                balance.take(now, bytes);
                self.note_waiting(id);
            }
        }
    }

    fn dirty(&mut self, account: AccountId, is_metadata: bool) -> Option<&mut Dirty> {
        Some(&mut self.nodes.get_mut(account.index())?.dirty[usize::from(is_metadata)])
    }

    /// Gives back what the causes were charged when the pages became dirty that are written or deleted now: to each for an
    /// equal part of them. Where a request has pages of different causes, one may have had less of them than its part;
    /// then the others had more.
    fn give_back(&mut self, now: Time, causes: &CauseSet, is_metadata: bool, length: f64) {
        let share = length / causes.len().max(1) as f64;
        let mut missing = length;
        for bytes_max in [share, f64::INFINITY] {
            for cause in causes.iter() {
                let Some(dirty) = self.dirty(cause, is_metadata) else { continue };
                let bytes = dirty.bytes.min(bytes_max).min(missing);
                let charged = dirty.take(bytes);
                missing -= bytes;
                self.charge(now, cause, -charged);
            }
        }
    }

    /// A request goes to the device: its causes pay what it costs, less what they paid when they dirtied its pages.
    fn account_for(&mut self, now: Time, request: &BlockRequest) {
        let submitter = CauseSet::of(request.session);
        let causes = if request.causes.is_empty() { &submitter } else { &request.causes };
        let cost = self.model.cost(request);
        if let (true, Some(file)) = (request.operation.is_write(), request.file) {
            self.give_back(now, causes, file == FileId::DEVICE, f64::from(request.length));
        }
        let share = (cost.transfer + cost.positioning) as f64 / causes.len() as f64;
        causes.iter().for_each(|cause| self.charge(now, cause, share));
        if cost.is_resumed {
            let interrupters = std::mem::take(&mut self.last_causes);
            let share = cost.positioning as f64 * WAY_BACK_PART / interrupters.len() as f64;
            let others = interrupters.iter().filter(|&&other| !causes.contains(other));
            others.for_each(|&other| self.charge(now, other, share));
            self.last_causes = interrupters;
        }
        if cost.transfer > 0 {
            self.last_causes.clear();
            self.last_causes.extend(causes.iter());
        }
    }

    /// The next request whose account may use the disk now, without looking at the device.
    fn next_request(&mut self, now: Time) -> Option<BlockRequest> {
        loop {
            let first = self.waiting.first(READS);
            let request = if first.key <= now.as_nanos() {
                let account = AccountId(first.owner);
                let request = self.queues.pop(&mut self.nodes[account.index()].reads);
                self.note_waiting(account);
                request
            } else {
                self.queues.pop(&mut self.arrived)
            }?;
            let may_wait = request.operation == Operation::Read && request.file != Some(FileId::DEVICE);
            match self.blocking(now, request.session).filter(|_| may_wait) {
                None => return Some(request),
                Some(account) => {
                    self.queues.push(&mut self.nodes[account.index()].reads, request);
                    self.note_waiting(account);
                }
            }
        }
    }
}

impl Scheduler for SplitToken {
    fn name(&self) -> &'static str {
        "split_token"
    }

    fn account_opened(&mut self, now: Time, account: &Account) {
        self.learn(now, account);
    }

    /// A new limit begins without tokens; what was owed in bytes stays owed.
    fn account_changed(&mut self, now: Time, account: &Account) {
        self.learn(now, account);
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        self.nodes[account.index()] = Node::UNKNOWN;
        self.note_waiting(account);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        match self.blocking(now, call.account).filter(|_| call.kind != CallKind::Read) {
            None => CallDecision::Admit,
            Some(account) => {
                self.nodes[account.index()].calls.push_back((call.id, call.account));
                self.note_waiting(account);
                CallDecision::Hold
            }
        }
    }

    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        while self.waiting.first(CALLS).key <= now.as_nanos() {
            let due = AccountId(self.waiting.first(CALLS).owner);
            while let Some((call, account)) = self.nodes[due.index()].calls.pop_front() {
                match self.blocking(now, account) {
                    None => released.push(call),
                    Some(other) => {
                        self.nodes[other.index()].calls.push_back((call, account));
                        self.note_waiting(other);
                    }
                }
            }
            self.note_waiting(due);
        }
    }

    fn pages_dirtied(&mut self, now: Time, event: &PageEvent) {
        let (length, is_metadata) = (event.length as f64, event.file == FileId::DEVICE);
        let newcomers = || event.causes.iter().filter(|&cause| !event.previous.contains(cause));
        let (had_them, come) = (event.previous.len() as f64, newcomers().count() as f64);
        if come == 0.0 {
            return;
        }
        let mut charged = 0.0;
        if event.previous.is_empty() {
            charged = self.guess.charge(event.file, event.offset, event.length) as f64;
        }
        // Who had dirtied them already hands over a part of the pages, and of what they were charged for.
        for cause in event.previous.iter() {
            let handed_over = length / had_them - length / (had_them + come);
            let paid = self.dirty(cause, is_metadata).map_or(0.0, |dirty| dirty.take(handed_over));
            self.charge(now, cause, -paid);
            charged += paid;
        }
        for cause in newcomers() {
            if let Some(dirty) = self.dirty(cause, is_metadata) {
                dirty.add(length / (had_them + come), charged / come);
            }
            self.charge(now, cause, charged / come);
        }
    }

    fn pages_freed(&mut self, now: Time, event: &PageEvent) {
        self.give_back(now, &event.causes, event.file == FileId::DEVICE, event.length as f64);
    }

    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        self.queues.push(&mut self.arrived, request);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if self.window.is_full() || self.window.is_crowded(true) {
            return Dispatch::Nothing;
        }
        let Some(request) = self.next_request(now) else {
            let first = self.waiting.first(READS);
            return if first.key == ABSENT {
                Dispatch::Nothing
            } else {
                Dispatch::NotBefore(Time::from_nanos(first.key))
            };
        };
        self.account_for(now, &request);
        self.window.dispatched(&request, true);
        Dispatch::Now(request)
    }

    fn request_completed(&mut self, _now: Time, completion: &Completion) {
        self.window.completed(completion);
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let first = self.waiting.first(CALLS);
        if first.key != ABSENT {
            wishes.push(Wish::WakeAt(Time::from_nanos(first.key).max(now)));
        }
    }
}
