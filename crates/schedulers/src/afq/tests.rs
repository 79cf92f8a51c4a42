//! The scheduler by itself. What it does to a machine is in `tests/afq.rs`.
//!
//! Breaks that were planted, and the tests that each turned red (last column: some of `tests/afq.rs`):
//!
//! | broken rule | here | on the machine |
//! | --- | --- | --- |
//! | the submitter pays, not the causes | `causes_pay_and_not_submitters` | `buffered_writers_have_their_shares` |
//! | a journal's blocks are free | `a_commit_is_paid_by_the_calls_that_joined_it` | |
//! | every cause pays the same of a commit | `a_commit_is_paid_by_the_calls_that_joined_it` | |
//! | fsyncs are not held | `fsyncs_go_in_batches_by_priority` | |
//! | dirty pages are free at first | `who_dirties_owes_until_it_is_written` | `buffered_writers_have_their_shares` |
//! | debts are not settled | `who_dirties_owes_until_it_is_written` | `who_filled_the_memory_does_not_...` |
//! | overwriting is charged again | `overwriting_costs_nothing` | |
//! | an absent account does not linger | `the_disk_waits_for_a_sequential_reader` | |
//! | an idle writer contends for ever | `a_writer_that_asks_nothing_of_the_disk_holds_no_other_for_long` | |

use super::*;
use crate::anticipation::STALE;
use crate::call_batch::GATHER_MAX;
use crate::testing::disk;
use plimsoll_core::{AccountKind, Allocation, CauseSet, Class, RequestId, ThreadId};

const HIGH: AccountId = AccountId(1);
const LOW: AccountId = AccountId(2);
const FLUSHER: AccountId = AccountId(3);
const MIB: u64 = 1 << 20;

fn at_ms(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_millis(milliseconds)
}

/// A disk of 100 MB/s; priorities 0 and 7, and a flusher.
struct Bench {
    afq: Afq,
    next_id: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut afq = Afq::new(&disk(4));
        for (id, level) in [(HIGH, 0), (LOW, 7), (FLUSHER, 4)] {
            let allocation = Allocation { priority: Priority::Level(level), ..Allocation::default() };
            let (name, parent) = (id.0.to_string(), Some(AccountId::ROOT));
            afq.account_opened(Time::ZERO, &Account { id, parent, name, kind: AccountKind::Session, allocation });
        }
        Bench { afq, next_id: 0 }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn call(&mut self, account: AccountId, kind: CallKind, length: u64) -> Call {
        let id = CallId(self.id());
        let (file, thread) = (FileId(u64::from(account.0)), ThreadId(account.0));
        Call { id, account, thread, kind, file, offset: 0, length, entered: Time::ZERO }
    }

    /// Enters a call; answers with it, and whether it goes on.
    fn enter(&mut self, now: Time, account: AccountId, kind: CallKind, length: u64) -> (Call, bool) {
        let call = self.call(account, kind, length);
        let goes_on = self.afq.call_entered(now, &call) == CallDecision::Admit;
        (call, goes_on)
    }

    fn released(&mut self, now: Time) -> Vec<CallId> {
        let mut released = Vec::new();
        self.afq.released_calls(now, &mut released);
        released
    }

    fn wake_at(&mut self, now: Time) -> Option<Time> {
        let mut wishes = Vec::new();
        self.afq.wishes(now, &mut wishes);
        wishes.iter().find_map(|wish| if let Wish::WakeAt(at) = wish { Some(*at) } else { None })
    }

    fn dirty(&mut self, account: AccountId, offset: u64, length: u64, previous: CauseSet) {
        let (file, causes) = (FileId(u64::from(account.0)), CauseSet::of(account));
        self.afq.pages_dirtied(Time::ZERO, &PageEvent { file, offset, length, causes, previous });
    }

