//! `cfq` as the split-level paper met it: fair to readers, blind to the cause of a write, gentle to a thread that reads
//! on.

use plimsoll_core::*;
use plimsoll_schedulers::build;
use plimsoll_sim::block::{BlockHost, Served};
use plimsoll_sim::workload::{Arrivals, Places, Workload};
use proptest::prelude::*;
use std::ops::Range;

/// The paper's disk (section 5).
const DISK: &str = "hdd.wd-aakx";
/// Linux's `cfq_slice_idle`.
const SLICE_IDLE: Span = Span::from_millis(8);
/// How long the idle class waits for the others.
const IDLE_GRACE: Span = Span::from_millis(100);
/// Of a reader's requests, bytes: Linux's default read-ahead.
const READ_AHEAD_BYTES: u32 = 128 << 10;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_millis(milliseconds)
}

fn gigabyte(number: u64) -> Range<u64> {
    number << 30..(number + 1) << 30
}

fn tree(profile: &DeviceProfile, priorities: &[Priority]) -> (AccountTree, Vec<AccountId>) {
    let mut tree = AccountTree::new(profile.clone());
    let open = |(number, &priority): (usize, &Priority)| {
        let allocation = Allocation { priority, ..Allocation::default() };
        tree.open(AccountId::ROOT, &number.to_string(), AccountKind::Session, allocation).unwrap()
    };
    let sessions = priorities.iter().enumerate().map(open).collect();
    (tree, sessions)
}

fn sequential(places: Range<u64>, read_percent: u8, depth: u32) -> Workload {
    Workload {
        places: Places::Sequential(places),
        length: READ_AHEAD_BYTES,
        read_percent,
        ..Workload::greedy(AccountId::ROOT, 0..1, depth)
    }
}

/// Runs each workload in a session of its own and answers with the bytes that each had per second, the first left out.
fn megabytes_per_second(scheduler: &str, tenants: &[(Priority, Workload)], seconds: u64) -> Vec<f64> {
    let served = run(scheduler, tenants, seconds);
    let rate = |tenant| {
        let own = served.iter().filter(|one| one.tenant == tenant && one.completed >= at(1000));
        own.map(|one| f64::from(one.length)).sum::<f64>() / 1e6 / (seconds - 1) as f64
    };
    (0..tenants.len()).map(rate).collect()
}

fn run(scheduler: &str, tenants: &[(Priority, Workload)], seconds: u64) -> Vec<Served> {
    let device = plimsoll_devices::build(DISK, 1).unwrap();
    let priorities: Vec<_> = tenants.iter().map(|(priority, _)| *priority).collect();
    let (tree, sessions) = tree(device.profile(), &priorities);
    let mut host = BlockHost::new(build(scheduler, device.profile()).unwrap(), device, &tree);
    for (number, (_, workload)) in tenants.iter().enumerate() {
        host.add_tenant(Workload { session: sessions[number], ..workload.clone() }, number as u64);
    }
    host.run_until(at(seconds * 1000))
}

/// The scheduler by itself, one event at a time.
struct Direct {
    scheduler: Box<dyn Scheduler>,
    sessions: Vec<AccountId>,
    requests: u64,
}

impl Direct {
    fn new(priorities: &[Priority]) -> Direct {
        let profile = plimsoll_devices::build(DISK, 1).unwrap().profile().clone();
        let (tree, sessions) = tree(&profile, priorities);
        let mut scheduler = build("cfq", &profile).unwrap();
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Direct { scheduler, sessions, requests: 0 }
    }

    fn add(&mut self, now: Time, session: usize, operation: Operation, offset: u64, causes: CauseSet) -> RequestId {
        let id = RequestId(self.requests);
        self.requests += 1;
        let request = BlockRequest::new(id, self.sessions[session], operation, offset, 4096, now);
        self.scheduler.request_added(now, BlockRequest { causes, ..request });
        id
    }

    fn read(&mut self, now: Time, session: usize, offset: u64) -> RequestId {
        self.add(now, session, Operation::Read, offset, CauseSet::EMPTY)
    }

