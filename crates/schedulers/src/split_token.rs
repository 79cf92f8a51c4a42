//! `split_token`: limits in *normalised bytes*, kept across all three levels (split-level paper, section 5.3).
//!
//! **Intuition.** A limited account may use so much of the disk. The use of a call is known for certain only at the
//! bottom. Then it is too late to hold a write: the journal has entangled it with all others'. So a write is *charged
//! early and roughly*, when its pages become dirty, and *again and exactly* when it is dispatched. It is held before it
//! enters the file system.
//!
//! ```text
//!   calls        those that modify wait while the balance is negative; reads never (the cache may have them)
//!   page cache   pages dirtied anew are charged by a guess; pages freed get it back
//!   block layer  requests are charged by the disk's model, less the guess; reads wait while the balance is negative,
//!                writes never (others' may depend on them)
//! ```
//!
//! **Rule.** Each limited account, session or pool, has a balance that grows at its limit up to a tenth of a second of
//! the disk. A cost is divided among its causes, and each part is taken from the cause and from every pool that it is
//! in. A waiter waits for that one of these balances that is negative for longest, behind earlier waiters; calls and
//! reads stand in one line. When it is zero the calls go that are before the first read, or the one read that is first.
//!
//! **Complication.** *Estimates have to be refunded.* A request does not say which estimate was charged for its bytes.
//! So each account remembers its charges and dirty bytes, and gets back the average: in all exactly the charges. *A
//! stream is interrupted.* Then the disk goes there and back again, and the account that interrupted pays for both. The
//! stream continues with one request: a drive with more would begin with the first that passes by, and go round once
//! more. *Metadata reads never wait*: the caller may have a transaction open that others need committed.
//!
//! *A waiter for two balances* keeps its place in one line while it is in the other, and no later waiter passes it.
//! Otherwise accounts that are quick with the next call could starve it.
//!
//! Cost: O(depth of the account x causes) per event, and O(log5 accounts) where a call or read waits. Requests that may
//! go are given to the device in the order in which they came, as many as [`DeviceWindow`] allows.

use crate::balance::Balance;
use crate::cost_model::{CostModel, DirtyModel};
use crate::device_window::DeviceWindow;
use crate::min_tree::{ABSENT, KEYS, MinTree};
use crate::waiting_line::WaitingLine;
use plimsoll_core::{
    Account, AccountId, BlockRequest, Call, CallDecision, CallId, CallKind, CauseSet, Completion, DeviceProfile,
    RequestId,
};
use plimsoll_core::{Dispatch, FileId, Operation, PageEvent, Scheduler, Span, Time, Wish};
use std::collections::VecDeque;

/// Part of a positioning that an interrupted stream loses on its way back. The drive's buffer has the data that it had
/// read ahead before it left. Fitted to `hdd.wd-aakx` and `hdd.15k-sas`. A sequential reader loses about as much to
/// random reads as to writes that no call waits for and that are charged alike (`split-fig13-sweep`).
const WAY_BACK_PART: f64 = 5.0 / 8.0;

/// The same after a write that a call waits for, mostly a journal's with its flush. The drive leaves for it at once, so
/// it has read less ahead. `tests/trips.rs` holds what a stream loses to a tenth, on three drives.
const WAY_BACK_PART_AWAITED: f64 = 3.0 / 4.0;

/// Time of the disk that may be saved up under any limit: others do not notice a longer wait of that length. An account
/// that overwrites memory pays for a journal's commit every few seconds. Now and then it also pays, both ways, for the
/// kernel's write of a file in one go (1024 pages, `MIN_WRITEBACK_PAGES` of fs/fs-writeback.c). It is not held for that
/// if it can afford it in the mean.
const SAVED_SPAN: Span = Span::from_millis(100);

/// The account with the first turn at the calls, and at the reads: keys of the tree.
const CALLS: usize = 0;
const READS: usize = 1;

/// Charges of an account for pages that are still dirty, in bytes. Pages of several causes count in equal parts.
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