    /// A request through the scheduler, up to its dispatch.
    fn dispatch(&mut self, now: Time, change: impl FnOnce(BlockRequest) -> BlockRequest) -> BlockRequest {
        let id = RequestId(self.id());
        let request = BlockRequest::new(id, FLUSHER, Operation::Write, 1 << 38, 4096, now);
        self.afq.request_added(now, change(request));
        let Dispatch::Now(request) = self.afq.next(now) else { panic!("not dispatched") };
        request
    }

    fn complete(&mut self, now: Time, request: &BlockRequest) {
        let (id, session, runs) = (request.id, request.session, request.runs());
        self.afq.request_completed(now, &Completion { id, session, runs, service: Span::ZERO, succeeded: true });
    }

    /// How far accounts have come, as a cost.
    fn paid(&self, account: AccountId) -> u64 {
        let stride = if account == HIGH { 105 } else { 840 };
        self.afq.stride.pass(account) * 512 / stride
    }
}

#[test]
fn causes_pay_and_not_submitters() {
    let mut bench = Bench::new();
    let causes: CauseSet = [HIGH, LOW].into_iter().collect();
    bench.dispatch(Time::ZERO, |request| BlockRequest { causes, length: MIB as u32, ..request });
    let (high, low) = (bench.paid(HIGH), bench.paid(LOW));
    assert!(high.abs_diff(low) < 8 && high > MIB / 2, "{high} and {low}");
    assert_eq!(bench.afq.stride.pass(FLUSHER), 0);
    bench.dispatch(Time::ZERO, |request| BlockRequest { session: HIGH, ..request });
    assert!(bench.paid(HIGH) > high, "no cause is known, so the submitter pays");
}

#[test]
fn a_commit_is_paid_by_the_calls_that_joined_it() {
    let mut bench = Bench::new();
    for account in [HIGH, HIGH, HIGH, LOW] {
        let (call, goes_on) = bench.enter(Time::ZERO, account, CallKind::Write, 0);
        assert!(goes_on);
        bench.afq.call_returned(Time::ZERO, &call);
    }
    let causes: CauseSet = [HIGH, LOW].into_iter().collect();
    let class = Class::JOURNAL;
    let log = |request| BlockRequest { causes: causes.clone(), class, length: 64 << 10, is_sync: true, ..request };
    bench.dispatch(Time::ZERO, log);
    let (high, low) = (bench.paid(HIGH), bench.paid(LOW));
    assert!(low > 16 << 10 && high.abs_diff(3 * low) < 64, "three calls and one: {high} and {low}");
    bench.dispatch(Time::ZERO, |request| BlockRequest { is_forced: true, ..log(request) });
    let (high, low) = (bench.paid(HIGH), bench.paid(LOW));
    bench.dispatch(Time::ZERO, log);
    let (high, low) = (bench.paid(HIGH) - high, bench.paid(LOW) - low);
    assert!(high.abs_diff(low) < 64, "that commit is over: {high} and {low}");
}

#[test]
fn fsyncs_go_in_batches_by_priority() {
    let mut bench = Bench::new();
    let (first, goes_on) = bench.enter(at_ms(0), LOW, CallKind::Fsync, 0);
    assert!(goes_on, "no other account wants anything");
    let (high, _) = bench.enter(at_ms(1), HIGH, CallKind::Fsync, 0);
    assert_eq!(bench.released(at_ms(1)), vec![], "a batch is under way");
    let causes = CauseSet::of(LOW);
    bench.dispatch(at_ms(1), |request| BlockRequest { causes, length: 8 * MIB as u32, ..request });
    bench.afq.call_returned(at_ms(10), &first);
    let (low, _) = bench.enter(at_ms(10), LOW, CallKind::Fsync, 0);
    assert_eq!(bench.released(at_ms(10)), vec![], "the next batch is gathered");
    assert_eq!(bench.wake_at(at_ms(10)), Some(at_ms(10) + GATHER_MAX));
    assert_eq!(bench.released(at_ms(11)), vec![high.id], "the low priority is far ahead");
    bench.afq.call_returned(at_ms(20), &high);
    assert_eq!(bench.released(at_ms(21)), vec![], "who had the disk may want it again");
    assert_eq!(bench.wake_at(at_ms(21)), Some(at_ms(20) + LINGER));
    assert_eq!(bench.released(at_ms(29)), vec![low.id], "it does not");
}