    fn next(&mut self, now: Time) -> Result<RequestId, Dispatch> {
        match self.scheduler.next(now) {
            Dispatch::Now(request) => Ok(request.id),
            otherwise => Err(otherwise),
        }
    }

    fn complete(&mut self, now: Time, session: usize, id: RequestId) {
        let (session, service) = (self.sessions[session], Span::ZERO);
        self.scheduler.request_completed(now, &Completion { id, session, runs: 1, service, succeeded: true });
    }
}

#[test]
fn eight_sequential_readers_share_the_disk_as_the_papers_goal_line_says() {
    let tenants: Vec<_> =
        (0..8).map(|level| (Priority::Level(level), sequential(gigabyte(level.into()), 100, 1))).collect();
    let rates = megabytes_per_second("cfq", &tenants, 120);
    let all: f64 = rates.iter().sum();
    // Eight parts at level 0, one at level 7 (split-level paper, figure 11a), and its measure: the mean deviation.
    let off = |(level, rate): (usize, &f64)| (rate / all / ((8 - level) as f64 / 36.0) - 1.0).abs();
    let deviation = rates.iter().enumerate().map(off).sum::<f64>() / 8.0;
    assert!(deviation < 0.1, "on average {deviation:.3} off: {rates:.1?}");
    assert!(rates.is_sorted_by(|higher, lower| higher > lower), "{rates:.1?}");
    assert!(all > 90.0, "and the disk still streams: {all} of 138 MB/s");
}

#[test]
fn a_reader_keeps_its_throughput_beside_a_random_one() {
    let (reader, random) =
        (sequential(gigabyte(0), 100, 1), Workload::greedy(AccountId::ROOT, 100 << 30..400 << 30, 1));
    let alone = megabytes_per_second("cfq", &[(Priority::default(), reader.clone())], 20)[0];
    let noop = megabytes_per_second("noop", &[(Priority::default(), reader.clone())], 20)[0];
    assert!(alone >= 0.99 * noop, "alone nothing is lost: {alone} of {noop} MB/s");
    let both = [(Priority::default(), reader), (Priority::default(), random)];
    let (cfq, noop) = (megabytes_per_second("cfq", &both, 60), megabytes_per_second("noop", &both, 60));
    assert!(cfq[0] >= 0.4 * alone, "beside a random reader it keeps its part: {cfq:.2?}, alone {alone:.1}");
    assert!(cfq[0] >= 3.0 * noop[0], "without idling it would not: {cfq:.2?} against {noop:.2?}");
    assert!(cfq[1] >= 0.05, "and the random one is served too: {cfq:.2?}");
}

#[test]
fn the_disk_waits_for_a_sequential_reader_and_not_for_a_seeky_one() {
    let mut direct = Direct::new(&[Priority::default(); 3]);
    let (reader, seeker, other) = (0, 1, 2);
    let mut now = at(0);
    for session in [reader, seeker, other] {
        for number in 0..40u64 {
            let stride = [4096, 1 << 34, 1 << 34][session];
            let id = direct.read(now, session, number % 10 * stride + (session as u64) * 4096);
            while direct.next(now) != Ok(id) {
                now += Span::from_millis(1);
            }
            now += Span::from_millis(1);
            direct.complete(now, session, id);
        }
    }
    now += Span::from_secs(1);
    // The one that reads on: others wait for 8 ms after it.
    let first = direct.read(now, reader, 10 << 12);
    assert_eq!(direct.next(now), Ok(first));
    let waiting = [direct.read(now, seeker, 1 << 34), direct.read(now, other, 3 << 34)];
    let done = now + Span::from_millis(1);
    direct.complete(done, reader, first);
    assert_eq!(direct.next(done), Err(Dispatch::NotBefore(done + SLICE_IDLE)));
    let again = direct.read(done + Span::from_millis(2), reader, 11 << 12);
    assert_eq!(direct.next(done + Span::from_millis(2)), Ok(again), "it was worth it");
    let done = done + Span::from_millis(3);
    direct.complete(done, reader, again);
    assert_eq!(direct.next(done), Err(Dispatch::NotBefore(done + SLICE_IDLE)));
    // The seeky ones follow each other at once; only after the last of them the disk waits, for any of them.
    let now = done + SLICE_IDLE;
    let one = direct.next(now).expect("the wait is over");
    assert!(waiting.contains(&one));
    let reads_on = direct.read(now, reader, 12 << 12);
    direct.complete(now + Span::from_millis(9), if one == waiting[0] { seeker } else { other }, one);
    let two = direct.next(now + Span::from_millis(9)).expect("no wait between two who seek");
    assert!(waiting.contains(&two) && two != one);
    let last = now + Span::from_millis(18);
    direct.complete(last, if two == waiting[0] { seeker } else { other }, two);
    assert_eq!(direct.next(last), Err(Dispatch::NotBefore(last + SLICE_IDLE)), "the last of the seeky ones");
    assert_eq!(direct.next(last + SLICE_IDLE), Ok(reads_on));
}

