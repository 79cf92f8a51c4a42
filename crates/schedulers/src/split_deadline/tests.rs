//! Breaks that were planted, and the test that each turned red:
//!
//! | break | test |
//! | --- | --- |
//! | dear fsyncs go on at once (`is_dear` never true) | `a_dear_fsync_waits_until_little_is_left` |
//! | the fsync-deadline queue is ignored (ready ones by arrival) | `fsyncs_go_on_by_deadline` |
//! | freed pages are forgotten (`pages_freed` does nothing) | `freed_pages_cost_nothing` |
//! | slices of any length | `a_slice_leaves_the_others_their_time` |
//! | held calls have endless patience | `no_call_is_held_longer_than_the_bound` |
//! | files are never too old | `old_pages_are_written_though_nobody_asks` |
//! | writes without a waiter go during a commit | `decides_as_the_obvious_way_does`, and the next row's test |
//! | the same, on a solid-state drive | `a_drive_without_a_head_writes_nothing_that_nobody_waits_for_during_a_commit` |
//! | expired reads wait for the sweep | `decides_as_the_obvious_way_does` |

use super::*;
use plimsoll_core::{AccountKind, Allocation, CauseSet, Class, RequestId, ThreadId};
use proptest::prelude::*;

const A: AccountId = AccountId(1);
const B: AccountId = AccountId(2);
const A_DEADLINE: Span = Span::from_millis(100);
const LOG: FileId = FileId(10);
const TABLE: FileId = FileId(20);
const PAGE_BYTES: u64 = 4096;

fn device() -> DeviceProfile {
    DeviceProfile {
        name: "disk".into(),
        capacity_bytes: 500 << 30,
        worst_case_runs_per_second: 115.0,
        sequential_bytes_per_second: 138e6,
        sequential_write_bytes_per_second: 138e6,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max: 10,
    }
}

/// A host with one disk that does what it is asked at once.
struct Host {
    scheduler: SplitDeadline,
    now: Time,
    calls: u64,
    requests: u64,
    written: Vec<(FileId, u64)>,
    wake_at: Time,
}

impl Host {
    /// A was promised 100 ms, B six seconds.
    fn new(writeback: Writeback) -> Host {
        let mut scheduler = SplitDeadline::new(&device(), writeback);
        for (id, fsync) in [(A, A_DEADLINE), (B, Span::from_secs(6))] {
            let deadlines = Deadlines { fsync: Some(fsync), ..Deadlines::default() };
            let allocation = Allocation { deadlines, ..Allocation::default() };
            let account =
                Account { id, parent: Some(AccountId::ROOT), name: "x".into(), kind: AccountKind::Session, allocation };
            scheduler.account_opened(Time::ZERO, &account);
        }
        let now = Time::ZERO + Span::from_secs(1);
        Host { scheduler, now, calls: 0, requests: 0, written: Vec::new(), wake_at: Time::MAX }
    }

    fn call(&mut self, account: AccountId, kind: CallKind, file: FileId) -> (Call, CallDecision) {
        let (id, thread) = (CallId(self.calls), ThreadId(account.0));
        self.calls += 1;
        let call = Call { id, account, thread, kind, file, offset: 0, length: PAGE_BYTES, entered: self.now };
        let decision = self.scheduler.call_entered(self.now, &call);
        (call, decision)
    }

    fn fsync(&mut self, account: AccountId, file: FileId) -> (Call, CallDecision) {
        self.call(account, CallKind::Fsync, file)
    }

    /// Dirties a page.
    fn dirty(&mut self, account: AccountId, file: FileId, page: u64) {
        let (causes, previous) = (CauseSet::of(account), CauseSet::EMPTY);
        let event = PageEvent { file, offset: page * PAGE_BYTES, length: PAGE_BYTES, causes, previous };
        self.scheduler.pages_dirtied(self.now, &event);
    }

    /// Dirties pages all over a file.
    fn scatter(&mut self, account: AccountId, file: FileId, count: u64) {
        (0..count).for_each(|page| self.dirty(account, file, page * 7919 % (1 << 20)));
    }

