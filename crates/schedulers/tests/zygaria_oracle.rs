//! Zygaria as the paper writes it, looking at every session for each decision, against the one that walks down trees.

use plimsoll_core::*;
use plimsoll_schedulers::token_bucket::{LimitBucket, ReserveBucket};
use plimsoll_schedulers::water_level::{Tide, WaterLevel};
use plimsoll_schedulers::zygaria::Zygaria;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const DEVICE_RUNS_PER_SECOND: f64 = 100.0;
const OUTSTANDING_MAX: u32 = 4;

struct Node {
    parent: Option<AccountId>,
    is_session: bool,
    reserve: ReserveBucket,
    limit: LimitBucket,
    level: WaterLevel,
    weight: u32,
    queue: VecDeque<BlockRequest>,
    active: u32,
    idle_since: Time,
}

/// The paper's loop. Small requests far apart only, so that a request is a run; no device so slow that clocks are set
/// back.
#[derive(Default)]
struct Oracle {
    nodes: BTreeMap<AccountId, Node>,
    outstanding: u32,
    /// How late the last one was that no limit held.
    lateness: Span,
}

impl Oracle {
    fn open(&mut self, account: &Account) {
        let allocation = &account.allocation;
        let node = Node {
            parent: account.parent,
            is_session: account.kind == AccountKind::Session,
            reserve: ReserveBucket::new(allocation.reserve.runs_per_second(DEVICE_RUNS_PER_SECOND), Time::ZERO),
            limit: LimitBucket::new(allocation.limit, DEVICE_RUNS_PER_SECOND),
            level: WaterLevel::EMPTY,
            weight: allocation.weight,
            queue: VecDeque::new(),
            active: 0,
            idle_since: Time::ZERO,
        };
        self.nodes.insert(account.id, node);
    }

    /// The account and all above it but the root, bottom up.
    fn path(&self, id: AccountId) -> Vec<AccountId> {
        let up = std::iter::successors(Some(id), |id| self.nodes.get(id)?.parent);
        up.filter(|&id| id != AccountId::ROOT).collect()
    }

    fn add(&mut self, now: Time, request: BlockRequest) {
        for id in self.path(request.session) {
            let node = self.nodes.get_mut(&id).unwrap();
            if node.active == 0 {
                node.reserve.wake(now, node.idle_since);
            }
            node.active += 1;
        }
        self.nodes.get_mut(&request.session).unwrap().queue.push_back(request);
    }

    fn complete(&mut self, now: Time, session: AccountId) {
        self.outstanding -= 1;
        for id in self.path(session) {
            let node = self.nodes.get_mut(&id).unwrap();
            node.active -= 1;
            if node.active == 0 {
                node.idle_since = now;
            }
        }
    }

    fn releasable(&self, now: Time, within: AccountId) -> Vec<AccountId> {
        let waits = |(_, node): &(&AccountId, &Node)| node.is_session && !node.queue.is_empty();
        let sessions = self.nodes.iter().filter(waits).map(|(&id, _)| id);
        let is_free = |id: &AccountId| self.path(*id).iter().all(|up| self.nodes[up].limit.release() <= now);
        let is_within = |id: &AccountId| within == AccountId::ROOT || self.path(*id).contains(&within);
        sessions.filter(is_free).filter(is_within).collect()
    }

    /// The earliest reserve time among the account and those below it that may be served.
    fn deadline(&self, now: Time, id: AccountId) -> Time {
        let below = self.releasable(now, id).into_iter().flat_map(|session| {
            let path = self.path(session);
            let length = path.iter().position(|&up| up == id).unwrap() + 1;
            path.into_iter().take(length).collect::<Vec<_>>()
        });
        below.map(|up| self.nodes[&up].reserve.deadline()).min().unwrap_or(Time::MAX)
    }

    fn next(&mut self, now: Time) -> Option<RequestId> {
        if self.outstanding >= OUTSTANDING_MAX {
            return None;
        }
        let mut id = AccountId::ROOT;
        while !self.nodes.get(&id).is_some_and(|node| node.is_session) {
            let members = self.nodes.iter().filter(|(_, node)| node.parent == Some(id)).map(|(&member, _)| member);
            let members: Vec<_> = members.filter(|&member| !self.releasable(now, member).is_empty()).collect();
            let earliest = members.iter().copied().min_by_key(|&member| self.deadline(now, member))?;
            let level = |member: AccountId| self.nodes[&member].level.key(f64::from(self.nodes[&member].weight));
            id = match self.deadline(now, earliest) <= now {
                true => earliest,
                false => members.into_iter().min_by_key(|&member| level(member))?,
            };
        }
        let deadlines = self.nodes.keys().filter(|&&of| !self.releasable(now, of).is_empty());
        let late = now.since(deadlines.map(|&of| self.deadline(now, of)).min().unwrap_or(Time::MAX));
        let mut release = Time::ZERO;
        for up in self.path(id) {
            let node = self.nodes.get_mut(&up).unwrap();
            node.limit.take(now, 1, 512);
            node.reserve.take(now, 1);
            node.level.add(&Tide::at(now), 1.0);
            release = release.max(node.limit.release());
        }
        if release == Time::ZERO {
            self.lateness = late;
        }
        let session = self.nodes.get_mut(&id).unwrap();
        session.reserve.not_before(release.saturating_sub(self.lateness));
        self.outstanding += 1;
        session.queue.pop_front().map(|request| request.id)
    }
}

