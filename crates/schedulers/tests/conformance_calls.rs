//! Every scheduler of the registry at the call level: what it holds at the entry it lets go once, and in bounded time
//! (`docs/schedulers/README.md`, law 5).

use plimsoll_core::*;
use plimsoll_schedulers::{Entry, registry};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SESSIONS: usize = 4;
const EVENTS_MAX: usize = 120;
const LENGTH_MAX: u64 = 256 << 10;
const LIMIT_RUNS_PER_SECOND_MIN: f64 = 20.0;
/// What a positioning of the [`device`] costs at the most, in bytes that it could have moved meanwhile.
const POSITIONING_BYTES_MAX: f64 = SEQUENTIAL_BYTES_PER_SECOND / RUNS_PER_SECOND;
const SEQUENTIAL_BYTES_PER_SECOND: f64 = 1e8;
const RUNS_PER_SECOND: f64 = 100.0;
/// From a call's entry until it goes on: everything that can come before it, each with a positioning, at the smallest
/// limit, and a second more.
const HELD_SECONDS_MAX: f64 = EVENTS_MAX as f64 * (LENGTH_MAX as f64 + POSITIONING_BYTES_MAX)
    / (LIMIT_RUNS_PER_SECOND_MIN * units::RUN_BYTES_MAX as f64)
    + 1.0;
/// Wakes that one held call may cost.
const WAKES_PER_CALL_MAX: usize = 100;

#[derive(Clone, Debug)]
enum Event {
    Enter { session: usize, kind: CallKind, length: u64 },
    Ask,
    Complete { which: usize },
    Wait { microseconds: u64 },
    Change { session: usize, allocation: Allocation },
}

fn kind() -> impl Strategy<Value = CallKind> {
    use CallKind::*;
    let rare = vec![Fdatasync, Create, MakeDirectory, Unlink, Rename, Truncate, Allocate];
    prop_oneof![4 => Just(Read), 4 => Just(Write), 2 => Just(Fsync), 1 => proptest::sample::select(rare)]
}

fn allocation() -> impl Strategy<Value = Allocation> {
    let limit = prop_oneof![
        (LIMIT_RUNS_PER_SECOND_MIN..200.0).prop_map(Rate::RunsPerSecond),
        (LIMIT_RUNS_PER_SECOND_MIN..200.0).prop_map(Rate::DevicePercent),
        (LIMIT_RUNS_PER_SECOND_MIN..200.0).prop_map(|runs| Rate::BytesPerSecond(runs * units::RUN_BYTES_MAX as f64)),
    ];
    (proptest::option::of(limit), 0u8..8).prop_map(|(limit, level)| Allocation {
        limit,
        priority: Priority::Level(level),
        ..Allocation::default()
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..SESSIONS, kind(), 0..LENGTH_MAX)
            .prop_map(|(session, kind, length)| Event::Enter { session, kind, length }),
        3 => Just(Event::Ask),
        3 => (0usize..64).prop_map(|which| Event::Complete { which }),
        3 => (0u64..50_000).prop_map(|microseconds| Event::Wait { microseconds }),
        1 => (0..SESSIONS, allocation()).prop_map(|(session, allocation)| Event::Change { session, allocation }),
    ]
}

fn device() -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 1 << 30,
        worst_case_runs_per_second: RUNS_PER_SECOND,
        sequential_bytes_per_second: SEQUENTIAL_BYTES_PER_SECOND,
        sequential_write_bytes_per_second: SEQUENTIAL_BYTES_PER_SECOND,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max: 4,
    }
}

/// Processes above, a device below. A read, fsync or fdatasync that goes on waits for one block request; the others
/// return at once.
struct Host {
    scheduler: Box<dyn Scheduler>,
    now: Time,
    held: BTreeMap<CallId, Call>,
    under_way: BTreeMap<RequestId, Call>,
    queued: usize,
    at_device: Vec<BlockRequest>,
    wake_at: Option<Time>,
    entered: u64,
    returned: u64,
    log: Vec<(Time, CallId)>,
}

impl Host {
    fn new(entry: &Entry, tree: &AccountTree) -> Host {
        let mut scheduler = (entry.build)(tree.device());
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Host {
            scheduler,
            now: Time::ZERO,
            held: BTreeMap::new(),
            under_way: BTreeMap::new(),
            queued: 0,
            at_device: Vec::new(),
            wake_at: None,
            entered: 0,
            returned: 0,
            log: Vec::new(),
        }
    }

    fn enter(&mut self, account: AccountId, kind: CallKind, length: u64) {
        let (id, thread) = (CallId(self.entered), ThreadId(account.0));
        let call = Call { id, account, thread, kind, file: FileId(1), offset: 0, length, entered: self.now };
        self.entered += 1;
        match self.scheduler.call_entered(self.now, &call) {
            CallDecision::Admit => self.go_on(call),
            CallDecision::Hold => drop(self.held.insert(id, call)),
        }
    }