    /// The file's pages go to the device, which is done at once.
    fn write(&mut self, account: AccountId, file: FileId, bytes: u64, is_sync: bool) {
        let bytes = bytes.min(self.scheduler.files.ledger().file_bytes(file));
        for page in 0..bytes / PAGE_BYTES {
            self.requests += 1;
            let (id, length) = (RequestId(self.requests), PAGE_BYTES as u32);
            let request = BlockRequest::new(id, account, Operation::Write, page << 30, length, self.now);
            let causes = CauseSet::of(account);
            let request = BlockRequest { file: Some(file), causes, is_sync, ..request };
            self.scheduler.request_added(self.now, request);
        }
        while let Dispatch::Now(request) = self.scheduler.next(self.now) {
            let (id, session, runs) = (request.id, request.session, 1);
            let completion = Completion { id, session, runs, service: Span::ZERO, succeeded: true };
            self.scheduler.request_completed(self.now, &completion);
        }
    }

    /// What a host does after each event. Answers with the calls that go on.
    fn settle(&mut self) -> Vec<CallId> {
        let (mut released, mut wishes) = (Vec::new(), Vec::new());
        self.scheduler.released_calls(self.now, &mut released);
        self.scheduler.wishes(self.now, &mut wishes);
        self.wake_at = Time::MAX;
        for wish in wishes {
            match wish {
                Wish::WakeAt(at) => self.wake_at = at,
                Wish::Commit => panic!("it never wishes for one"),
                Wish::StartWriteback { file, bytes_max } => {
                    self.written.push((file, bytes_max));
                    self.write(AccountId::ROOT, file, bytes_max, false);
                }
            }
        }
        released
    }

    /// Goes on from wake to wake until a call is released.
    fn until_released(&mut self) -> Vec<CallId> {
        loop {
            let released = self.settle();
            if !released.is_empty() {
                return released;
            }
            assert!(self.wake_at < Time::MAX, "somebody is held, and nobody says until when");
            self.now = self.wake_at;
        }
    }

    fn finish(&mut self, call: &Call) {
        let bytes = self.scheduler.files.ledger().file_bytes(call.file);
        self.write(call.account, call.file, bytes, true);
        self.scheduler.call_returned(self.now, call);
    }
}

/// Promise: split-dear-fsync.
#[test]
fn a_dear_fsync_waits_until_little_is_left() {
    let mut host = Host::new(Writeback::Own);
    host.scatter(B, TABLE, 1000);
    let (call, decision) = host.fsync(B, TABLE);
    assert_eq!(decision, CallDecision::Hold);
    let started = host.now;
    assert_eq!(host.until_released(), [call.id]);
    let (left, file) = (host.scheduler.files.time_of(TABLE), TABLE);
    assert!(left <= A_DEADLINE, "A would wait for {left} for what is left");
    assert!(host.written.iter().all(|&(of, _)| of == file) && host.written.len() > 10, "{:?}", host.written);
    let took = host.now.since(started).as_secs_f64();
    assert!((1.0..10.0).contains(&took), "a thousand pages at 115 a second, a part of them in each slice: {took} s");
}

/// A host with a drive without a head, with commits of 1.9 ms; A was promised so many milliseconds.
fn host_without_a_head(milliseconds: u64) -> Host {
    let profile = DeviceProfile { is_rotational: false, worst_case_runs_per_second: 6400.0, ..device() };
    let mut scheduler = SplitDeadline::new(&profile, Writeback::Own);
    scheduler.commit = MeanDeviation::new(1.9e6, 0.0);
    let fsync = Some(Span::from_millis(milliseconds));
    scheduler.promised.promise_account(A, Deadlines { fsync, ..Deadlines::default() });
    Host { scheduler, ..Host::new(Writeback::Own) }
}

