//! Every scheduler of the registry, held to the laws that it promises (`docs/schedulers/README.md`).
//!
//! The events are random and small on purpose: where a law breaks, proptest shrinks the sequence and prints the
//! smallest one that breaks it.

use plimsoll_core::*;
use plimsoll_schedulers::{Entry, registry};
use proptest::prelude::*;
use std::collections::BTreeMap;

const DEVICE_RUNS_PER_SECOND: f64 = 100.0;
const SESSIONS: usize = 6;
/// More events than any scheduler may let one request wait for others: 16 batches of 16, three directions, six
/// sessions.
const DISPATCHES_UNTIL_SERVED_MAX: usize = 4000;

fn device(outstanding_max: u32) -> DeviceProfile {
    rotational(outstanding_max, true)
}

fn rotational(outstanding_max: u32, is_rotational: bool) -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 1 << 30,
        worst_case_runs_per_second: DEVICE_RUNS_PER_SECOND,
        sequential_bytes_per_second: 1e8,
        sequential_write_bytes_per_second: 1e8,
        write_settle: Span::ZERO,
        is_rotational,
        outstanding_max,
    }
}

/// What a random run is made of.
#[derive(Clone, Debug)]
enum Event {
    Add { session: usize, operation: Operation, block: u64, blocks: u32 },
    Ask,
    Complete { which: usize },
    Wait { microseconds: u64 },
    Change { account: usize, allocation: Allocation },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![5 => Just(Read), 5 => Just(Write), 1 => Just(Flush), 1 => Just(Trim), 1 => Just(WriteZeroes)]
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![
        6 => (0u8..8).prop_map(Priority::Level),
        1 => (0u8..8).prop_map(Priority::RealTime),
        1 => Just(Priority::Idle),
    ]
}

fn allocation() -> impl Strategy<Value = Allocation> {
    let limit = proptest::option::of(20.0f64..120.0);
    (0.0f64..16.0, limit, 1u32..1000, priority()).prop_map(|(reserve, limit, weight, priority)| Allocation {
        reserve: Rate::DevicePercent(reserve),
        limit: limit.map(Rate::RunsPerSecond),
        weight,
        priority,
        ..Allocation::default()
    })
}

/// Real time and idle are there to be served before and after the others: only at best effort no tenant may starve.
fn at_best_effort(allocation: Allocation) -> Allocation {
    let (Priority::Level(level) | Priority::RealTime(level)) = allocation.priority else {
        return Allocation { priority: Priority::Level(7), ..allocation };
    };
    Allocation { priority: Priority::Level(level), ..allocation }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..SESSIONS, operation(), 0u64..2000, 0u32..40)
            .prop_map(|(session, operation, block, blocks)| Event::Add { session, operation, block, blocks }),
        6 => Just(Event::Ask),
        4 => (0usize..64).prop_map(|which| Event::Complete { which }),
        3 => (0u64..50_000).prop_map(|microseconds| Event::Wait { microseconds }),
        1 => (0..SESSIONS, allocation()).prop_map(|(account, allocation)| Event::Change { account, allocation }),
    ]
}

/// Two pools, three sessions each.
fn accounts(device: &DeviceProfile, allocations: &[Allocation]) -> (AccountTree, Vec<AccountId>) {
    let mut tree = AccountTree::new(device.clone());
    let pool = Allocation { reserve: Rate::DevicePercent(50.0), ..Allocation::default() };
    let pools = ["a", "b"].map(|name| tree.open(AccountId::ROOT, name, AccountKind::Pool, pool).unwrap());
    let sessions = allocations.iter().enumerate().map(|(index, &allocation)| {
        tree.open(pools[index % 2], &format!("s{index}"), AccountKind::Session, allocation).unwrap()
    });
    let sessions = sessions.collect();
    (tree, sessions)
}

/// A host that checks while it drives.
struct Host {
    scheduler: Box<dyn Scheduler>,
    now: Time,
    queued: BTreeMap<RequestId, BlockRequest>,
    at_device: Vec<BlockRequest>,
    dispatched: Vec<(Time, RequestId)>,
    last_answer_was_nothing: bool,
    added: u64,
}

impl Host {
    fn new(entry: &Entry, device: &DeviceProfile, tree: &AccountTree) -> Host {
        let mut scheduler = (entry.build)(device);
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Host {
            scheduler,
            now: Time::ZERO,
            queued: BTreeMap::new(),
            at_device: Vec::new(),
            dispatched: Vec::new(),
            last_answer_was_nothing: false,
            added: 0,
        }
    }

    fn add(&mut self, session: AccountId, operation: Operation, block: u64, blocks: u32) {
        let length = if operation == Operation::Flush { 0 } else { (blocks + 1) * 4096 };
        let request = BlockRequest::new(RequestId(self.added), session, operation, block * 4096, length, self.now);
        self.added += 1;
        self.queued.insert(request.id, request.clone());
        self.scheduler.request_added(self.now, request);
    }

    /// Asks once; answers with the time before which it makes no sense to ask again.
    fn ask(&mut self) -> Result<Option<Time>, TestCaseError> {
        self.last_answer_was_nothing = false;
        match self.scheduler.next(self.now) {
            Dispatch::Now(request) => {
                let known = self.queued.remove(&request.id);
                prop_assert_eq!(known.as_ref(), Some(&request), "dispatched what was queued, unchanged, once");
                self.dispatched.push((self.now, request.id));
                self.at_device.push(request);
                Ok(Some(self.now))
            }
            Dispatch::NotBefore(at) => {
                prop_assert!(at > self.now, "\"not before\" lies in the future");
                prop_assert!(!self.queued.is_empty(), "nothing to wait for");
                Ok(Some(at))
            }
            Dispatch::Nothing => {
                self.last_answer_was_nothing = true;
                Ok(None)
            }
        }
    }

