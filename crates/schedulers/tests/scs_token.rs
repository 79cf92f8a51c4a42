//! `scs_token` as the split-level paper met it: exact in bytes, blind to what the bytes cost.

use plimsoll_core::*;
use plimsoll_devices::{DeviceModel, DeviceRequest};
use plimsoll_schedulers::balance::BURST;
use plimsoll_schedulers::build;
use std::collections::BTreeMap;

/// The paper's disk (section 5).
const DISK: &str = "hdd.wd-aakx";
/// What a cached call takes: a copy in memory.
const CACHED: Span = Span::from_micros(5);
/// B's file in figure 6, bytes.
const FILE_BYTES: u64 = 10 << 30;

/// Splitmix64: enough to scatter places.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What a process does again and again.
#[derive(Clone, Copy)]
enum Loop {
    /// Reads on through its file.
    Sequential,
    /// Reads somewhere in its file.
    Random,
    /// Reads what the cache holds.
    Cached,
    /// Writes to memory.
    Buffered,
}

#[derive(Clone)]
struct Process {
    account: AccountId,
    what: Loop,
    length: u64,
    file_start: u64,
    position: u64,
}

/// Processes above the scheduler, a disk below, in virtual time. Each process has one call at a time.
struct CallHost {
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn DeviceModel>,
    processes: Vec<Process>,
    /// Calls that return by themselves, by time.
    returning: BTreeMap<(Time, usize), Call>,
    held: BTreeMap<CallId, Call>,
    under_way: BTreeMap<RequestId, Call>,
    random: Random,
    now: Time,
    /// Bytes that went on, by process, and when.
    went_on: Vec<Vec<(Time, u64)>>,
    returned_bytes: Vec<u64>,
}

impl CallHost {
    fn new(allocations: &[(Allocation, Loop, u64)]) -> CallHost {
        let device = plimsoll_devices::build(DISK, 1).unwrap();
        let mut tree = AccountTree::new(device.profile().clone());
        let mut processes = Vec::new();
        for (number, &(allocation, what, length)) in allocations.iter().enumerate() {
            // The limit is the pool's, as administrators set it; the process is a session in it.
            let pool = tree.open(AccountId::ROOT, &number.to_string(), AccountKind::Pool, allocation).unwrap();
            let account = tree.open(pool, "session", AccountKind::Session, Allocation::default()).unwrap();
            let file_start = number as u64 * (100 << 30);
            processes.push(Process { account, what, length, file_start, position: 0 });
        }
        let mut scheduler = build("scs_token", device.profile()).unwrap();
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        CallHost {
            scheduler,
            device,
            went_on: vec![Vec::new(); processes.len()],
            returned_bytes: vec![0; processes.len()],
            processes,
            returning: BTreeMap::new(),
            held: BTreeMap::new(),
            under_way: BTreeMap::new(),
            random: Random(1),
            now: Time::ZERO,
        }
    }

    fn enter(&mut self, number: usize) {
        let process = &mut self.processes[number];
        let offset = match process.what {
            Loop::Random => self.random.below(FILE_BYTES / process.length) * process.length,
            _ => process.position % FILE_BYTES,
        };
        process.position = offset + process.length;
        let kind = if matches!(process.what, Loop::Buffered) { CallKind::Write } else { CallKind::Read };
        let call = Call {
            id: CallId(number as u64),
            account: process.account,
            thread: ThreadId(number as u32),
            kind,
            file: FileId(number as u64),
            offset,
            length: process.length,
            entered: self.now,
        };
        match self.scheduler.call_entered(self.now, &call) {
            CallDecision::Admit => self.go_on(call),
            CallDecision::Hold => drop(self.held.insert(call.id, call)),
        }
    }

    fn go_on(&mut self, call: Call) {
        let number = call.id.0 as usize;
        self.went_on[number].push((self.now, call.length));
        let process = &self.processes[number];
        if matches!(process.what, Loop::Cached | Loop::Buffered) {
            self.returning.insert((self.now + CACHED, number), call);
            return;
        }
        let (id, place) = (RequestId(call.id.0), process.file_start + call.offset);
        let request = BlockRequest::new(id, call.account, Operation::Read, place, call.length as u32, self.now);
        self.under_way.insert(id, call);
        self.scheduler.request_added(self.now, request);
    }

    fn returned(&mut self, call: &Call) {
        self.returned_bytes[call.id.0 as usize] += call.length;
        self.scheduler.call_returned(self.now, call);
        self.enter(call.id.0 as usize);
    }

    /// Asks all that a host asks after an event; answers when to ask again.
    fn settle(&mut self) -> Option<Time> {
        let mut released = Vec::new();
        self.scheduler.released_calls(self.now, &mut released);
        for id in released {
            let call = self.held.remove(&id).expect("released once, while held");
            self.go_on(call);
        }
        let not_before = loop {
            match self.scheduler.next(self.now) {
                Dispatch::Now(request) => {
                    let (token, operation) = (request.id.0, request.operation);
                    let (offset, length) = (request.offset, request.length);
                    self.device.submit(self.now, DeviceRequest { token, operation, offset, length, is_forced: false });
                }
                Dispatch::NotBefore(at) => break Some(at),
                Dispatch::Nothing => break None,
            }
        };
        let mut wishes = Vec::new();
        self.scheduler.wishes(self.now, &mut wishes);
        let wakes = wishes.iter().map(|wish| if let Wish::WakeAt(at) = wish { *at } else { Time::MAX });
        wakes.chain(not_before).min()
    }