#[test]
fn an_account_that_dirties_owes_until_its_pages_are_written() {
    let mut bench = Bench::new();
    bench.dirty(LOW, 0, 4 * MIB, CauseSet::EMPTY);
    let owed = bench.paid(LOW);
    assert!(owed >= 4 * MIB, "{owed}");
    let causes = CauseSet::of(LOW);
    let file = FileId(u64::from(LOW.0));
    bench.dispatch(Time::ZERO, |request| BlockRequest {
        causes: causes.clone(),
        file: Some(file),
        length: MIB as u32,
        ..request
    });
    let positioning = bench.afq.model.mean();
    let (paid, expected) = (bench.paid(LOW), owed / 4 * 3 + MIB + positioning);
    assert!(paid.abs_diff(expected) < MIB / 16, "a quarter is written, at its price: {paid}, {expected}");
    assert!(bench.afq.advances.paid_for_dirty(LOW).abs_diff(owed / 4 * 3) < 64);
    let event = PageEvent { file, offset: MIB, length: 3 * MIB, causes: causes.clone(), previous: causes };
    bench.afq.pages_freed(Time::ZERO, &event);
    let paid = bench.paid(LOW);
    assert!(paid.abs_diff(MIB + positioning) < MIB / 16, "what is never written is not paid: {paid}");
    assert_eq!(bench.afq.advances.paid_for_dirty(LOW), 0);
}

#[test]
fn overwriting_costs_nothing() {
    let mut bench = Bench::new();
    bench.dirty(LOW, 0, MIB, CauseSet::EMPTY);
    let owed = bench.paid(LOW);
    bench.dirty(LOW, 0, MIB, CauseSet::of(LOW));
    bench.dirty(HIGH, 0, MIB, CauseSet::of(LOW));
    assert_eq!((bench.paid(LOW), bench.paid(HIGH)), (owed, 0));
}

#[test]
fn the_disk_waits_for_a_sequential_reader() {
    let mut bench = Bench::new();
    let read = |bench: &mut Bench, now, session, offset| {
        let id = RequestId(bench.id());
        bench.afq.request_added(now, BlockRequest::new(id, session, Operation::Read, offset, 128 << 10, now));
    };
    read(&mut bench, at_ms(0), HIGH, 0);
    let Dispatch::Now(first) = bench.afq.next(at_ms(0)) else { panic!() };
    read(&mut bench, at_ms(1), LOW, 1 << 38);
    assert_eq!(bench.afq.next(at_ms(1)), Dispatch::Nothing, "its slice is not over");
    bench.complete(at_ms(2), &first);
    // The first time it is unknown whether it comes back: it is tried by coming back.
    read(&mut bench, at_ms(2), HIGH, 128 << 10);
    let Dispatch::Now(second) = bench.afq.next(at_ms(2)) else { panic!() };
    assert_eq!(second.session, HIGH);
    bench.complete(at_ms(3), &second);
    assert_eq!(bench.afq.next(at_ms(3)), Dispatch::NotBefore(at_ms(3) + LINGER));
    let before = bench.paid(HIGH);
    let Dispatch::Now(other) = bench.afq.next(at_ms(3) + LINGER) else { panic!() };
    assert_eq!(other.session, LOW, "it does not come back");
    let idled = bench.paid(HIGH) - before;
    assert!(idled.abs_diff(bench.afq.cost_of(LINGER)) < 8, "and pays for the time: {idled}");
}

