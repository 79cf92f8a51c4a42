//! `split_token` by itself: which account is charged what, when it comes back, and which calls wait for it.
//!
//! Planted breaks, each of which makes the test behind it fail:
//!
//! - `pages_freed` gives nothing back: `what_is_deleted_before_it_is_written_costs_nothing`
//! - a request charges its session instead of its causes: `a_request_is_charged_to_its_causes_in_equal_parts`
//! - nothing is put right when a request is dispatched: `a_guess_is_put_right_when_the_request_is_dispatched`
//! - writes wait at the block level: `only_reads_wait_at_the_block_level`
//! - a request that interrupts a stream does not pay for its way back:
//!   `an_account_that_interrupts_a_stream_pays_for_its_way_back`
//! - a stream that was interrupted goes on with all it has:
//!   `a_stream_goes_on_with_one_request_after_others_were_served`
//! - metadata reads wait: `only_reads_wait_at_the_block_level`
//! - only the account's own balance holds: `a_pool_shares_its_limit`
//! - reads that wait do not wait for each other's cost: `reads_that_wait_go_one_by_one`
//! - a new call looks at the balance only, and not at the calls that wait for it: `no_account_passes_one_that_waits`
//! - calls go whichever request is first in line: `calls_and_reads_stand_in_one_line`

mod split_token_support;

use plimsoll_core::*;
use plimsoll_schedulers::balance::BURST;
use plimsoll_schedulers::cost_model::{CostModel, DirtyModel};
use plimsoll_schedulers::split_token::SplitToken;
use proptest::prelude::*;
use split_token_support::{GIB, MIB, device};

/// Of each session, bytes per second.
const LIMIT: f64 = 1e6;

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// Sessions in one pool, at time zero; each has `LIMIT` unless the test says otherwise.
struct Bench {
    scheduler: SplitToken,
    tree: AccountTree,
    pool: AccountId,
    sessions: Vec<AccountId>,
    requests: u64,
}

fn limited(bytes_per_second: Option<f64>) -> Allocation {
    Allocation { limit: bytes_per_second.map(Rate::BytesPerSecond), ..Allocation::default() }
}

impl Bench {
    fn new(pool: Option<f64>, limits: &[Option<f64>]) -> Bench {
        let mut tree = AccountTree::new(device());
        let pool = tree.open(AccountId::ROOT, "pool", AccountKind::Pool, limited(pool)).unwrap();
        let open = |(number, &limit): (usize, &Option<f64>)| {
            tree.open(pool, &number.to_string(), AccountKind::Session, limited(limit)).unwrap()
        };
        let sessions = limits.iter().enumerate().map(open).collect();
        let mut scheduler = SplitToken::new(&device());
        tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
        Bench { scheduler, tree, pool, sessions, requests: 0 }
    }

    fn causes(&self, sessions: &[usize]) -> CauseSet {
        sessions.iter().map(|&session| self.sessions[session]).collect()
    }

    fn dirty(&mut self, file: u64, offset: u64, length: u64, by: &[usize], before: &[usize]) {
        let (causes, previous) = (self.causes(by), self.causes(before));
        let event = PageEvent { file: FileId(file), offset, length, causes, previous };
        self.scheduler.pages_dirtied(Time::ZERO, &event);
    }

    fn free(&mut self, file: u64, offset: u64, length: u64, of: &[usize]) {
        let causes = self.causes(of);
        let event = PageEvent { file: FileId(file), offset, length, previous: causes.clone(), causes };
        self.scheduler.pages_freed(Time::ZERO, &event);
    }

    fn request(
        &mut self,
        operation: Operation,
        session: usize,
        offset: u64,
        length: u32,
        of: &[usize],
    ) -> BlockRequest {
        self.requests += 1;
        let (id, session) = (RequestId(self.requests), self.sessions[session]);
        let request = BlockRequest::new(id, session, operation, offset, length, Time::ZERO);
        BlockRequest { causes: self.causes(of), file: Some(FileId(1)), ..request }
    }

    /// Adds a request, which must be dispatched at once, and completes it.
    fn dispatch(&mut self, request: BlockRequest) {
        self.scheduler.request_added(Time::ZERO, request.clone());
        assert_eq!(self.scheduler.next(Time::ZERO), Dispatch::Now(request.clone()));
        self.complete(&request);
    }