/// A drive that writes five pages in the time that A can wait, and takes as long as a commit to flush them. Planted
/// break: only what the data takes counts.
#[test]
fn a_drive_without_a_head_has_a_page_left_where_others_cannot_wait_for_a_commit() {
    for (deadline, decision_at_once) in [(3, CallDecision::Hold), (100, CallDecision::Admit)] {
        let mut host = host_without_a_head(deadline);
        host.scatter(B, TABLE, 5);
        let (needs, page_time) = (host.scheduler.files.time_of(TABLE), host.scheduler.page_time);
        assert!(needs > page_time && needs < Span::from_micros(1100), "{needs}");
        let (call, decision) = host.fsync(B, TABLE);
        assert_eq!(decision, decision_at_once, "{deadline} ms");
        if decision == CallDecision::Hold {
            assert_eq!(host.until_released(), [call.id]);
            assert!(host.scheduler.files.time_of(TABLE) <= page_time);
        }
    }
}

/// Late calls are one of a hundred at the most. Planted breaks: every one may go; none of A's counts; there is no
/// second.
#[test]
fn one_that_makes_others_late_goes_after_so_many_that_were_not_or_after_a_second() {
    let mut host = host_without_a_head(3);
    let dear = |host: &mut Host| {
        host.scatter(B, TABLE, 5);
        host.fsync(B, TABLE).0
    };
    let first = dear(&mut host);
    assert_eq!(host.until_released(), [first.id]);
    host.finish(&first);
    let started = host.now;
    let second = dear(&mut host);
    assert_eq!(host.until_released(), [second.id], "nobody else is there");
    let apart = host.now.since(started);
    assert!(apart > Span::from_millis(990) && apart <= Span::from_secs(1), "{apart}");
    host.finish(&second);
    let third = dear(&mut host);
    let mut kept = 0;
    while !host.settle().contains(&third.id) {
        host.dirty(A, LOG, kept);
        let (call, decision) = host.fsync(A, LOG);
        assert_eq!(decision, CallDecision::Admit, "A waits for nobody");
        host.now += Span::from_millis(2);
        host.finish(&call);
        kept += 1;
    }
    assert!((200..300).contains(&kept), "two of {kept} may be late");
    assert_eq!(host.scheduler.files.time_of(TABLE), Span::ZERO, "what is left is written meanwhile");
}

#[test]
fn a_file_with_little_to_write_goes_on_at_once() {
    let mut host = Host::new(Writeback::Own);
    host.scatter(B, TABLE, 1000);
    host.fsync(B, TABLE);
    host.dirty(A, LOG, 0);
    assert_eq!(host.fsync(A, LOG).1, CallDecision::Admit);
    assert_eq!(host.fsync(B, FileId(30)).1, CallDecision::Admit, "nothing of this file is dirty");
}

#[test]
fn an_account_alone_waits_for_no_other() {
    let mut scheduler = SplitDeadline::new(&device(), Writeback::Own);
    let deadlines = Deadlines { fsync: Some(A_DEADLINE), ..Deadlines::default() };
    scheduler.promised.promise_account(A, deadlines);
    let mut host = Host { scheduler, ..Host::new(Writeback::Own) };
    host.scatter(A, LOG, 100);
    assert_eq!(host.fsync(A, LOG).1, CallDecision::Admit, "his own promise does not hold him back");
}

#[test]
fn fsyncs_go_on_by_deadline() {
    let mut host = Host::new(Writeback::Own);
    for (file, milliseconds) in [(1, 800), (2, 400), (3, 600), (4, 300)] {
        let fsync = Some(Span::from_millis(milliseconds));
        host.scheduler.file_promised(host.now, FileId(file), &Deadlines { fsync, ..Deadlines::default() });
        host.scatter(B, FileId(file), 3);
    }
    host.scheduler.commit = MeanDeviation::new(3e7, 0.0);
    let (first, decision) = host.fsync(B, FileId(4));
    assert_eq!(decision, CallDecision::Admit);
    host.scheduler.busy_until = host.now + Span::from_millis(300);
    let calls = [1, 2, 3].map(|file| host.fsync(B, FileId(file)));
    assert!(calls.iter().all(|(_, decision)| *decision == CallDecision::Hold), "{calls:?}");
    let mut order = Vec::new();
    host.finish(&first);
    for _ in 0..3 {
        host.scheduler.busy_until = host.now + Span::from_millis(700);
        let released = host.settle();
        order.extend(released.iter().map(|id| calls.iter().find(|(call, _)| call.id == *id).unwrap().0.file.0));
        released.iter().for_each(|id| host.finish(&calls.iter().find(|(call, _)| call.id == *id).unwrap().0.clone()));
    }
    assert_eq!(order, [2, 3, 1]);
}