/// Pools and sessions three levels deep: root, a pool with two sessions and a pool with a pool, and a session beside
/// them.
fn accounts(allocations: &[Allocation]) -> (AccountTree, Vec<AccountId>) {
    let device = DeviceProfile {
        name: "device".into(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: DEVICE_RUNS_PER_SECOND,
        sequential_bytes_per_second: 1e8,
        sequential_write_bytes_per_second: 1e8,
        write_settle: Span::ZERO,
        is_rotational: false, // and so keeps the order in which it is given requests, as the paper's driver did
        outstanding_max: OUTSTANDING_MAX,
    };
    let mut tree = AccountTree::new(device);
    let mut allocations = allocations.iter().copied();
    let mut open = |parent, name, kind| tree.open(parent, name, kind, allocations.next().unwrap()).unwrap();
    let (pool, session) = (AccountKind::Pool, AccountKind::Session);
    let (a, b) = (open(AccountId::ROOT, "a", pool), open(AccountId::ROOT, "b", pool));
    let inner = open(b, "inner", pool);
    let sessions = [(a, "1"), (a, "2"), (inner, "3"), (inner, "4"), (b, "5"), (AccountId::ROOT, "6")];
    let sessions = sessions.map(|(parent, name)| open(parent, name, session));
    (tree, sessions.to_vec())
}

fn allocations() -> impl Strategy<Value = Vec<Allocation>> {
    // Pools that can hold what their members reserve, sessions with up to 8 % each.
    let of = |reserve: std::ops::Range<f64>| {
        (reserve, proptest::option::of(30.0f64..90.0), prop_oneof![Just(100u32), 1u32..1000]).prop_map(
            |(reserve, limit, weight)| Allocation {
                reserve: if reserve < 2.0 { Rate::ZERO } else { Rate::DevicePercent(reserve) },
                limit: limit.map(Rate::DevicePercent),
                weight,
                ..Allocation::default()
            },
        )
    };
    (of(16.0..20.0), of(26.0..30.0), of(16.0..18.0), proptest::collection::vec(of(0.0..8.0), 6))
        .prop_map(|(a, b, inner, sessions)| [vec![a, b, inner], sessions].concat())
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Next,
    Complete(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0usize..6).prop_map(Step::Add),
        6 => Just(Step::Next),
        5 => (0usize..8).prop_map(Step::Complete),
        3 => (0u64..30_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Promise: zygaria-paper.
    #[test]
    fn decides_as_the_paper_does(allocations in allocations(), steps in proptest::collection::vec(step(), 0..300)) {
        let (tree, sessions) = accounts(&allocations);
        let mut zygaria = Zygaria::new(tree.device());
        let mut oracle = Oracle::default();
        tree.iter().for_each(|account| zygaria.account_opened(Time::ZERO, account));
        tree.iter().filter(|account| account.id != AccountId::ROOT).for_each(|account| oracle.open(account));
        let (mut now, mut number, mut at_device) = (Time::ZERO, 0u64, Vec::new());
        for step in steps {
            match step {
                Step::Add(session) => {
                    let id = RequestId(number);
                    let request = BlockRequest::new(id, sessions[session], Operation::Read, number << 20, 512, now);
                    number += 1;
                    zygaria.request_added(now, request.clone());
                    oracle.add(now, request);
                }
                Step::Next => {
                    let decided = match zygaria.next(now) {
                        Dispatch::Now(request) => {
                            at_device.push((request.id, request.session));
                            Some(request.id)
                        }
                        _ => None,
                    };
                    prop_assert_eq!(decided, oracle.next(now));
                }
                Step::Complete(which) if !at_device.is_empty() => {
                    let (id, session) = at_device.swap_remove(which % at_device.len());
                    let completion = Completion { id, session, runs: 1, service: Span::ZERO, succeeded: true };
                    zygaria.request_completed(now, &completion);
                    oracle.complete(now, session);
                }
                Step::Complete(_) => {}
                Step::Wait(microseconds) => now += Span::from_micros(microseconds),
            }
            prop_assume!(zygaria.overload() == Span::ZERO);
        }
    }
}