    fn complete(&mut self, request: &BlockRequest) {
        let (id, session, runs) = (request.id, request.session, request.runs());
        let completion = Completion { id, session, runs, service: Span::ZERO, succeeded: true };
        self.scheduler.request_completed(Time::ZERO, &completion);
    }

    fn enter(&mut self, now: Time, id: u64, session: usize, kind: CallKind) -> CallDecision {
        let (id, file, thread, account) = (CallId(id), FileId(1), ThreadId(1), self.sessions[session]);
        let call = Call { id, account, thread, kind, file, offset: 0, length: 4096, entered: now };
        self.scheduler.call_entered(now, &call)
    }

    fn released(&mut self, now: Time) -> (Vec<u64>, Option<Time>) {
        let (mut released, mut wishes) = (Vec::new(), Vec::new());
        self.scheduler.released_calls(now, &mut released);
        self.scheduler.wishes(now, &mut wishes);
        let wake_at = wishes.iter().map(|wish| if let Wish::WakeAt(at) = wish { *at } else { Time::MAX }).min();
        (released.into_iter().map(|id| id.0).collect(), wake_at)
    }

    /// Bytes that a session owes: how long it would wait at the calls. Nothing may wait yet.
    fn debt(&mut self, session: usize) -> f64 {
        if self.enter(Time::ZERO, 1000, session, CallKind::Write) == CallDecision::Admit {
            return 0.0;
        }
        let wake_at = self.released(Time::ZERO).1.expect("a held call says until when");
        assert_eq!(self.released(wake_at).0, [1000]);
        wake_at.since(Time::ZERO).as_secs_f64() * LIMIT
    }
}

fn assert_near(got: f64, expected: f64) {
    assert!((got - expected).abs() <= 2.0, "{got} bytes, expected {expected}");
}

#[test]
fn pages_cost_when_they_become_dirty_and_not_again() {
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    let guess = DirtyModel::new(&device()).charge(FileId(1), 0, MIB) as f64;
    assert_near(bench.debt(0), guess);
    bench.dirty(1, 0, MIB, &[0], &[0]);
    assert_near(bench.debt(0), guess);
    bench.dirty(1, MIB, MIB, &[0], &[]);
    assert_near(bench.debt(0), guess + MIB as f64);
    bench.dirty(1, 300 * MIB, 4096, &[0], &[]);
    assert!(bench.debt(0) > guess + MIB as f64 + 300_000.0, "a random page costs a positioning");
}

#[test]
fn what_is_deleted_before_it_is_written_costs_nothing() {
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    bench.dirty(1, 300 * MIB, 4096, &[0], &[]);
    bench.free(1, 0, MIB, &[0]);
    assert!(bench.debt(0) > 0.0, "a page is dirty still");
    bench.free(1, 300 * MIB, 4096, &[0]);
    assert_eq!(bench.debt(0), 0.0, "the positioning comes back too");
}

#[test]
fn a_guess_is_put_right_when_the_request_is_dispatched() {
    // Pages scattered over the file that turn out to lie side by side, and the other way round.
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    (0..8).for_each(|page| bench.dirty(1, page * 300 * MIB, 4096, &[0], &[]));
    let guessed = bench.debt(0);
    let write = bench.request(Operation::Write, 0, 0, 8 * 4096, &[0]);
    let cost = CostModel::new(&device()).charge(&write) as f64;
    bench.dispatch(write);
    assert!(guessed > 2e6 && cost < 40e3, "{guessed} and {cost}");
    assert_near(bench.debt(0), cost);
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    let mut model = CostModel::new(&device());
    bench.dirty(1, 0, 8 * 4096, &[0], &[]);
    let mut cost = 0.0;
    for page in 0..8 {
        let write = bench.request(Operation::Write, 0, (8 - page) * 30 * GIB, 4096, &[0]);
        cost += model.charge(&write) as f64;
        bench.dispatch(write);
    }
    assert_near(bench.debt(0), cost);
}