#[test]
fn freed_pages_cost_nothing() {
    let mut host = Host::new(Writeback::Own);
    host.scatter(B, TABLE, 1000);
    let (call, _) = host.fsync(B, TABLE);
    let (causes, length) = (CauseSet::of(B), 1000 * PAGE_BYTES);
    let event = PageEvent { file: TABLE, offset: 0, length, causes: causes.clone(), previous: causes };
    host.scheduler.pages_freed(host.now, &event);
    assert_eq!(host.settle(), [call.id]);
    assert_eq!(host.scheduler.files.total_time(), Span::ZERO);
}

/// Promise: split-dear-fsync.
#[test]
fn a_slice_leaves_the_others_their_time() {
    let mut host = Host::new(Writeback::Own);
    host.scheduler.commit = MeanDeviation::new(4e7, 0.0);
    host.scatter(B, TABLE, 1000);
    let whole = host.scheduler.files.time_of(TABLE);
    host.fsync(B, TABLE);
    host.dirty(A, LOG, 0);
    let (call, _) = host.fsync(A, LOG);
    host.now += Span::from_millis(30);
    host.settle();
    let bytes = host.written.iter().map(|&(_, bytes)| bytes).sum::<u64>();
    let takes_ms = whole.as_millis_f64() * bytes as f64 / (1000 * PAGE_BYTES) as f64;
    assert!((1.0..=30.0).contains(&takes_ms), "30 of 100 ms are over, 40 are the commit's: {takes_ms} ms");
    host.now += Span::from_millis(35);
    host.settle();
    host.now += Span::from_millis(10);
    let before = host.written.len();
    host.settle();
    assert_eq!(host.written.len(), before, "nothing more until A is done");
    host.finish(&call);
    host.now += Span::from_millis(100);
    host.settle();
    assert_eq!(host.written.len(), before + 1);
}

/// Promise: split-dear-fsync.
#[test]
fn no_call_is_held_longer_than_the_bound() {
    let mut host = Host::new(Writeback::Own);
    host.scheduler.commit = MeanDeviation::new(2e8, 0.0);
    host.scatter(B, TABLE, 100_000);
    let (_, decision) = host.fsync(B, TABLE);
    assert_eq!(decision, CallDecision::Hold);
    host.dirty(A, LOG, 0);
    host.fsync(A, LOG);
    let started = host.now;
    assert_eq!(host.until_released().len(), 1);
    let held = host.now.since(started);
    assert_eq!(held, HELD_MAX);
    let pages = host.written.iter().map(|&(_, bytes)| bytes / PAGE_BYTES).sum::<u64>();
    assert!(pages > 300, "a tenth of the device is for who waits: {pages} pages in {held}");
}

#[test]
fn old_pages_are_written_without_a_request() {
    let mut host = Host::new(Writeback::Own);
    host.scatter(A, LOG, 10);
    host.now += Span::from_secs(10);
    host.scatter(B, TABLE, 10);
    let mut ends = [Time::ZERO; 2];
    while host.scheduler.files.ledger().total_bytes() > 0 {
        host.settle();
        for (end, file) in ends.iter_mut().zip([LOG, TABLE]) {
            if *end == Time::ZERO && host.scheduler.files.ledger().file_bytes(file) == 0 {
                *end = host.now;
            }
        }
        assert!(host.wake_at < Time::MAX);
        host.now = host.wake_at;
    }
    let seconds = ends.map(|end| end.since(Time::ZERO + Span::from_secs(1)).as_secs_f64());
    assert!((30.0..31.0).contains(&seconds[0]) && (40.0..41.0).contains(&seconds[1]), "{seconds:?}");
}