    fn run(&mut self, seconds: u64) {
        let end = Time::ZERO + Span::from_secs(seconds);
        (0..self.processes.len()).for_each(|number| self.enter(number));
        loop {
            let wake_at = self.settle();
            let returning = self.returning.first_key_value().map(|(&(at, _), _)| at);
            let next = [wake_at, returning, self.device.next_completion()].into_iter().flatten().min();
            self.now = next.expect("a call is always about to go on");
            if self.now > end {
                return;
            }
            while let Some(entry) = self.returning.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let call = entry.remove();
                self.returned(&call);
            }
            while let Some(finished) = self.device.complete(self.now) {
                let call = self.under_way.remove(&RequestId(finished.token)).expect("completed once");
                let (id, session) = (RequestId(finished.token), call.account);
                let completion = Completion { id, session, runs: 1, service: Span::ZERO, succeeded: true };
                self.scheduler.request_completed(self.now, &completion);
                self.returned(&call);
            }
        }
    }
}

fn limit(rate: Rate) -> Allocation {
    Allocation { limit: Some(rate), ..Allocation::default() }
}

fn run(processes: &[(Allocation, Loop, u64)], seconds: u64) -> (CallHost, Vec<f64>) {
    let mut host = CallHost::new(processes);
    host.run(seconds);
    let rates = host.returned_bytes.iter().map(|&bytes| bytes as f64 / 1e6 / seconds as f64).collect();
    (host, rates)
}

const MB_10: Rate = Rate::BytesPerSecond(10e6);
/// Part of a limit that is lost by waiting while another has its slice of 100 ms, as long as the bucket fills.
const WAITING_LOSES: f64 = 0.2;

#[test]
fn a_limit_is_kept_within_a_per_cent_and_used() {
    for (what, length) in [(Loop::Sequential, 1 << 20), (Loop::Cached, 4096), (Loop::Buffered, 64 << 10)] {
        let (host, rates) =
            run(&[(limit(MB_10), what, length), (Allocation::default(), Loop::Sequential, 1 << 20)], 60);
        // A reader beside a stream waits for its turn, and what its bucket would take in meanwhile is lost.
        let lost = if matches!(what, Loop::Sequential) { WAITING_LOSES } else { 0.0 };
        assert!((0.99 - lost..1.01).contains(&(rates[0] / 10.0)), "{rates:?}");
        // In any second: the limit, what may be saved up, and the call that overdraws.
        let times = &host.went_on[0];
        let bytes_max = 10e6 * (1.0 + BURST.as_secs_f64()) + length as f64;
        let mut end = 0;
        let mut sum = 0;
        for (start, &(from, bytes)) in times.iter().enumerate() {
            while end < times.len() && times[end].0.since(from) < Span::from_secs(1) {
                sum += times[end].1;
                end += 1;
            }
            assert!(sum as f64 <= bytes_max, "{sum} of {bytes_max} bytes from call {start}");
            sum -= bytes;
        }
    }
}

#[test]
fn runs_and_per_cent_count_as_full_runs() {
    let worst_case = plimsoll_devices::build(DISK, 1).unwrap().profile().worst_case_runs_per_second;
    for (rate, runs) in [(Rate::RunsPerSecond(100.0), 100.0), (Rate::DevicePercent(50.0), worst_case / 2.0)] {
        let (_, rates) = run(&[(limit(rate), Loop::Cached, 4096)], 30);
        let ideal = runs * units::RUN_BYTES_MAX as f64 / 1e6;
        assert!((rates[0] / ideal - 1.0).abs() < 0.01, "{rates:?} of {ideal}");
    }
}

#[test]
fn a_cached_reader_is_throttled_like_one_that_reads_the_disk() {
    let rate = |what| run(&[(limit(MB_10), what, 64 << 10)], 30).1[0];
    let (cached, disk) = (rate(Loop::Cached), rate(Loop::Sequential));
    assert!((cached / disk - 1.0).abs() < 0.01, "{cached} and {disk} MB/s");
    let free = run(&[(Allocation::default(), Loop::Cached, 64 << 10)], 1).1[0];
    assert!(free > 100.0 * cached, "which costs the disk nothing: {free} MB/s without a limit");
}