proptest! {
    /// Figure 3: the writeback thread submits, so all writes go in one queue, by place, whatever their causes.
    #[test]
    fn causes_change_nothing(writes in proptest::collection::vec((0u64..1 << 20, 0usize..8, 0usize..8), 1..60)) {
        let priorities: Vec<_> = (0..8).map(Priority::Level).chain([Priority::default()]).collect();
        let orders: Vec<_> = (0..3).map(|variant| {
            let mut direct = Direct::new(&priorities);
            let writeback = 8;
            for &(block, cause, other) in &writes {
                let cause = [None, Some(cause), Some(other)][variant].map(|index| direct.sessions[index]);
                let causes = cause.map_or(CauseSet::EMPTY, CauseSet::of);
                direct.add(at(0), writeback, Operation::Write, block << 12, causes);
            }
            (0..writes.len()).map(|_| {
                let id = direct.next(at(0)).expect("a request waits");
                direct.complete(at(0), writeback, id);
                id
            }).collect::<Vec<_>>()
        }).collect();
        prop_assert!(orders.iter().all(|order| *order == orders[0]));
        let blocks: Vec<_> = orders[0].iter().map(|id| writes[id.0 as usize].0).collect();
        prop_assert!(blocks.is_sorted(), "one sweep: {:?}", blocks);
    }
}

#[test]
fn writes_of_one_priority_share_a_queue_and_the_submitters_priority_counts() {
    let mut direct = Direct::new(&[Priority::default(), Priority::default(), Priority::Level(7)]);
    for block in 0..20u64 {
        direct.add(at(0), (block % 2) as usize, Operation::Write, block << 12, CauseSet::EMPTY);
    }
    let mut order = Vec::new();
    while let Ok(id) = direct.next(at(0)) {
        direct.complete(at(0), (id.0 % 2) as usize, id);
        order.push(id.0);
    }
    assert_eq!(order, (0..20).collect::<Vec<_>>(), "two sessions, one sweep");
    let mut write = |session, number: u64| direct.add(at(1), session, Operation::Write, number << 12, CauseSet::EMPTY);
    for number in 0..400 {
        write(0, number);
    }
    let modest: Vec<_> = (0..400).map(|number| write(2, number)).collect();
    let served: Vec<_> = (1..=400)
        .map(|now| {
            let id = direct.next(at(now)).expect("requests wait");
            let is_modest = modest.contains(&id);
            direct.complete(at(now + 1), if is_modest { 2 } else { 0 }, id);
            is_modest
        })
        .collect();
    let runs: Vec<_> = served.chunk_by(|one, next| one == next).map(|run| (run[0], run.len())).collect();
    assert!(runs.len() > 4, "they take turns: {runs:?}");
    for &(is_modest, length) in &runs[1..runs.len() - 1] {
        let is_whole = if is_modest { length == 4 } else { length % 16 == 0 };
        assert!(is_whole, "4 requests a slice at level 7, 16 at level 4: {runs:?}");
    }
}