#[test]
fn dirty_memory_is_bounded() {
    let mut host = Host::new(Writeback::Own);
    host.scheduler.dirty_memory_limited(host.now, 1000 * PAGE_BYTES);
    host.scatter(B, TABLE, 450);
    host.settle();
    assert_eq!(host.written, [], "below the background part");
    host.scatter(B, TABLE, 300);
    assert_eq!(host.call(B, CallKind::Write, TABLE).1, CallDecision::Hold);
    assert_eq!(host.call(A, CallKind::Write, LOG).1, CallDecision::Admit, "nothing of it is A's");
    assert_eq!(host.until_released().len(), 1);
    assert!(host.scheduler.files.ledger().total_bytes() < 700 * PAGE_BYTES);
}

#[test]
fn writes_wait_while_the_flusher_would_have_too_much() {
    let mut host = Host::new(Writeback::Flusher);
    assert!(!host.scheduler.owns_writeback());
    let mut pages = 0;
    while host.call(B, CallKind::Write, TABLE).1 == CallDecision::Admit {
        host.dirty(B, TABLE, pages * 7919);
        pages += 1;
    }
    let takes = host.scheduler.files.total_time();
    assert!((1..100).contains(&pages), "{pages} pages");
    assert!(takes <= A_DEADLINE, "A waits for {takes} for what the flusher may have");
    assert_eq!(host.until_released().len(), 1, "the file is written, and the write goes on");
}

#[test]
fn books_that_are_wrong_are_put_right() {
    let mut host = Host::new(Writeback::Own);
    host.scatter(B, TABLE, 1000);
    let (call, _) = host.fsync(B, TABLE);
    let started = host.now;
    loop {
        let (mut released, mut wishes) = (Vec::new(), Vec::new());
        host.scheduler.released_calls(host.now, &mut released);
        if released == [call.id] {
            break;
        }
        host.scheduler.wishes(host.now, &mut wishes);
        let wake = wishes.iter().find_map(|wish| if let Wish::WakeAt(at) = wish { Some(*at) } else { None });
        host.now = wake.expect("it looks again");
    }
    assert!(host.now.since(started) < Span::from_secs(1), "nothing of the file was dirty");
}

/// Promise: split-headless-commit.
#[test]
fn a_drive_without_a_head_writes_nothing_unawaited_during_a_commit() {
    let mut scheduler = SplitDeadline::new(&DeviceProfile { is_rotational: false, ..device() }, Writeback::Own);
    let mut now = Time::ZERO + Span::from_secs(1);
    let fsync = Fsync { promise: DeadlineHolder::Default, since: now, data: Span::ZERO };
    let place = scheduler.fsyncs.insert(CallId(0), Line::UnderWay, LOG, [now + Span::from_millis(3); 2], fsync);
    let write = |id, now| BlockRequest::new(RequestId(id), B, Operation::Write, id << 20, PAGE_BYTES as u32, now);
    let before = write(0, now);
    scheduler.request_added(now, before.clone());
    now += Span::from_micros(100);
    let journal = BlockRequest { class: Class::JOURNAL, is_sync: true, ..write(1, now) };
    scheduler.request_added(now, journal.clone());
    let mut next = || scheduler.next(now);
    assert_eq!([next(), next()], [Dispatch::Now(journal), Dispatch::Now(before)], "the commit may wait for it");
    now += Span::from_micros(100);
    let [held, late] = [2, 3].map(|id| write(id, now));
    scheduler.request_added(now, held.clone());
    assert_eq!(scheduler.next(now), Dispatch::NotBefore(now + HELD_FOR_COMMIT_MAX), "the flush would wait for it");
    scheduler.request_added(now, late.clone());
    assert_eq!(scheduler.next(now + HELD_FOR_COMMIT_MAX), Dispatch::Now(held), "not for ever");
    scheduler.fsyncs.remove(place);
    assert_eq!(scheduler.next(now), Dispatch::Now(late), "the fsync is done");
}

/// A request of the obvious way: place, arrival, deadline.
type Entry = (u64, Time, Time);

/// The block level, the obvious way: lists (awaited, read, unawaited) that are looked through each time.
#[derive(Default)]
struct Obvious {
    queued: [Vec<Entry>; 3],
    /// Of each, those that are of the sweep under way, and when the first of these came.
    sweeps: [(Vec<u64>, Time); 3],
    /// The journal is being written since then, on a drive without a head.
    commit: Option<Time>,
}

