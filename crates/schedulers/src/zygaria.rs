//! `zygaria`: pools and sessions with reserves and limits (Zygaria, RTAS 2006), any number of sessions, any depth.
//!
//! **Intuition.** Every account first gets its promise, then the water is poured in: the rest goes to the account that
//! stands lowest. **Rule.** Each account has two buckets. A reserve bucket says by when it must be served, a limit
//! bucket from when on it may be. If a deadline has passed, the account with the earliest goes first. Otherwise the
//! lowest pool, and in it the lowest session, by a moving average of what each had.
//!
//! **Complication.** The paper looks at every session for each decision. Here each pool keeps its members' keys in a
//! [`MinTree`](crate::min_tree::MinTree) that knows which member comes first, and a decision goes from first to first:
//!
//! ```text
//!             device            deadline: earliest that falls due below, among members that may go
//!            /      \           level:    average of those members
//!         pool      pool        waiting:  when a member that may not go, or one of its members, may
//!        /  |  \      |
//!       s   s   s     s         at each node: a due member, else the lowest one
//! ```
//!
//! A deadline below a pool counts as the pool's own, so the earliest of session and pool holds (section 4.3). A pool
//! that is due itself, with no due member, serves its lowest. Weights (not in the paper) divide the average.
//!
//! What the device holds is out of the scheduler's hands, so it is bounded ([`DeviceWindow`]).
//!
//! **Overload.** If the device is slower than what was promised on it, deadlines fall behind without bound. Then the
//! clock of the deadlines is set back for all accounts at once. All reserves shrink by the same factor, and
//! [`overload`](Scheduler::overload) says by how much. As some account is always due then, an account without a reserve
//! would starve. So one decision in [`OVERLOAD_DUE_MAX`] goes by level to such an account, if one is lowest.
//!
//! **Cost.** A decision takes O(depth); writing the keys that it changes, O(depth * log5 members). Accounts that are
//! not active cost nothing. With very many accounts the time goes into waiting for memory. So an event loads early what
//! it, or the next one, needs (`load_...`).

use crate::device_window::DeviceWindow;
use crate::growth::reserve_sparingly;
use crate::min_tree::{ABSENT, KEYS};
use crate::request_queues::{Queue, RequestQueues};
use crate::token_bucket::{LimitBucket, RESERVE_HEADROOM, ReserveBucket};
use crate::water_level::{Tide, WaterLevel};
use node::{Below, DEADLINE, LEVEL, Members, Node, WAITING};
use plimsoll_core::account::Account;
use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{AccountId, AccountKind, BlockRequest, Completion, DeviceProfile, Dispatch, Operation};
use plimsoll_core::{Scheduler, Span, Time, prefetch};

mod node;

/// By how much deadlines may fall behind before the clock is set back. The paper's control holds "over time intervals
/// of one second or so" (section 1).
const LATENESS_MAX: Span = Span::from_secs(1);
/// A session is in company for so long after another one has asked: what the scheduler controls (section 1).
const COMPANY_SPAN: Span = Span::from_secs(1);
/// The part of the time by which deadlines come early because of the reserves' headroom: as much may be lost unharmed.
const RESERVE_HEADROOM_PART: f64 = 1.0 - 1.0 / RESERVE_HEADROOM;
/// Due requests before one that is not, while the device does less than its promises. The headroom of the reserves,
/// which has no other use then, is shared by level.
const OVERLOAD_DUE_MAX: u32 = (RESERVE_HEADROOM / (RESERVE_HEADROOM - 1.0)) as u32;

/// Runs of one stream, each behind the other, that a device with a head is given together while no account is due. Half
/// a megabyte takes a disk about as long as going elsewhere and back, so more would win little and cost the others
/// more.
const BATCH_RUNS_MAX: u64 = 16;

/// What a trim counts against a limit in bytes per second: it moves no data, and if it were free, an account could send
/// any number of trims. Linux counts a sector for `io.max` (blk-throttle), the paper knows no trims.
const TRIM_BYTES: u64 = 4096;

