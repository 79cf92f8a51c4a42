//! What an executor says of itself, against requests of which everything is known; how many threads a request wakes.
//!
//! Times are between bounds that the test measures on the same clock, so a processor that is taken away moves the
//! bounds too.

mod threads_support;

use plimsoll_core::{Span, Time};
use plimsoll_executor::{Figures, Kind, Policy, Queue, QueueFigures, Rules, Slicing, checkpoint, give_way};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use threads_support::{Go, KINDS, Request, all_done, blocker, executor, pause, ruled, wait_until};

/// CLOCK_MONOTONIC, as the threads have it.
fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn of(figures: &Figures, queue: Queue) -> QueueFigures {
    figures.queues[queue.index()]
}

fn assert_waited(waited: Span, least: Span, most: Span) {
    assert!(least <= waited && waited <= most, "{waited}, from {least} to {most}");
}

/// One thread is kept; four reads come, and a write and maintenance a while later; then it is let go. Planted breaks:
/// the longest is the last; what a request had waited is counted for another queue, or not at all.
/// Promise: executor-figures.
#[test]
fn a_waiting_request_is_counted_where_and_for_as_long_as_it_waits() {
    let executor = executor(1, 16);
    let (go, (begun, has_begun)) = (Go(Arc::default()), channel());
    let start = now();
    executor.spawn(Kind::Other, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    let before = executor.figures();
    let nothing = || -> Request { Box::pin(async {}) };
    let reads_come = now();
    (0..4).for_each(|_| executor.spawn(Kind::Read, None, nothing()).unwrap());
    let reads_are_there = now();
    (0..20).for_each(|_| pause());
    let others_come = now();
    executor.spawn(Kind::Write, None, nothing()).unwrap();
    executor.spawn(Kind::Maintenance, None, nothing()).unwrap();
    let others_are_there = now();
    (0..5).for_each(|_| pause());
    let waiting = executor.figures();
    assert_eq!((waiting.queues.map(|queue| queue.depth), waiting.alive), ([1, 4, 1], 7));
    let running_since = waiting.threads[0].running_since.expect("the blocker is run");
    assert!(start <= running_since && running_since <= reads_come && reads_come <= waiting.at);
    let goes = now();
    drop(go);
    let after = all_done(&executor);
    let end = now();
    let least = [others_are_there, reads_are_there, others_are_there].map(|there| goes.since(there));
    let most = [others_come, reads_come, others_come].map(|come| end.since(come));
    for (queue, count) in [(Queue::High, 1), (Queue::Low, 4), (Queue::Maintenance, 1)] {
        let (figures, was, at) = (of(&after, queue), of(&before, queue), queue.index());
        assert_eq!((figures.depth, figures.served - was.served), (0, count), "{queue:?}");
        let waited = Span::from_nanos(figures.waited.as_nanos() - was.waited.as_nanos());
        assert_waited(waited, least[at] * count, most[at] * count);
        // The blocker has waited, too.
        assert_waited(figures.waited_max, least[at], most[at].max(reads_come.since(start)));
    }
    let thread = after.threads[0];
    assert_eq!(
        (thread.done, thread.runs, thread.suspended, thread.preempted, thread.running_since),
        (7, 7, 0, 0, None)
    );
    assert_waited(thread.busy, goes.since(reads_come), end.since(start));
}

/// One thread is kept by maintenance, then by a read, and another read waits for both. Planted breaks: the client
/// counts as maintenance; of maintenance that had begun before the read came, all counts.
#[test]
fn what_a_client_waits_behind_maintenance_is_counted_apart() {
    let executor = executor(1, 16);
    let (go, (begun, has_begun)) = (Go(Arc::default()), channel());
    executor.spawn(Kind::Maintenance, None, blocker(&go, begun.clone())).unwrap();
    has_begun.recv().unwrap();
    (0..10).for_each(|_| pause());
    let (go_of_client, reads_come) = (Go(Arc::default()), now());
    executor.spawn(Kind::Read, None, blocker(&go_of_client, begun)).unwrap();
    let blocker_is_there = now();
    executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
    let are_there = now();
    (0..10).for_each(|_| pause());
    let maintenance_goes = now();
    drop(go);
    has_begun.recv().unwrap();
    let client_began = now();
    (0..10).for_each(|_| pause());
    let client_goes = now();
    drop(go_of_client);
    let figures = all_done(&executor);
    // Both reads wait for maintenance, the second one for the first, too.
    let (low, end) = (of(&figures, Queue::Low), now());
    let least = maintenance_goes.since(blocker_is_there) + maintenance_goes.since(are_there);
    assert_waited(low.behind_maintenance, least, client_began.since(reads_come) * 2);
    let least = maintenance_goes.since(blocker_is_there) + client_goes.since(are_there);
    assert_waited(low.waited, least, client_began.since(reads_come) + end.since(reads_come));
    assert_eq!(of(&figures, Queue::Maintenance).behind_maintenance, Span::ZERO);
}

/// A thread with slices that are over as soon as they begin. A checkpoint always stops, and is so counted; a request
/// that gives way has spent its slice, too.
/// Planted breaks: what was preempted is suspended; the time of runs is not counted.
/// Promise: executor-figures.
#[test]
fn how_runs_end_is_counted_and_how_long_they_took() {
    const STOPS: u64 = 5;
    const WAKES: u64 = 3;
    let slicing = Slicing::ByDepth { base: Span::ZERO, cap: Span::ZERO, factors: [1.0; 3] };
    let executor = ruled(Rules::Fixed(Policy { slicing, ..Policy::COMBO }), 1, 4);
    let ran: Arc<Mutex<Span>> = Arc::default();
    let spin = |ran: Arc<Mutex<Span>>| {
        let from = now();
        while now().since(from) < Span::from_millis(2) {}
        *ran.lock().unwrap() += now().since(from);
    };
    let of_stops = ran.clone();
    let stops = async move {
        for _ in 0..STOPS {
            spin(of_stops.clone());
            checkpoint().await;
        }
    };
    let (sender, wakers): (Sender<Waker>, Receiver<Waker>) = channel();
    let (of_wakes, mut left) = (ran.clone(), WAKES);
    let wakes = std::future::poll_fn(move |context| {
        spin(of_wakes.clone());
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        sender.send(context.waker().clone()).unwrap();
        Poll::Pending
    });
    let start = now();
    executor.spawn(Kind::Read, None, Box::pin(stops)).unwrap();
    executor.spawn(Kind::Write, None, Box::pin(wakes)).unwrap();
    for number in 1..=WAKES {
        let waker = wakers.recv().unwrap();
        wait_until(&executor, "a suspension", |figures| figures.threads[0].suspended == number);
        waker.wake();
    }
    let figures = all_done(&executor);
    let (end, thread) = (now(), figures.threads[0]);
    assert_eq!((thread.preempted, thread.gave_way, thread.done, thread.panicked), (STOPS, 0, 2, 0), "{thread:?}");
    assert_eq!((thread.suspended, thread.resumed), (WAKES, WAKES), "{thread:?}");
    assert_eq!(thread.runs, STOPS + WAKES + 2);
    assert_waited(thread.busy, *ran.lock().unwrap(), end.since(start));
    // Each run is a turn of its own.
    assert_eq!(thread.turns, thread.runs);
}

/// In slices that are never over. Planted break: it counts as preempted.
/// Promise: executor-figures.
#[test]
fn a_request_that_gives_way_before_its_slice_is_spent_is_counted_as_that() {
    const TIMES: u64 = 7;
    let slicing = Slicing::ByDepth { base: Span::from_secs(3600), cap: Span::ZERO, factors: [1.0; 3] };
    let executor = ruled(Rules::Fixed(Policy { slicing, ..Policy::COMBO }), 1, 4);
    let request = async {
        for _ in 0..TIMES {
            give_way().await;
            checkpoint().await;
        }
    };
    executor.spawn(Kind::Write, None, Box::pin(request)).unwrap();
    let thread = all_done(&executor).threads[0];
    assert_eq!((thread.gave_way, thread.preempted, thread.runs), (TIMES, 0, TIMES + 1));
}

const MANY: usize = 8;

/// A request, new or woken, wakes at most one of the threads if all sleep. Planted break: all that sleep are woken.
/// Promise: executor-wakes.
#[test]
fn a_new_request_wakes_one_thread_at_the_most() {
    let executor = executor(MANY, 16);
    let all_sleep = || wait_until(&executor, "their sleep", |figures| figures.asleep == MANY);
    let mut woken = 0;
    for round in 0..100 {
        let before = all_sleep().woken;
        if round % 2 == 0 {
            executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
        } else {
            let (sender, wakers) = channel();
            let mut is_first = true;
            let request = std::future::poll_fn(move |context| match std::mem::take(&mut is_first) {
                true => {
                    sender.send(context.waker().clone()).unwrap();
                    Poll::Pending
                }
                false => Poll::Ready(()),
            });
            executor.spawn(Kind::Write, None, Box::pin(request)).unwrap();
            let waker: Waker = wakers.recv().unwrap();
            let slept = all_sleep().woken;
            assert!(slept <= before + 1, "{slept} after {before}: who is new");
            waker.wake();
        }
        let after = all_done(&executor).woken;
        assert!(after <= before + 1 + round % 2, "round {round}: {after} after {before}");
        woken += after - before;
    }
    assert!(woken > 0, "somebody was asleep");
}

/// No other request waits: the thread that has run it takes it again. Broken on purpose and seen red: it wakes another
/// one each time.
/// Promise: executor-wakes.
#[test]
fn a_request_that_gives_way_and_waits_alone_wakes_no_thread() {
    let executor = executor(MANY, 16);
    for kind in [Kind::Maintenance, Kind::Write] {
        let before = wait_until(&executor, "their sleep", |figures| figures.asleep == MANY).woken;
        let request = async {
            for _ in 0..1000 {
                give_way().await;
            }
        };
        executor.spawn(kind, None, Box::pin(request)).unwrap();
        let woken = all_done(&executor).woken - before;
        assert!(woken <= 1, "{woken}, for its first run at the most");
    }
}

/// Two requests give way again and again, on two threads that both sleep at first and now and then: none is forgotten.
/// Promise: executor-wakes.
#[test]
fn requests_that_give_way_beside_each_other_are_run_to_their_ends() {
    let executor = executor(2, 16);
    for round in 0..300_u64 {
        for number in 0..2 + round % 2 {
            let request = async move {
                for _ in 0..20 + number {
                    give_way().await;
                }
            };
            executor.spawn(KINDS[(round + number) as usize % KINDS.len()], None, Box::pin(request)).unwrap();
        }
        if round % 3 == 0 {
            all_done(&executor);
        }
        wait_until(&executor, "room", |figures| figures.alive < 10);
    }
    all_done(&executor);
}

/// As many requests as threads come at once, and each keeps its thread: all are served at the same time. Wakes are at
/// most one for each request and one for each thread that leaves one behind. Planted break: a thread that finds work
/// wakes no other.
/// Promise: executor-wakes.
#[test]
fn a_burst_wakes_as_many_threads_as_it_needs() {
    let executor = executor(MANY, 16);
    for _ in 0..20 {
        let before = wait_until(&executor, "their sleep", |figures| figures.asleep == MANY).woken;
        let (go, (begun, has_begun)) = (Go(Arc::default()), channel());
        for _ in 0..MANY {
            executor.spawn(Kind::Read, None, blocker(&go, begun.clone())).unwrap();
        }
        let patience = std::time::Duration::from_secs(120);
        (0..MANY).for_each(|_| has_begun.recv_timeout(patience).expect("a thread for each"));
        let figures = executor.figures();
        assert_eq!(figures.asleep, 0);
        let woken = figures.woken - before;
        assert!(woken <= 2 * MANY as u64, "{woken}");
        drop(go);
        all_done(&executor);
    }
}