#[test]
fn a_second_cause_takes_its_share_over() {
    let mut bench = Bench::new(None, &[Some(LIMIT), Some(LIMIT)]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    let whole = bench.debt(0);
    bench.dirty(1, 0, MIB, &[1], &[0]);
    assert_near(bench.debt(0), whole / 2.0);
    assert_near(bench.debt(1), whole / 2.0);
    bench.free(1, 0, MIB, &[0, 1]);
    assert_near(bench.debt(0) + bench.debt(1), 0.0);
}

#[test]
fn a_request_is_charged_to_its_causes_in_equal_parts() {
    // The journal's task, session 2, writes for two others; a read without causes is its session's.
    let mut bench = Bench::new(None, &[Some(LIMIT), Some(LIMIT), Some(LIMIT)]);
    let write = BlockRequest { file: None, ..bench.request(Operation::Write, 2, 100 * GIB, 4096, &[0, 1]) };
    let mut model = CostModel::new(&device());
    let cost = model.charge(&write) as f64;
    bench.dispatch(write);
    assert_near(bench.debt(0), cost / 2.0);
    assert_near(bench.debt(1), cost / 2.0);
    assert_eq!(bench.debt(2), 0.0);
    let read = bench.request(Operation::Read, 2, 300 * GIB, 4096, &[]);
    let cost = model.charge(&read) as f64;
    bench.dispatch(read);
    assert_near(bench.debt(2), cost);
}

#[test]
fn an_account_that_interrupts_a_stream_pays_for_its_way_back() {
    let mut bench = Bench::new(None, &[None, Some(LIMIT)]);
    let stream = |bench: &mut Bench, number: u64| {
        let read = bench.request(Operation::Read, 0, number * MIB, 1 << 20, &[0]);
        bench.dispatch(read);
    };
    (0..3).for_each(|number| stream(&mut bench, number));
    let read = bench.request(Operation::Read, 1, 100 * GIB, 4096, &[1]);
    bench.dispatch(read);
    let way_there = bench.debt(1);
    stream(&mut bench, 3);
    let way_back = bench.debt(1) - way_there;
    assert!((0.6..0.7).contains(&(way_back / way_there)), "{way_there} there, {way_back} back");
    stream(&mut bench, 4);
    assert_near(bench.debt(1), way_there + way_back);
}

#[test]
fn a_stream_goes_on_with_one_request_after_others_were_served() {
    let mut bench = Bench::new(None, &[None, None]);
    (0..3).for_each(|n| {
        let request = bench.request(Operation::Read, 0, n * MIB, MIB as u32, &[0]);
        bench.dispatch(request);
    });
    let write = bench.request(Operation::Write, 1, GIB, 4096, &[1]);
    bench.dispatch(write);
    let [first, second, third] = [3, 4, 5].map(|n| bench.request(Operation::Read, 0, n * MIB, MIB as u32, &[0]));
    [&first, &second, &third].into_iter().for_each(|read| bench.scheduler.request_added(Time::ZERO, read.clone()));
    assert_eq!(bench.scheduler.next(Time::ZERO), Dispatch::Now(first.clone()));
    assert_eq!(bench.scheduler.next(Time::ZERO), Dispatch::Nothing, "or the drive begins with the second");
    bench.complete(&first);
    assert_eq!(bench.scheduler.next(Time::ZERO), Dispatch::Now(second), "the head is there");
    assert_eq!(bench.scheduler.next(Time::ZERO), Dispatch::Now(third));
}

/// Promise: split-levels.
#[test]
fn only_calls_that_modify_wait_and_go_on_when_the_balance_is_zero() {
    use CallDecision::{Admit, Hold};
    let mut bench = Bench::new(None, &[Some(LIMIT), None]);
    assert_eq!(bench.enter(at(0.0), 0, 0, CallKind::Write), Admit);
    bench.dirty(1, 0, MIB, &[0, 1], &[]);
    assert_eq!(bench.enter(at(0.1), 1, 0, CallKind::Read), Admit, "the cache may have it");
    let modifying = [
        CallKind::Write,
        CallKind::Fsync,
        CallKind::Fdatasync,
        CallKind::Create,
        CallKind::MakeDirectory,
        CallKind::Unlink,
        CallKind::Rename,
        CallKind::Truncate,
        CallKind::Allocate,
    ];
    for (number, kind) in modifying.into_iter().enumerate() {
        assert_eq!(bench.enter(at(0.1), 10 + number as u64, 0, kind), Hold, "{kind:?}");
        assert_eq!(bench.enter(at(0.1), 30 + number as u64, 1, kind), Admit, "not limited");
    }
    let (released, wake_at) = bench.released(at(0.2));
    assert!(released.is_empty());
    let just_before = wake_at.unwrap().saturating_sub(Span::from_nanos(1));
    assert_eq!(bench.released(just_before).0, Vec::<u64>::new());
    assert_eq!(bench.released(wake_at.unwrap()), ((10..19).collect(), None), "all, in order");
}

/// Promise: split-levels.
#[test]
fn only_reads_wait_at_the_block_level() {
    let mut bench = Bench::new(None, &[Some(LIMIT), None]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    let owed = Span::from_secs_f64(bench.debt(0) / LIMIT);
    let write = bench.request(Operation::Write, 0, 0, 4096, &[]);
    bench.dispatch(BlockRequest { file: None, ..write });
    let metadata = bench.request(Operation::Read, 0, 0, 4096, &[0]);
    bench.dispatch(BlockRequest { file: Some(FileId::DEVICE), ..metadata });
    let read = bench.request(Operation::Read, 0, 4096, 4096, &[0]);
    bench.scheduler.request_added(Time::ZERO, read.clone());
    let Dispatch::NotBefore(until) = bench.scheduler.next(Time::ZERO) else { panic!("the read waits") };
    assert!(until >= Time::ZERO + owed);
    let other = bench.request(Operation::Read, 1, 8192, 4096, &[1]);
    bench.dispatch(other);
    assert_eq!(bench.scheduler.next(until), Dispatch::Now(read));
}

#[test]
fn reads_that_wait_go_one_by_one() {
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    let mut model = CostModel::new(&device());
    let reads: Vec<_> = (1..4).map(|number| bench.request(Operation::Read, 0, number * GIB, 4096, &[0])).collect();
    reads.iter().for_each(|read| bench.scheduler.request_added(Time::ZERO, read.clone()));
    let mut now = Time::ZERO;
    for read in reads {
        let Dispatch::NotBefore(until) = bench.scheduler.next(now) else { panic!("the read waits") };
        assert_eq!(bench.scheduler.next(until), Dispatch::Now(read.clone()));
        let Dispatch::NotBefore(next) = bench.scheduler.next(until) else { break };
        assert_near(next.since(until).as_secs_f64() * LIMIT, model.charge(&read) as f64);
        now = until;
    }
    assert_eq!(bench.scheduler.next(at(60.0)), Dispatch::Nothing, "all are gone");
}

/// Promise: split-wait.
#[test]
fn no_account_passes_one_that_waits() {
    use CallDecision::{Admit, Hold};
    let mut bench = Bench::new(Some(LIMIT), &[None, None]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    assert_eq!(bench.enter(at(0.0), 1, 0, CallKind::Write), Hold);
    let zero_at = bench.released(at(0.0)).1.unwrap();
    // The call that has waited is not yet released.
    assert_eq!(bench.enter(zero_at, 2, 1, CallKind::Write), Hold);
    assert_eq!(bench.enter(zero_at, 3, 1, CallKind::Read), Admit);
    assert_eq!(bench.released(zero_at), (vec![1, 2], None));
    assert_eq!(bench.enter(zero_at, 4, 1, CallKind::Write), Admit);
}

#[test]
fn calls_and_reads_stand_in_one_line() {
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    bench.dirty(1, 0, MIB, &[0], &[]);
    bench.enter(at(0.0), 1, 0, CallKind::Write);
    let read = bench.request(Operation::Read, 0, 100 * GIB, 4096, &[0]);
    bench.scheduler.request_added(Time::ZERO, read.clone());
    assert_eq!(bench.scheduler.next(Time::ZERO), Dispatch::Nothing, "a call is first");
    bench.enter(at(0.0), 2, 0, CallKind::Write);
    let zero_at = bench.released(at(0.0)).1.unwrap();
    assert_eq!(bench.released(zero_at), (vec![1], None), "a read is next");
    assert_eq!(bench.scheduler.next(zero_at), Dispatch::Now(read));
    let (released, wake_at) = bench.released(zero_at);
    assert!(released.is_empty(), "the read has to be paid first");
    assert_eq!(bench.released(wake_at.unwrap()), (vec![2], None));
}

#[test]
fn a_pool_shares_its_limit() {
    use CallDecision::Hold;
    let mut bench = Bench::new(Some(LIMIT), &[None, Some(LIMIT / 10.0)]);
    bench.dirty(1, 0, MIB, &[1], &[]);
    assert_eq!(bench.enter(at(0.0), 1, 0, CallKind::Write), Hold, "the pool owes");
    assert_eq!(bench.enter(at(0.0), 2, 1, CallKind::Write), Hold);
    let pool_until = bench.released(at(0.0)).1.unwrap();
    assert_eq!(bench.released(pool_until).0, [1], "the pool's balance is zero, the session's not yet");
    let session_until = bench.released(pool_until).1.unwrap();
    assert_eq!(session_until.as_nanos().div_ceil(1000), (pool_until.as_nanos() * 10).div_ceil(1000));
    assert_eq!(bench.released(session_until), (vec![2], None));
}

#[test]
fn a_balance_is_capped_and_a_new_limit_takes_the_debt_over() {
    let mut bench = Bench::new(None, &[Some(LIMIT)]);
    let hour = at(3600.0);
    let causes = bench.causes(&[0]);
    let event = PageEvent { file: FileId(1), offset: 0, length: 64 * MIB, causes, previous: CauseSet::EMPTY };
    bench.scheduler.pages_dirtied(hour, &event);
    assert_eq!(bench.enter(hour, 1, 0, CallKind::Write), CallDecision::Hold);
    let charged = DirtyModel::new(&device()).charge(FileId(1), 0, 64 * MIB) as f64;
    // A tenth of a second of the disk, and not only of the limit.
    let saved = BURST.as_secs_f64() * device().sequential_bytes_per_second;
    assert!(saved > LIMIT * BURST.as_secs_f64());
    let owed = charged - saved;
    let wait = bench.released(hour).1.unwrap().since(hour);
    assert_near(wait.as_secs_f64() * LIMIT, owed);
    let account = bench.tree.change(bench.sessions[0], limited(Some(10.0 * LIMIT))).unwrap().clone();
    bench.scheduler.account_changed(hour, &account);
    assert_near(bench.released(hour).1.unwrap().since(hour).as_secs_f64() * LIMIT * 10.0, owed);
    let account = bench.tree.change(bench.sessions[0], limited(None)).unwrap().clone();
    bench.scheduler.account_changed(hour, &account);
    assert_eq!(bench.released(hour), (vec![1], None));
    assert!(bench.tree.get(bench.pool).is_some());
}

/// Pages of one file, one cause each, as a slow and exact book has them.
#[derive(Clone, Debug)]
enum Step {
    Dirty { page: u64, pages: u64, session: usize },
    Free { page: u64 },
    Write { page: u64, place: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u64..40, 1u64..5, 0usize..3).prop_map(|(page, pages, session)| Step::Dirty { page, pages, session }),
        1 => (0u64..40).prop_map(|page| Step::Free { page }),
        3 => (0u64..40, 0u64..200).prop_map(|(page, place)| Step::Write { page, place }),
    ]
}

proptest! {
    /// Whatever is dirtied, shared, deleted and written in whatever order: when nothing is dirty any more, all guesses
    /// have come back, and together the accounts were charged what the disk's model says, no more and no less.
    /// Promise: split-guesses.
    #[test]
    fn guesses_come_back_and_the_disks_model_is_what_is_paid(steps in proptest::collection::vec(step(), 1..80)) {
        let mut bench = Bench::new(None, &[Some(LIMIT); 3]);
        let mut model = CostModel::new(&device());
        let mut dirty: Vec<Vec<usize>> = vec![Vec::new(); 50];
        let mut cost = 0.0;
        let clean_up = (0..50).map(|page| Step::Write { page, place: page });
        for step in steps.into_iter().chain(clean_up) {
            match step {
                Step::Dirty { page, pages, session } => for page in page..page + pages {
                    let before = dirty[page as usize].clone();
                    bench.dirty(1, page * 4096, 4096, &[session], &before);
                    if !before.contains(&session) {
                        dirty[page as usize].push(session);
                    }
                },
                Step::Free { page } => {
                    let of = std::mem::take(&mut dirty[page as usize]);
                    bench.free(1, page * 4096, 4096, &of);
                }
                Step::Write { page, place } => {
                    let of = std::mem::take(&mut dirty[page as usize]);
                    if !of.is_empty() {
                        let write = bench.request(Operation::Write, 0, place * GIB, 4096, &of);
                        let this = model.cost(&write);
                        // Where no stream goes on no request interrupts one.
                        prop_assume!(!this.is_resumed);
                        cost += (this.transfer + this.positioning) as f64;
                        bench.dispatch(write);
                    }
                }
            }
        }
        let paid: f64 = (0..3).map(|session| bench.debt(session)).sum();
        // A balance that is refunded above its cap would lose the rest; here all refunds are of what was just owed.
        prop_assert!((paid - cost).abs() < 2000.0, "{paid} of {cost}");
    }
}