/// A run under way: requests that continue it belong to what was already paid.
struct Run {
    session: AccountId,
    operation: Operation,
    end: u64,
    bytes_left: u64,
    /// Runs that may follow it in its batch.
    batch_runs_left: u64,
}

/// See the module's text.
pub struct Zygaria {
    /// By account number.
    nodes: Vec<Node>,
    queues: RequestQueues,
    device_runs_per_second: f64,
    is_rotational: bool,
    window: DeviceWindow,
    run: Option<Run>,
    tide: Tide,
    /// The session that asked last, and since when only that one has asked.
    asked: (AccountId, Time),
    /// By how much the clock of deadlines was set back in all, and when last.
    set_back: Span,
    set_back_at: Time,
    /// By how much of their time reserves fell behind: what of it did not only use up their headroom.
    overload: Span,
    /// Dispatched because they were due, since one was not.
    due_in_a_row: u32,
    /// How late the last one was that no limit held: all are late, and no limit is to blame.
    lateness: Span,
}

impl Zygaria {
    /// A scheduler for `device`, without accounts.
    pub fn new(device: &DeviceProfile) -> Zygaria {
        Zygaria {
            nodes: Vec::new(),
            queues: RequestQueues::default(),
            device_runs_per_second: device.worst_case_runs_per_second,
            is_rotational: device.is_rotational,
            window: DeviceWindow::new(device),
            run: None,
            tide: Tide::at(Time::ZERO),
            asked: (AccountId::ROOT, Time::ZERO),
            set_back: Span::ZERO,
            set_back_at: Time::ZERO,
            overload: Span::ZERO,
            due_in_a_row: 0,
            lateness: Span::ZERO,
        }
    }

    fn node(&self, id: AccountId) -> &Node {
        &self.nodes[id.index()]
    }