    fn go_on(&mut self, call: Call) {
        self.log.push((self.now, call.id));
        let operation = match call.kind {
            CallKind::Read => Operation::Read,
            CallKind::Fsync | CallKind::Fdatasync => Operation::Write,
            _ => {
                self.returned += 1;
                return self.scheduler.call_returned(self.now, &call);
            }
        };
        let id = RequestId(call.id.0);
        let mut request = BlockRequest::new(id, call.account, operation, call.length << 12, 4096, self.now);
        request.is_sync = true;
        self.queued += 1;
        self.under_way.insert(id, call);
        self.scheduler.request_added(self.now, request);
    }

    /// What a host does after each event: lets the calls go that the scheduler releases, hears when to come back. That
    /// a call which went on has returned is an event too.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        loop {
            let mut released = Vec::new();
            self.scheduler.released_calls(self.now, &mut released);
            if released.is_empty() {
                break;
            }
            for id in released {
                let call = self.held.remove(&id);
                prop_assert!(call.is_some(), "{id:?} was released, but is not held");
                let call = call.expect("checked");
                let held_seconds = self.now.since(call.entered).as_secs_f64();
                prop_assert!(held_seconds <= HELD_SECONDS_MAX, "{call:?} was held for {held_seconds} s");
                self.go_on(call);
            }
        }
        let mut wishes = Vec::new();
        self.scheduler.wishes(self.now, &mut wishes);
        self.wake_at =
            wishes.into_iter().filter_map(|wish| if let Wish::WakeAt(at) = wish { Some(at) } else { None }).min();
        prop_assert!(self.wake_at.is_none_or(|at| at > self.now), "after the release, the next one lies in the future");
        Ok(())
    }

    /// Answers with the time of a "not before".
    fn ask(&mut self) -> Option<Time> {
        loop {
            match self.scheduler.next(self.now) {
                Dispatch::Now(request) => {
                    self.queued -= 1;
                    self.at_device.push(request);
                }
                Dispatch::NotBefore(at) => return Some(at),
                Dispatch::Nothing => return None,
            }
        }
    }

    fn complete(&mut self, which: usize) {
        if self.at_device.is_empty() {
            return;
        }
        let request = self.at_device.swap_remove(which % self.at_device.len());
        let (id, session, runs) = (request.id, request.session, request.runs());
        let service = self.now.since(request.arrived);
        self.scheduler.request_completed(self.now, &Completion { id, session, runs, service, succeeded: true });
        let call = self.under_way.remove(&id).expect("completed once");
        self.returned += 1;
        self.scheduler.call_returned(self.now, &call);
    }

    fn run(&mut self, tree: &mut AccountTree, sessions: &[AccountId], events: &[Event]) -> Result<(), TestCaseError> {
        for event in events {
            match event {
                Event::Enter { session, kind, length } => self.enter(sessions[*session], *kind, *length),
                Event::Ask => drop(self.ask()),
                Event::Complete { which } => self.complete(*which),
                Event::Wait { microseconds } => self.now += Span::from_micros(*microseconds),
                Event::Change { session, allocation } => {
                    let account = tree.change(sessions[*session], *allocation).expect("no reserve, nothing to refuse");
                    self.scheduler.account_changed(self.now, account);
                }
            }
            self.settle()?;
        }
        self.drain()
    }

    /// Goes on until every call has returned.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        let mut wakes = 0;
        while self.returned < self.entered {
            let not_before = self.ask();
            let next = [not_before, self.wake_at].into_iter().flatten().min();
            if !self.at_device.is_empty() {
                self.now += Span::from_millis(1);
                self.complete(0);
            } else {
                prop_assert!(next.is_some(), "{} calls are held, and nobody says until when", self.held.len());
                wakes += 1;
                prop_assert!(wakes <= WAKES_PER_CALL_MAX * EVENTS_MAX, "wakes that let nobody go on");
                self.now = next.expect("checked").max(self.now);
            }
            self.settle()?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Promise: schedulers-calls.
    #[test]
    fn a_held_call_goes_on_once_and_in_bounded_time(
        pool_limit in proptest::option::of(LIMIT_RUNS_PER_SECOND_MIN..200.0),
        allocations in proptest::collection::vec(allocation(), SESSIONS),
        events in proptest::collection::vec(event(), 0..EVENTS_MAX),
    ) {
        for entry in registry() {
            let mut first = None;
            for _ in 0..2 {
                let mut tree = AccountTree::new(device());
                let limit = pool_limit.map(Rate::RunsPerSecond);
                let pool = Allocation { limit, ..Allocation::default() };
                let pool = tree.open(AccountId::ROOT, "pool", AccountKind::Pool, pool).unwrap();
                let sessions: Vec<_> = allocations.iter().enumerate().map(|(number, &allocation)| {
                    tree.open(pool, &number.to_string(), AccountKind::Session, allocation).unwrap()
                }).collect();
                let mut host = Host::new(entry, &tree);
                host.run(&mut tree, &sessions, &events)?;
                prop_assert_eq!(host.log.len() as u64, host.entered, "{}: every call went on once", entry.name);
                prop_assert!(host.queued == 0 && host.held.is_empty());
                let decisions = first.get_or_insert_with(|| host.log.clone());
                prop_assert_eq!(&*decisions, &host.log, "{}: the same events, other decisions", entry.name);
            }
        }
    }
}