/// A waiter: a call at its entry, or a read at the disk.
enum Waiter {
    Call(CallId, AccountId),
    Read(BlockRequest),
}

impl Waiter {
    fn account(&self) -> AccountId {
        match self {
            Waiter::Call(_, account) => *account,
            Waiter::Read(request) => request.session,
        }
    }
}

/// State of an account, and the waiters for its balance: calls and reads of it and its members.
struct TokenAccount {
    parent: Option<AccountId>,
    balance: Option<Balance>,
    /// Of files, and of metadata: a guess for the one says little of the other.
    dirty: [Dirty; 2],
    line: WaitingLine<Waiter>,
}

impl TokenAccount {
    const UNKNOWN: TokenAccount = TokenAccount {
        parent: None,
        balance: None,
        dirty: [Dirty { bytes: 0.0, charged: 0.0 }; 2],
        line: WaitingLine::EMPTY,
    };

    fn zero_at(&self) -> Time {
        self.balance.map_or(Time::ZERO, |balance| balance.zero_at())
    }
}

/// See the module's text.
pub struct SplitToken {
    device_runs_per_second: f64,
    /// What may be saved up at any limit, normalised bytes.
    saved_bytes: f64,
    guess: DirtyModel,
    model: CostModel,
    nodes: Vec<TokenAccount>,
    /// Accounts with a waiter for their balance, by when it will be zero, and by the first waiter.
    waiting: MinTree,
    /// How many possible waiters have come: the last one's place.
    arrivals: u64,
    /// Requests that wait for the device only, or are of an account that has not been looked at yet.
    arrived: VecDeque<BlockRequest>,
    window: DeviceWindow,
    /// The causes of the last dispatched request.
    last_causes: Vec<AccountId>,
    /// It was a write that a call waits for.
    last_is_awaited: bool,
    /// The read at the device that goes on with a stream after others' requests, and where it ends.
    resuming: Option<(RequestId, u64)>,
}

impl SplitToken {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> SplitToken {
        SplitToken {
            device_runs_per_second: device.worst_case_runs_per_second,
            saved_bytes: SAVED_SPAN.as_secs_f64() * device.sequential_bytes_per_second,
            guess: DirtyModel::new(device),
            model: CostModel::new(device),
            nodes: Vec::new(),
            waiting: MinTree::default(),
            arrivals: 0,
            arrived: VecDeque::new(),
            window: DeviceWindow::new(device),
            last_causes: Vec::new(),
            last_is_awaited: false,
            resuming: None,
        }
    }

    fn learn(&mut self, now: Time, account: &Account) {
        let index = account.id.index();
        while self.nodes.len() <= index {
            self.waiting.assign(self.nodes.len(), self.nodes.len() as u32);
            self.nodes.push(TokenAccount::UNKNOWN);
        }
        let node = &mut self.nodes[index];
        let rate = account.allocation.limit.map(|limit| limit.bytes_per_second(self.device_runs_per_second));
        node.parent = account.parent;
        node.balance = rate.map(|rate| match node.balance {
            Some(before) => before.at_rate(now, rate),
            None => Balance::new(now, rate).saving(self.saved_bytes),
        });
        self.note_waiting(account.id);
    }