    fn node_mut(&mut self, id: AccountId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    fn members_mut(&mut self, pool: AccountId) -> &mut Members {
        match &mut self.node_mut(pool).below {
            Below::Members(members) => members,
            _ => panic!("hosts name open accounts only, and parents are pools"),
        }
    }

    /// The time that deadlines are compared with.
    fn deadline_clock(&self, now: Time) -> Time {
        now.saturating_sub(self.set_back)
    }

    /// Writes the keys of `id`, and of every account above it, into the trees.
    fn refresh(&mut self, now: Time, mut id: AccountId) {
        while id != AccountId::ROOT {
            let parent = self.node(id).parent;
            self.write_keys(now, parent, id);
            id = parent;
        }
    }

    /// Writes the keys of `member` into the trees of its pool.
    fn write_keys(&mut self, now: Time, pool: AccountId, member: AccountId) {
        let node = self.node(member);
        let (slot, present, keys) = (node.slot, node.present, node.keys(now));
        self.node_mut(member).present = self.members_mut(pool).write(slot, present, keys);
    }

    /// Lets every account in `pool` take part again that has waited long enough.
    fn release_due(&mut self, now: Time, pool: AccountId) {
        loop {
            let first = self.members_mut(pool).keys.first(WAITING);
            if first.key > now.as_nanos() || first.key == ABSENT {
                return;
            }
            let member = AccountId(first.owner);
            if matches!(self.node(member).below, Below::Members(_)) {
                self.release_due(now, member);
            }
            self.write_keys(now, pool, member);
        }
    }

    /// The session to serve: at each node a due member, else the lowest. Also says whether it is served because a
    /// member was due.
    fn choose(&self, now: Time) -> Option<(AccountId, bool)> {
        let due_by = self.deadline_clock(now).as_nanos();
        let (mut id, mut is_due) = (AccountId::ROOT, false);
        let is_for_unreserved = self.due_in_a_row >= OVERLOAD_DUE_MAX && self.is_overloaded(now);
        while let Below::Members(Members { keys, .. }) = &self.node(id).below {
            let is_starving = || {
                let lowest = keys.first(LEVEL);
                lowest.key != ABSENT && self.node(AccountId(lowest.owner)).reserve.deadline() == Time::MAX
            };
            let is_member_due = keys.first(DEADLINE).key <= due_by && !(is_for_unreserved && is_starving());
            let first = keys.first(if is_member_due { DEADLINE } else { LEVEL });
            if first.key == ABSENT {
                return None;
            }
            is_due |= is_member_due;
            id = AccountId(first.owner);
        }
        Some((id, is_due))
    }

    /// Whether the device lately did less than what was promised on it.
    fn is_overloaded(&self, now: Time) -> bool {
        self.overload > Span::ZERO && now.since(self.set_back_at) < LATENESS_MAX
    }

    /// Sets the clock of deadlines back if even the earliest has waited too long. Waiting for a limit, one's own or a
    /// pool's, does not count: it concerns no other account.
    fn absorb_overload(&mut self, now: Time) {
        let due_long_ago = self.deadline_clock(now).saturating_sub(LATENESS_MAX).as_nanos();
        let (mut id, mut deadline, mut released) = (AccountId::ROOT, u64::MAX, Time::ZERO);
        while let Below::Members(Members { keys, .. }) = &self.node(id).below {
            let first = keys.first(DEADLINE);
            if first.key >= due_long_ago {
                break;
            }
            deadline = deadline.min(first.key);
            id = AccountId(first.owner);
            released = released.max(self.node(id).limit.release());
        }
        if id == AccountId::ROOT {
            return;
        }
        let waits_since = released.max(Time::from_nanos(deadline) + self.set_back);
        let excess = now.since(waits_since).saturating_sub(LATENESS_MAX);
        let headroom = Span::from_secs_f64(now.since(self.set_back_at).as_secs_f64() * RESERVE_HEADROOM_PART);
        if excess > Span::ZERO {
            let broken = excess.saturating_sub(headroom).as_secs_f64() * RESERVE_HEADROOM;
            self.overload += Span::from_secs_f64(broken);
            self.set_back += excess;
            self.set_back_at = now;
        }
    }

    fn dispatch(&mut self, now: Time, session: AccountId, is_due: bool) -> BlockRequest {
        self.load_keys(session);
        let request = match &mut self.nodes[session.index()].below {
            Below::Requests(queue) => self.queues.take(queue).expect("a session that takes part has a request"),
            _ => panic!("only sessions are chosen"),
        };
        let bytes = u64::from(request.length);
        let continues = self.run.as_ref().filter(|run| run.is_continued_by(&request));
        let (runs, bytes_left) = match continues {
            Some(run) => (0, run.bytes_left - bytes),
            None => (request.runs(), (request.runs() * RUN_BYTES_MAX).saturating_sub(bytes)),
        };
        let stream = self.run.as_ref().filter(|run| run.is_followed_by(&request));
        let batch_runs_left = stream.map_or(BATCH_RUNS_MAX, |run| run.batch_runs_left).saturating_sub(runs);
        self.run = Some(Run { session, operation: request.operation, end: request.end(), bytes_left, batch_runs_left });
        self.charge(now, session, runs, limited_bytes(&request), is_due);
        if let Below::Requests(queue) = &mut self.nodes[session.index()].below {
            self.queues.refill(queue);
        }
        self.window.dispatched(&request, is_due);
        self.due_in_a_row = if is_due { self.due_in_a_row + 1 } else { 0 };
        self.load_next_pool(now);
        request
    }

    /// Takes the cost out of the buckets of `session` and of every account above it.
    fn charge(&mut self, now: Time, session: AccountId, runs: u64, bytes: u64, is_due: bool) {
        self.tide.advance(now);
        let earliest = Time::from_nanos(self.members_mut(AccountId::ROOT).keys.first(DEADLINE).key);
        let (clock, tide) = (self.deadline_clock(now), self.tide);
        let (mut id, mut release) = (session, Time::ZERO);
        while id != AccountId::ROOT {
            let node = self.node_mut(id);
            node.limit.take(now, runs, bytes);
            release = release.max(node.limit.release());
            if runs > 0 {
                node.reserve.take(clock, runs);
                node.level.add(&tide, runs as f64);
            }
            id = node.parent;
        }
        if release == Time::ZERO && runs > 0 {
            self.lateness = if is_due { clock.since(earliest) } else { Span::ZERO };
        }
        // An account that waits for a limit is owed nothing for it; one that waits because all do keeps its place.
        let release = release.saturating_sub(self.set_back).saturating_sub(self.lateness);
        self.node_mut(session).reserve.not_before(release);
        self.refresh(now, session);
    }

    /// Has the pool loaded that the next decision will look at.
    fn load_next_pool(&self, now: Time) {
        let Below::Members(Members { keys, .. }) = &self.node(AccountId::ROOT).below else { return };
        let is_due = keys.first(DEADLINE).key <= self.deadline_clock(now).as_nanos();
        let first = keys.first(if is_due { DEADLINE } else { LEVEL });
        if first.key != ABSENT {
            prefetch(self.node(AccountId(first.owner)));
        }
    }

    /// Has the session loaded that the next decision will come to, as things stand.
    fn load_next_session(&self, now: Time) {
        if let Some((session, _)) = self.choose(now) {
            prefetch(self.node(session));
        }
    }

    /// Has the lines loaded in which the keys of `id` stand.
    fn load_keys(&self, id: AccountId) {
        let node = self.node(id);
        if let Below::Members(Members { keys, .. }) = &self.node(node.parent).below {
            let slot = node.slot as usize;
            for which in (0..KEYS).filter(|which| node.present & 1 << which != 0) {
                keys.lines_of(slot, which).for_each(prefetch);
            }
        }
    }

    /// Whether one more request of `session` would hold others up. A session that is alone may fill the device. A
    /// session that had company a moment ago is not alone: the other one thinks about its next request.
    fn would_crowd(&self, now: Time, session: AccountId, is_due: bool) -> bool {
        let is_alone = || self.node(session).active == self.node(AccountId::ROOT).active;
        let was_alone = || now.since(self.asked.1) >= COMPANY_SPAN;
        self.window.is_crowded(is_due) && !(is_alone() && was_alone())
    }

    /// The session with the run under way, if its next request goes with it.
    fn continued(&self) -> Option<AccountId> {
        let run = self.run.as_ref()?;
        let Below::Requests(queue) = &self.node(run.session).below else { return None };
        run.is_continued_by(queue.front()?).then_some(run.session)
    }

    /// The session with the stream under way at a device with a head, if its next run goes with it: where the head is.
    fn batched(&self, now: Time) -> Option<AccountId> {
        let run = self.run.as_ref().filter(|run| self.is_rotational && run.batch_runs_left > 0)?;
        let Below::Requests(queue) = &self.node(run.session).below else { return None };
        let mut id = run.session;
        while id != AccountId::ROOT {
            if self.node(id).limit.release() > now {
                return None;
            }
            id = self.node(id).parent;
        }
        run.is_followed_by(queue.front()?).then_some(run.session)
    }
}

impl Run {
    fn is_followed_by(&self, request: &BlockRequest) -> bool {
        request.session == self.session && request.operation == self.operation && request.offset == self.end
    }