    fn complete(&mut self, which: usize) {
        if self.at_device.is_empty() {
            return;
        }
        let request = self.at_device.swap_remove(which % self.at_device.len());
        let service = self.now.since(request.arrived);
        let (id, session, runs) = (request.id, request.session, request.runs());
        let completion = Completion { id, session, runs, service, succeeded: true };
        self.scheduler.request_completed(self.now, &completion);
    }

    /// Serves all that is left, one at a time, a millisecond each.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        while !self.queued.is_empty() || !self.at_device.is_empty() {
            let asked_again_at = self.ask()?;
            if asked_again_at == Some(self.now) {
                continue;
            }
            prop_assert!(asked_again_at.is_some() || !self.at_device.is_empty(), "requests wait, the device is idle");
            self.now = match self.at_device.is_empty() {
                true => asked_again_at.expect("checked"),
                false => self.now + Span::from_millis(1),
            };
            self.complete(0);
        }
        Ok(())
    }

    fn run(&mut self, tree: &mut AccountTree, sessions: &[AccountId], events: &[Event]) -> Result<(), TestCaseError> {
        for event in events {
            match event {
                Event::Add { session, operation, block, blocks } => {
                    self.add(sessions[*session], *operation, *block, *blocks);
                }
                Event::Ask => drop(self.ask()?),
                Event::Complete { which } => self.complete(*which),
                Event::Wait { microseconds } => self.now += Span::from_micros(*microseconds),
                Event::Change { account, allocation } => {
                    if let Ok(account) = tree.change(sessions[*account], *allocation) {
                        self.scheduler.account_changed(self.now, account);
                    }
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Promise: schedulers-no-loss.
    #[test]
    fn no_request_is_lost_or_doubled_and_the_same_events_give_the_same_decisions(
        allocations in proptest::collection::vec(allocation(), SESSIONS),
        events in proptest::collection::vec(event(), 0..150),
        outstanding_max in 1u32..12,
    ) {
        let device = device(outstanding_max);
        for entry in registry() {
            let mut first = None;
            for _ in 0..2 {
                let (mut tree, sessions) = accounts(&device, &allocations);
                let mut host = Host::new(entry, &device, &tree);
                host.run(&mut tree, &sessions, &events)?;
                host.drain()?;
                prop_assert_eq!(host.dispatched.len() as u64, host.added, "{}", entry.name);
                let decisions = first.get_or_insert_with(|| host.dispatched.clone());
                prop_assert_eq!(&*decisions, &host.dispatched, "{}", entry.name);
            }
        }
    }

    /// Promise: schedulers-work-conserving.
    #[test]
    fn the_device_is_kept_busy_while_someone_waits(
        events in proptest::collection::vec(event(), 0..150),
        outstanding_max in 1u32..12,
    ) {
        // One that keeps the order of arrival: of one that does not, zygaria holds back requests on purpose.
        let device = rotational(outstanding_max, false);
        let events: Vec<_> = events.into_iter().filter(|event| !matches!(event, Event::Change { .. })).collect();
        for entry in registry().iter().filter(|entry| entry.is_work_conserving) {
            let (mut tree, sessions) = accounts(&device, &[Allocation::default(); SESSIONS]);
            let mut host = Host::new(entry, &device, &tree);
            for event in &events {
                host.run(&mut tree, &sessions, std::slice::from_ref(event))?;
                let runs: u64 = host.at_device.iter().map(BlockRequest::runs).sum();
                let has_room = runs < u64::from(outstanding_max);
                prop_assert!(
                    !(host.last_answer_was_nothing && has_room && matches!(event, Event::Ask)) || host.queued.is_empty(),
                    "{}: {} wait, {} at the device", entry.name, host.queued.len(), host.at_device.len()
                );
            }
        }
    }

    /// Promise: schedulers-no-starvation.
    #[test]
    fn a_request_is_served_however_the_others_behave(
        greedy in proptest::collection::vec((operation(), 0u64..2000, 0u32..40, any::<bool>()), SESSIONS),
        allocations in proptest::collection::vec(allocation(), SESSIONS),
    ) {
        let device = device(4);
        for entry in registry() {
            let (_, sessions) = accounts(&device, &allocations);
            let unlimited = |&allocation| Allocation { limit: None, ..at_best_effort(allocation) };
            let unlimited: Vec<_> = allocations.iter().map(unlimited).collect();
            let (tree, _) = accounts(&device, &unlimited);
            let mut host = Host::new(entry, &device, &tree);
            host.add(sessions[0], Operation::Write, 1000, 1);
            let waiting = RequestId(0);
            for round in 0..DISPATCHES_UNTIL_SERVED_MAX {
                for (index, &(operation, block, blocks, follows)) in greedy.iter().enumerate().skip(1) {
                    let block = if follows { block + round as u64 * u64::from(blocks + 1) } else { block };
                    host.add(sessions[index], operation, block, blocks);
                }
                while host.ask()? == Some(host.now) {}
                host.now += Span::from_millis(5);
                host.complete(round);
                if !host.queued.contains_key(&waiting) {
                    break;
                }
            }
            prop_assert!(!host.queued.contains_key(&waiting), "{}: still waits after {:?}", entry.name, host.now);
        }
    }
}