    /// A place behind all earlier waiters.
    fn new_place(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// The balance that the waiter with this place waits for, of the account and its ancestors. It is the one negative
    /// for longest, or one with an earlier waiter. `None` if it need not wait.
    fn blocking(&self, now: Time, account: AccountId, place: u64) -> Option<AccountId> {
        let (mut latest, mut blocking, mut next) = (now, None, Some(account));
        while let Some((id, node)) = next.and_then(|id| Some((id, self.nodes.get(id.index())?))) {
            let is_behind = || blocking.is_none() && node.line.first().is_some_and(|&(first, _)| first < place);
            if node.zero_at() > latest || is_behind() {
                (latest, blocking) = (latest.max(node.zero_at()), Some(id));
            }
            next = node.parent;
        }
        blocking
    }

    /// Adds a waiter for the account's balance.
    fn wait(&mut self, account: AccountId, place: u64, waiter: Waiter) {
        self.nodes[account.index()].line.join(place, waiter);
        self.note_waiting(account);
    }

    /// The next call, or the next read, that need not wait any more.
    fn next_due(&mut self, now: Time, kind: usize) -> Option<Waiter> {
        while self.waiting.first(kind).key <= now.as_nanos() {
            let due = AccountId(self.waiting.first(kind).owner);
            let (place, waiter) = self.nodes[due.index()].line.leave()?;
            self.note_waiting(due);
            match self.blocking(now, waiter.account(), place) {
                None => return Some(waiter),
                Some(other) => self.wait(other, place, waiter),
            }
        }
        None
    }

    /// Tells the tree the first waiter for this account's balance, and until when.
    fn note_waiting(&mut self, account: AccountId) {
        let node = &self.nodes[account.index()];
        let mut keys = [ABSENT; KEYS];
        match node.line.first() {
            Some((_, Waiter::Call(..))) => keys[CALLS] = node.zero_at().as_nanos(),
            Some((_, Waiter::Read(_))) => keys[READS] = node.zero_at().as_nanos(),
            None => {}
        }
        self.waiting.set(account.index(), keys);
    }

    /// Takes `bytes` from the balance of the account and its ancestors; gives them back if they are negative.
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

    /// Refunds the causes' charges for pages that are written or deleted now, to each for an equal part of them. Where
    /// a request has pages of different causes, one may have had less of them than its part; then the others had more.
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

    /// A request goes to the device: its causes pay its cost, less their charges for dirtying its pages.
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
            if request.operation == Operation::Read {
                self.resuming = Some((request.id, request.end()));
            }
            let interrupters = std::mem::take(&mut self.last_causes);
            let part = if self.last_is_awaited { WAY_BACK_PART_AWAITED } else { WAY_BACK_PART };
            let share = cost.positioning as f64 * part / interrupters.len() as f64;
            let others = interrupters.iter().filter(|&&other| !causes.contains(other));
            others.for_each(|&other| self.charge(now, other, share));
            self.last_causes = interrupters;
        }
        if cost.transfer > 0 {
            self.last_causes.clear();
            self.last_causes.extend(causes.iter());
            self.last_is_awaited = request.operation.is_write() && (request.is_sync || request.is_forced);
        }
    }

    /// The next request of an account that may use the disk now, without looking at the device.
    fn next_request(&mut self, now: Time) -> Option<BlockRequest> {
        if let Some(Waiter::Read(request)) = self.next_due(now, READS) {
            return Some(request);
        }
        let resuming = self.resuming;
        let goes_on = |request: &BlockRequest| resuming.is_some_and(|(_, end)| end == request.offset);
        while self.arrived.front().is_some_and(|request| !goes_on(request))
            && let Some(request) = self.arrived.pop_front()
        {
            let may_wait = request.operation == Operation::Read && request.file != Some(FileId::DEVICE);
            let place = self.new_place();
            match self.blocking(now, request.session, place).filter(|_| may_wait) {
                None => return Some(request),
                Some(account) => self.wait(account, place, Waiter::Read(request)),
            }
        }
        None
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
        self.nodes[account.index()] = TokenAccount::UNKNOWN;
        self.note_waiting(account);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        let place = self.new_place();
        match self.blocking(now, call.account, place).filter(|_| call.kind != CallKind::Read) {
            None => CallDecision::Admit,
            Some(account) => {
                self.wait(account, place, Waiter::Call(call.id, call.account));
                CallDecision::Hold
            }
        }
    }

    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        while let Some(Waiter::Call(call, _)) = self.next_due(now, CALLS) {
            released.push(call);
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
        // An account that had dirtied them already hands over a part of the pages, and of what they were charged for.
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
        self.arrived.push_back(request);
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
        self.resuming = self.resuming.filter(|&(id, _)| id != completion.id);
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let first = self.waiting.first(CALLS);
        if first.key != ABSENT {
            wishes.push(Wish::WakeAt(Time::from_nanos(first.key).max(now)));
        }
    }
}