#[test]
fn a_read_ends_a_slice_of_writes_and_real_time_ends_any() {
    let mut direct = Direct::new(&[Priority::default(), Priority::default(), Priority::RealTime(7)]);
    let (reader, writeback, urgent) = (0, 1, 2);
    for number in 0..10u64 {
        direct.add(at(0), writeback, Operation::Write, number << 12, CauseSet::EMPTY);
    }
    let write = direct.next(at(0)).unwrap();
    let reads: Vec<_> = (0..10u64).map(|number| direct.read(at(1), reader, (1 << 30) + (number << 12))).collect();
    direct.complete(at(2), writeback, write);
    assert_eq!(direct.next(at(2)), Ok(reads[0]), "after the first write, not after sixteen");
    let now = direct.read(at(3), urgent, 1 << 34);
    assert_eq!(direct.next(at(3)), Ok(now), "in the middle of the reader's slice");
}

#[test]
fn the_idle_class_has_nothing_while_others_are_active_and_everything_when_alone() {
    let busy = Workload { active: at(0)..at(10_000), ..sequential(gigabyte(0), 100, 1) };
    let think = Arrivals::Closed { depth: 1, think: Span::from_millis(20) };
    let thinker = Workload { arrivals: think, active: at(10_000)..at(20_000), ..sequential(gigabyte(1), 100, 1) };
    let idle = Workload { active: at(1000)..at(30_000), ..sequential(gigabyte(2), 100, 1) };
    let tenants = [(Priority::default(), busy), (Priority::Level(7), thinker), (Priority::Idle, idle.clone())];
    let served = run("cfq", &tenants, 30);
    let of_idle = || served.iter().filter(|one| one.tenant == 2);
    let first = of_idle().map(|one| one.dispatched).min().unwrap();
    assert!(first >= at(20_000) && first <= at(20_000) + IDLE_GRACE + SLICE_IDLE, "{first:?}");
    let alone = run("noop", &[(Priority::Idle, idle)], 30);
    let per_second = |count: usize, seconds: f64| count as f64 / seconds;
    let (rate, rate_alone) = (per_second(of_idle().count(), 9.9), per_second(alone.len(), 29.0));
    assert!(rate >= 0.98 * rate_alone, "{rate} of {rate_alone} a second");
}

/// Figure 1: the idle process's own reads wait, but its buffered writes are the writeback thread's.
#[test]
fn what_an_idle_process_buffered_is_written_at_the_writeback_threads_priority() {
    let mut direct = Direct::new(&[Priority::default(), Priority::Idle, Priority::default()]);
    let (reader, idle, writeback) = (0, 1, 2);
    let first = direct.read(at(0), reader, 0);
    assert_eq!(direct.next(at(0)), Ok(first));
    let causes = CauseSet::of(direct.sessions[idle]);
    let own = direct.read(at(1), idle, 1 << 34);
    let buffered = direct.add(at(1), writeback, Operation::Write, 2 << 34, causes);
    direct.complete(at(2), reader, first);
    assert_eq!(direct.next(at(2)), Err(Dispatch::NotBefore(at(2) + SLICE_IDLE)));
    let now = at(2) + SLICE_IDLE;
    assert_eq!(direct.next(now), Ok(buffered));
    let now = now + Span::from_millis(5);
    direct.complete(now, writeback, buffered);
    assert_eq!(direct.next(now), Err(Dispatch::NotBefore(now + IDLE_GRACE)));
    assert_eq!(direct.next(now + IDLE_GRACE), Ok(own));
}

#[test]
fn real_time_goes_first_and_readers_go_before_the_writeback_thread() {
    let reader = |number| sequential(gigabyte(number), 100, 1);
    let rates = megabytes_per_second("cfq", &[(Priority::RealTime(4), reader(0)), (Priority::Level(0), reader(1))], 20);
    assert!(rates[1] < 0.01 * rates[0], "{rates:.2?}");
    let writes = sequential(gigabyte(20), 0, 64);
    let tenants = |priority| [(priority, reader(0)), (Priority::default(), writes.clone())];
    let rates = megabytes_per_second("cfq", &tenants(Priority::default()), 60);
    assert!(rates[0] > rates[1], "slices of 100 and of 40 ms: {rates:.1?}");
    assert!(rates[1] > 1.0, "but the writes do not starve: {rates:.1?}");
}
