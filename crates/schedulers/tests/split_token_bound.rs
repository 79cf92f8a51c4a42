//! No call starves under `split_token`: the bound of `docs/schedulers/split_token.md`, against threads that always want
//! something.
//!
//! Planted breaks, each of which makes the test fail:
//!
//! - a call that has to wait for another balance goes to the end of its line
//! - half of a request's cost is charged

mod split_token_support;

use plimsoll_core::*;
use plimsoll_schedulers::cost_model::CostModel;
use plimsoll_schedulers::split_token::SplitToken;
use proptest::prelude::*;
use split_token_support::{GIB, MIB, device};

/// Of the pool, and of each of two of its three sessions; bytes per second.
const POOL_LIMIT: f64 = 1e6;
const SESSION_LIMIT: f64 = 0.5e6;
const SESSIONS: usize = 3;

/// What a thread does next as soon as it is back.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Write { page: u64 },
    Read { gigabyte: u64 },
}

const THREADS: usize = 2 * SESSIONS;
/// Pages of the file; they lie apart, so each costs a positioning when it becomes dirty.
const PAGES: u64 = 12;
/// Between two rounds of writeback of all that is dirty.
const WRITEBACK_EVERY: Span = Span::from_secs(5);

/// Threads that always want something, and what they wait for since when; their device takes no time.
struct Greedy {
    scheduler: SplitToken,
    sessions: Vec<AccountId>,
    now: Time,
    asks: Vec<Vec<Ask>>,
    asked: [usize; THREADS],
    waiting: [Option<Time>; THREADS],
    dirty: [CauseSet; PAGES as usize],
    held_max: Span,
    /// The disk's own book of what was dispatched: normalised bytes.
    model: CostModel,
    used: f64,
}

impl Greedy {
    fn new(asks: Vec<Vec<Ask>>) -> Greedy {
        let limited =
            |limit: Option<f64>| Allocation { limit: limit.map(Rate::BytesPerSecond), ..Allocation::default() };
        let mut tree = AccountTree::new(device());
        let pool = tree.open(AccountId::ROOT, "pool", AccountKind::Pool, limited(Some(POOL_LIMIT))).unwrap();
        let limits: [Option<f64>; SESSIONS] = [Some(SESSION_LIMIT), Some(SESSION_LIMIT), None];
        let open = |(number, limit): (usize, Option<f64>)| {
            tree.open(pool, &number.to_string(), AccountKind::Session, limited(limit)).unwrap()
        };
        let sessions = limits.into_iter().enumerate().map(open).collect();
        let mut scheduler = SplitToken::new(&device());
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        let dirty = std::array::from_fn(|_| CauseSet::EMPTY);
        let (asked, waiting) = ([0; THREADS], [None; THREADS]);
        Greedy {
            scheduler,
            sessions,
            now: Time::ZERO,
            asks,
            asked,
            waiting,
            dirty,
            held_max: Span::ZERO,
            model: CostModel::new(&device()),
            used: 0.0,
        }
    }

    fn session(&self, thread: usize) -> AccountId {
        self.sessions[thread % SESSIONS]
    }

    fn next_ask(&self, thread: usize) -> Ask {
        self.asks[thread][self.asked[thread] % self.asks[thread].len()]
    }

    /// A thread that is back asks for its next.
    fn ask(&mut self, thread: usize) {
        let (account, now) = (self.session(thread), self.now);
        self.waiting[thread] = Some(now);
        match self.next_ask(thread) {
            Ask::Write { page } => {
                let (id, file, kind) = (CallId(thread as u64), FileId(1), CallKind::Write);
                let of = ThreadId(thread as u32);
                let call = Call { id, account, thread: of, kind, file, offset: 0, length: 4096, entered: now };
                if self.scheduler.call_entered(now, &call) == CallDecision::Admit {
                    self.write(thread, page);
                }
            }
            Ask::Read { gigabyte } => {
                let id = RequestId(thread as u64);
                let read = BlockRequest::new(id, account, Operation::Read, gigabyte * GIB, 4096, now);
                let causes = CauseSet::of(account);
                self.scheduler.request_added(now, BlockRequest { causes, file: Some(FileId(1)), ..read });
            }
        }
    }

    fn done(&mut self, thread: usize) {
        let since = self.waiting[thread].take().expect("a call that goes on has waited");
        self.held_max = self.held_max.max(self.now.since(since));
        self.asked[thread] += 1;
    }

    fn write(&mut self, thread: usize, page: u64) {
        let previous = self.dirty[page as usize].clone();
        let causes = CauseSet::of(self.session(thread));
        self.dirty[page as usize] = previous.iter().chain(causes.iter()).collect();
        let event = PageEvent { file: FileId(1), offset: page * 300 * MIB, length: 4096, causes, previous };
        self.scheduler.pages_dirtied(self.now, &event);
        self.done(thread);
    }