    fn is_continued_by(&self, request: &BlockRequest) -> bool {
        self.is_followed_by(request) && (1..=self.bytes_left).contains(&u64::from(request.length))
    }
}

/// Bytes of a request that count against a limit.
fn limited_bytes(request: &BlockRequest) -> u64 {
    match request.operation {
        Operation::Trim => TRIM_BYTES,
        _ => u64::from(request.length),
    }
}

impl Scheduler for Zygaria {
    fn name(&self) -> &'static str {
        "zygaria"
    }

    fn account_opened(&mut self, now: Time, account: &Account) {
        let slot = account.parent.map_or(0, |parent| self.members_mut(parent).join(account.id));
        let clock = self.deadline_clock(now);
        let allocation = &account.allocation;
        let reserve_runs_per_second = allocation.reserve.runs_per_second(self.device_runs_per_second);
        let node = Node {
            parent: account.parent.unwrap_or(AccountId::ROOT),
            slot,
            active: 0,
            weight: allocation.weight as u16,
            present: 0,
            reserve: ReserveBucket::new(reserve_runs_per_second, clock),
            limit: LimitBucket::new(allocation.limit, self.device_runs_per_second),
            level: WaterLevel::EMPTY,
            below: match account.kind {
                AccountKind::Pool => Below::Members(Members::default()),
                AccountKind::Session => Below::Requests(Queue::EMPTY),
            },
            idle_since: clock,
        };
        match account.id.index() {
            index if index < self.nodes.len() => self.nodes[index] = node,
            index => {
                reserve_sparingly(&mut self.nodes, index + 1);
                self.nodes.resize_with(index, || Node::CLOSED);
                self.nodes.push(node);
            }
        }
    }