/// Figure 6: B pays for its bytes, so random B takes the disk from A while it is far below its limit.
#[test]
fn random_requests_cost_their_bytes_only() {
    let beside = |what, length| {
        let a = (Allocation::default(), Loop::Sequential, 1 << 20);
        let (_, rates) = run(&[a, (limit(MB_10), what, length)], 30);
        (rates[0], rates[1])
    };
    let (a_alone, _) = beside(Loop::Buffered, 4096);
    let (a_beside_sequential, b_sequential) = beside(Loop::Sequential, 1 << 20);
    let (a_beside_random, b_random) = beside(Loop::Random, 4096);
    assert!((0.99 - WAITING_LOSES..1.01).contains(&(b_sequential / 10.0)), "{b_sequential}");
    assert!(b_random < 1.0, "B is never throttled: {b_random} of 10 MB/s");
    assert!(a_beside_random < 0.7 * a_beside_sequential, "{a_beside_random} and {a_beside_sequential} of {a_alone}");
}

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// The scheduler by itself, with two sessions in a pool of 1000 bytes per second.
struct Direct {
    scheduler: Box<dyn Scheduler>,
    tree: AccountTree,
    pool: AccountId,
    sessions: [AccountId; 2],
}

impl Direct {
    fn new() -> Direct {
        let profile = plimsoll_devices::build(DISK, 1).unwrap().profile().clone();
        let mut tree = AccountTree::new(profile.clone());
        let allocation = limit(Rate::BytesPerSecond(1000.0));
        let pool = tree.open(AccountId::ROOT, "pool", AccountKind::Pool, allocation).unwrap();
        let sessions =
            ["one", "two"].map(|name| tree.open(pool, name, AccountKind::Session, Allocation::default()).unwrap());
        let mut scheduler = build("scs_token", &profile).unwrap();
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Direct { scheduler, tree, pool, sessions }
    }

    fn enter(&mut self, now: Time, id: u64, session: usize, kind: CallKind, length: u64) -> CallDecision {
        let (id, file, thread) = (CallId(id), FileId(1), ThreadId(1));
        let account = self.sessions[session];
        let call = Call { id, account, thread, kind, file, offset: 0, length, entered: now };
        self.scheduler.call_entered(now, &call)
    }

    fn ask(&mut self, now: Time) -> (Vec<u64>, Vec<Wish>) {
        let (mut released, mut wishes) = (Vec::new(), Vec::new());
        self.scheduler.released_calls(now, &mut released);
        self.scheduler.wishes(now, &mut wishes);
        (released.into_iter().map(|id| id.0).collect(), wishes)
    }

    fn change_limit(&mut self, now: Time, limit: Option<Rate>) {
        let account = self.tree.change(self.pool, Allocation { limit, ..Allocation::default() }).unwrap();
        self.scheduler.account_changed(now, account);
    }
}

#[test]
fn only_reads_and_writes_are_charged_and_a_pool_shares_its_limit_in_turn() {
    use CallDecision::{Admit, Hold};
    let mut direct = Direct::new();
    for kind in [CallKind::Fsync, CallKind::Create, CallKind::Truncate, CallKind::Allocate] {
        assert_eq!(direct.enter(at(0.0), 0, 0, kind, 1 << 30), Admit);
    }
    assert_eq!(direct.enter(at(0.0), 1, 0, CallKind::Write, 1000), Admit, "who owes nothing may overdraw");
    assert_eq!(direct.enter(at(0.0), 2, 1, CallKind::Read, 500), Hold, "the bucket is the pool's");
    assert_eq!(direct.enter(at(0.0), 3, 0, CallKind::Fsync, 0), Admit);
    assert_eq!(direct.enter(at(0.5), 4, 0, CallKind::Write, 500), Hold);
    assert_eq!(direct.ask(at(0.999)), (vec![], vec![Wish::WakeAt(at(1.0))]));
    assert_eq!(direct.enter(at(1.0), 5, 0, CallKind::Read, 1), Hold, "the balance is zero, but others came first");
    assert_eq!(direct.ask(at(1.0)), (vec![2], vec![Wish::WakeAt(at(1.5))]), "one overdraws, the others wait");
    assert_eq!(direct.ask(at(1.5)), (vec![4], vec![Wish::WakeAt(at(2.0))]));
}

#[test]
fn a_new_limit_takes_over_the_debt_and_no_limit_forgets_it() {
    let mut direct = Direct::new();
    assert_eq!(direct.enter(at(0.0), 1, 0, CallKind::Write, 1000), CallDecision::Admit);
    assert_eq!(direct.enter(at(0.0), 2, 0, CallKind::Write, 1000), CallDecision::Hold);
    direct.change_limit(at(0.5), Some(Rate::BytesPerSecond(100.0)));
    assert_eq!(direct.ask(at(0.5)), (vec![], vec![Wish::WakeAt(at(5.5))]), "500 bytes are owed");
    direct.change_limit(at(0.5), None);
    assert_eq!(direct.ask(at(0.5)), (vec![2], vec![]));
}

#[test]
fn an_idle_hour_earns_a_tenth_of_a_second() {
    let mut direct = Direct::new();
    assert_eq!(direct.enter(at(3600.0), 1, 0, CallKind::Read, 1000), CallDecision::Admit);
    assert_eq!(direct.enter(at(3600.0), 2, 0, CallKind::Read, 1000), CallDecision::Hold);
    let owed = Span::from_secs(1).saturating_sub(BURST);
    assert_eq!(direct.ask(at(3600.0)), (vec![], vec![Wish::WakeAt(at(3600.0) + owed)]));
}