#[test]
fn a_writer_that_asks_nothing_of_the_disk_holds_no_other_for_long() {
    let mut bench = Bench::new();
    let (high, goes_on) = bench.enter(at_ms(0), HIGH, CallKind::Write, MIB);
    assert!(goes_on);
    bench.dirty(HIGH, 0, 4096, CauseSet::EMPTY);
    bench.dirty(LOW, 0, 64 * MIB, CauseSet::EMPTY);
    let (low, goes_on) = bench.enter(at_ms(1), LOW, CallKind::Write, MIB);
    assert!(!goes_on, "it owes 64 MiB");
    assert_eq!(bench.released(at_ms(2)), vec![]);
    // Calls that only overwrite what is dirty do not count.
    bench.afq.call_returned(at_ms(2), &high);
    bench.enter(at_ms(2), HIGH, CallKind::Write, MIB);
    bench.dirty(HIGH, 0, 4096, CauseSet::of(HIGH));
    // Nor do the file's times, which change with every call.
    let (causes, previous) = (CauseSet::of(HIGH), CauseSet::of(HIGH));
    bench.afq.pages_dirtied(at_ms(2), &PageEvent { file: FileId::DEVICE, offset: 0, length: 4096, causes, previous });
    let wake_at = bench.wake_at(at_ms(2)).expect("a call is held for nothing under way");
    assert_eq!(wake_at, at_ms(0) + STALE);
    assert_eq!(bench.released(wake_at), vec![low.id]);
}

#[test]
fn idle_goes_when_no_other_class_waits_and_real_time_before_all() {
    let mut bench = Bench::new();
    let of = |id: AccountId, priority| {
        let allocation = Allocation { priority, ..Allocation::default() };
        Account { id, parent: Some(AccountId::ROOT), name: id.0.to_string(), kind: AccountKind::Session, allocation }
    };
    bench.afq.account_changed(at_ms(0), &of(LOW, Priority::Idle));
    bench.afq.account_changed(at_ms(0), &of(FLUSHER, Priority::RealTime(7)));
    let (write, goes_on) = bench.enter(at_ms(0), HIGH, CallKind::Write, 64 * MIB);
    assert!(goes_on);
    bench.dirty(HIGH, 0, 64 * MIB, CauseSet::EMPTY);
    let (idle, goes_on) = bench.enter(at_ms(0), LOW, CallKind::Write, 4096);
    assert!(!goes_on);
    let (_, goes_on) = bench.enter(at_ms(0), FLUSHER, CallKind::Write, MIB);
    assert!(goes_on);
    bench.dirty(FLUSHER, 0, MIB, CauseSet::EMPTY);
    bench.afq.call_returned(at_ms(1), &write);
    assert_eq!(bench.released(at_ms(1)), vec![]);
    assert_eq!(bench.released(at_ms(0) + STALE), vec![idle.id]);
}

/// Whatever the low priority owes, it goes on when the other has had eight times the lead (`docs/schedulers/afq.md`).
/// Promise: afq-held-call.
#[test]
fn a_held_call_waits_no_longer_than_the_bound() {
    let mut bench = Bench::new();
    bench.enter(at_ms(0), HIGH, CallKind::Write, 0);
    bench.dirty(HIGH, 1 << 40, MIB, CauseSet::EMPTY);
    bench.dirty(LOW, 0, 1 << 40, CauseSet::EMPTY);
    let (low, goes_on) = bench.enter(at_ms(0), LOW, CallKind::Write, MIB);
    assert!(!goes_on);
    let before = bench.paid(HIGH);
    let most = 8 * bench.afq.cost_of(LEAD_MAX);
    let mut offset = 0;
    let released = loop {
        bench.dirty(HIGH, offset, MIB, CauseSet::EMPTY);
        offset += MIB;
        assert!(bench.paid(HIGH) - before <= most + MIB, "still held");
        let released = bench.released(Time::ZERO);
        if !released.is_empty() {
            break released;
        }
    };
    assert_eq!(released, vec![low.id]);
}