    fn account_changed(&mut self, now: Time, account: &Account) {
        let (device_runs_per_second, clock) = (self.device_runs_per_second, self.deadline_clock(now));
        let node = self.node_mut(account.id);
        node.reserve.change(account.allocation.reserve.runs_per_second(device_runs_per_second), clock);
        node.limit.change(account.allocation.limit, device_runs_per_second, now);
        node.weight = account.allocation.weight as u16;
        self.refresh(now, account.id);
    }

    fn account_closed(&mut self, _now: Time, account: AccountId) {
        let Some(node) = self.nodes.get_mut(account.index()) else { return };
        if matches!(node.below, Below::Closed) {
            return;
        }
        let node = std::mem::replace(node, Node::CLOSED);
        if account != AccountId::ROOT {
            self.members_mut(node.parent).leave(node.slot);
        }
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        let session = request.session;
        prefetch(self.node(session));
        self.load_next_session(now);
        if self.asked.0 != session {
            self.asked = (session, now);
        }
        let clock = self.deadline_clock(now);
        let mut id = session;
        loop {
            let node = self.node_mut(id);
            if node.active == 0 {
                node.reserve.wake(clock, node.idle_since);
            }
            node.active += 1;
            if id == AccountId::ROOT {
                break;
            }
            id = node.parent;
        }
        let Below::Requests(queue) = &mut self.nodes[session.index()].below else {
            panic!("hosts name open accounts only, and requests are of sessions");
        };
        let was_empty = queue.is_empty();
        self.queues.push(queue, request);
        if was_empty {
            self.refresh(now, session);
        }
    }

    fn next(&mut self, now: Time) -> Dispatch {
        if let Some(session) = self.continued() {
            return Dispatch::Now(self.dispatch(now, session, false));
        }
        if self.nodes.is_empty() || self.window.is_full() {
            return Dispatch::Nothing;
        }
        self.release_due(now, AccountId::ROOT);
        self.absorb_overload(now);
        let chosen = match self.choose(now) {
            Some((lowest, false)) => Some((self.batched(now).unwrap_or(lowest), false)),
            due_or_none => due_or_none,
        };
        match chosen {
            Some((session, is_due)) if self.would_crowd(now, session, is_due) => Dispatch::Nothing,
            Some((session, is_due)) => Dispatch::Now(self.dispatch(now, session, is_due)),
            None => match self.members_mut(AccountId::ROOT).keys.first(WAITING).key {
                ABSENT => Dispatch::Nothing,
                at => Dispatch::NotBefore(Time::from_nanos(at)),
            },
        }
    }

    fn request_completed(&mut self, now: Time, completion: &Completion) {
        self.window.completed(completion);
        let clock = self.deadline_clock(now);
        let mut id = completion.session;
        loop {
            let node = self.node_mut(id);
            node.active -= 1;
            if node.active == 0 {
                node.idle_since = clock;
            }
            if id == AccountId::ROOT {
                return;
            }
            id = node.parent;
        }
    }

    fn overload(&self) -> Span {
        self.overload
    }
}