    /// Dispatches what may go. Answers with when to come back.
    fn dispatch(&mut self) -> Time {
        loop {
            match self.scheduler.next(self.now) {
                Dispatch::Now(request) => {
                    self.used += self.model.charge(&request) as f64;
                    let (id, session, runs) = (request.id, request.session, request.runs());
                    let completion = Completion { id, session, runs, service: Span::ZERO, succeeded: true };
                    self.scheduler.request_completed(self.now, &completion);
                    if request.operation == Operation::Read {
                        self.done(id.0 as usize);
                    }
                }
                Dispatch::NotBefore(at) => return at,
                Dispatch::Nothing => return Time::MAX,
            }
        }
    }

    /// What a host does in one turn: every call and read that may go on does so at once, calls first. Answers with when
    /// it has to be back.
    fn turn(&mut self) -> Time {
        for thread in 0..THREADS {
            if self.waiting[thread].is_none() {
                self.ask(thread);
            }
        }
        let (mut released, mut wishes) = (Vec::new(), Vec::new());
        self.scheduler.released_calls(self.now, &mut released);
        for CallId(thread) in released {
            let Ask::Write { page } = self.next_ask(thread as usize) else { panic!("only writes wait at the calls") };
            self.write(thread as usize, page);
        }
        let not_before = self.dispatch();
        self.scheduler.wishes(self.now, &mut wishes);
        let wakes = wishes.into_iter().filter_map(|wish| if let Wish::WakeAt(at) = wish { Some(at) } else { None });
        wakes.chain([not_before]).min().unwrap_or(Time::MAX)
    }

    /// All that is dirty is written, to places all over the disk.
    fn write_back(&mut self) {
        for page in 0..PAGES {
            let causes = std::mem::replace(&mut self.dirty[page as usize], CauseSet::EMPTY);
            if !causes.is_empty() {
                let (id, offset) = (RequestId(1000 + page), page * 37 % 400 * GIB);
                let write = BlockRequest::new(id, self.sessions[0], Operation::Write, offset, 4096, self.now);
                self.scheduler.request_added(self.now, BlockRequest { causes, file: Some(FileId(1)), ..write });
            }
        }
        self.dispatch();
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        2 => (0..PAGES).prop_map(|page| Ask::Write { page }),
        1 => (0u64..400).prop_map(|gigabyte| Ask::Read { gigabyte }),
    ]
}

/// Bytes that one page or read can cost at the most: the way across the whole disk, and what an interrupted stream
/// loses.
fn cost_max() -> f64 {
    let mut model = CostModel::new(&device());
    let read = |offset| BlockRequest::new(RequestId(0), AccountId(1), Operation::Read, offset, 4096, Time::ZERO);
    model.charge(&read(0));
    model.charge(&read(399 * GIB)) as f64 * 2.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The bound of `docs/schedulers/split_token.md`: what can be owed (each page dirty, and for each thread a call or
    /// a read beyond its limit), at the least of the limits, and one read after the other. And however greedy they are,
    /// what they use stays within the pool's limit, but for what may be owed.
    /// Promise: split-wait.
    #[test]
    fn no_call_waits_longer_than_the_debt_takes_at_the_limit(
        asks in proptest::collection::vec(proptest::collection::vec(ask(), 1..6), THREADS),
    ) {
        let mut host = Greedy::new(asks);
        let debt = (PAGES as usize + 2 * THREADS) as f64 * cost_max();
        let bound = Span::from_secs_f64(debt / SESSION_LIMIT);
        let mut writeback_at = Time::ZERO + WRITEBACK_EVERY;
        while host.now < Time::ZERO + bound * 8 {
            let wake_at = host.turn();
            // What is free is asked for again and again without end: the next turn is some milliseconds later.
            host.now = wake_at.max(host.now + Span::from_millis(10)).min(writeback_at);
            if host.now == writeback_at {
                host.write_back();
                writeback_at += WRITEBACK_EVERY;
            }
            let waiting = host.waiting.iter().flatten().map(|&since| host.now.since(since)).max();
            let longest = host.held_max.max(waiting.unwrap_or(Span::ZERO));
            prop_assert!(longest <= bound, "{longest} of {bound}");
        }
        prop_assert!(host.asked.iter().all(|&asked| asked > 0));
        let allowed = POOL_LIMIT * host.now.as_secs_f64() + debt;
        prop_assert!(host.used <= allowed, "{} of {allowed} bytes", host.used);
    }
}