impl Obvious {
    fn since(&self, kind: usize) -> Option<Time> {
        let first = self.queued[kind].iter().map(|one| one.1).min()?;
        Some(if self.sweeps[kind].0.is_empty() { first } else { self.sweeps[kind].1 })
    }

    fn next(&mut self, now: Time, fsync_deadline: Option<Time>) -> Option<u64> {
        let awaited = self.since(0).map(|since| (since + WRITE_EXPIRE).min(fsync_deadline.unwrap_or(Time::MAX)));
        let read = self.queued[1].iter().map(|one| one.2).min();
        let came_later = |since| self.commit.is_some_and(|commit| since > commit);
        let is_held = |since| fsync_deadline.is_some() && came_later(since) && now < since + HELD_FOR_COMMIT_MAX;
        let unawaited = self.since(2).filter(|&since| !is_held(since)).map(|since| since + WRITE_EXPIRE);
        let kinds = [awaited, read, unawaited].into_iter().enumerate();
        let (_, kind) = kinds.filter_map(|(kind, at)| Some((at?, kind))).min()?;
        let expired = self.queued[kind].iter().filter(|one| kind == 1 && one.2 <= now);
        let expired = expired.min_by_key(|one| one.2).map(|one| one.0);
        if self.sweeps[kind].0.is_empty() {
            self.sweeps[kind].1 = self.since(kind)?;
            self.sweeps[kind].0 = self.queued[kind].iter().map(|one| one.0).collect();
        }
        let place = expired.or(self.sweeps[kind].0.iter().copied().min())?;
        self.queued[kind].retain(|one| one.0 != place);
        self.sweeps[kind].0.retain(|&other| other != place);
        Some(place)
    }
}

proptest! {
    #[test]
    fn decides_as_the_obvious_way_does(
        steps in proptest::collection::vec((0..5u8, 0..1u64 << 20, 1..400u64, proptest::option::of(1..300u64)), 0..200),
        has_head in any::<bool>(), commit in proptest::option::of(0..20_000u64),
    ) {
        let device = DeviceProfile { outstanding_max: u32::MAX, is_rotational: has_head, ..device() };
        let mut scheduler = SplitDeadline::new(&device, Writeback::Own);
        let commit = commit.filter(|_| !has_head).map(|milliseconds| Time::ZERO + Span::from_millis(milliseconds));
        scheduler.committing_since = commit;
        let (mut obvious, mut now) = (Obvious { commit, ..Obvious::default() }, Time::ZERO);
        for (number, (what, place, milliseconds, fsync)) in steps.into_iter().enumerate() {
            // No two are equal in anything that decides.
            now += Span::from_millis(milliseconds) + Span::from_nanos(number as u64);
            let offset = place << 8 | number as u64;
            if let kind @ 0..3 = usize::from(what) {
                let operation = if kind == 1 { Operation::Read } else { Operation::Write };
                let id = RequestId(number as u64);
                let request = BlockRequest::new(id, A, operation, offset, PAGE_BYTES as u32, now);
                let read = Span::from_millis(milliseconds * 3) + Span::from_nanos(number as u64);
                scheduler.promised.promise_account(A, Deadlines { read: Some(read), ..Deadlines::default() });
                scheduler.request_added(now, BlockRequest { is_sync: kind < 2, ..request });
                let deadline = now + read;
                obvious.queued[kind].push((offset, now, deadline));
            } else {
                let fsync_deadline = fsync.map(|fsync| now + Span::from_millis(fsync));
                let under_way = fsync_deadline.map(|deadline| {
                    let fsync = Fsync { promise: DeadlineHolder::Default, since: now, data: Span::ZERO };
                    scheduler.fsyncs.insert(CallId(0), Line::UnderWay, LOG, [deadline, Time::MAX], fsync)
                });
                let dispatched = match scheduler.next(now) {
                    Dispatch::Now(request) => Some(request.offset),
                    _ => None,
                };
                under_way.into_iter().for_each(|place| scheduler.fsyncs.remove(place));
                prop_assert_eq!(dispatched, obvious.next(now, fsync_deadline));
            }
        }
    }
}
