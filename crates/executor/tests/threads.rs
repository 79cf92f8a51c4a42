//! The service threads: every request is run to its end, once, whatever wakes it when; and what happens when one is
//! stuck, panics, or too many come.
//!
//! Planted breaks that turned a test red stand beside the tests.

mod threads_support;

use plimsoll_core::Time;
use plimsoll_executor::{
    Arrival, Dispatching, Executor, Figures, Kind, Policy, Queue, Rules, Selector, checkpoint, give_way,
};
use proptest::prelude::*;
use std::future::Future;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use threads_support::{Go, KINDS, Request, all_done, blocker, executor, pause, ruled, wait_until};

/// Something that requests wait for, given out piece by piece by other threads.
#[derive(Default)]
struct Tokens {
    count: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Tokens {
    fn give(&self) {
        self.count.fetch_add(1, SeqCst);
        if let Some(waker) = self.waker.lock().unwrap().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn take(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        std::future::poll_fn(move |context: &mut Context<'_>| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            let took = self.count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
            if took.is_ok() { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

/// Planted break: a wake while the request is suspended does not queue it.
/// Promise: executor-ends.
#[test]
fn every_request_ends_however_often_and_whenever_it_is_woken() {
    const REQUESTS: usize = 400;
    const TOKENS: usize = 20;
    let executor = executor(3, REQUESTS);
    let ended = Arc::new(AtomicUsize::new(0));
    let tokens: Vec<Arc<Tokens>> = (0..REQUESTS).map(|_| Arc::default()).collect();
    for (number, tokens) in tokens.iter().enumerate() {
        let (tokens, ended) = (tokens.clone(), ended.clone());
        let request = async move {
            for _ in 0..TOKENS {
                tokens.clone().take().await;
                checkpoint().await;
            }
            ended.fetch_add(1, SeqCst);
        };
        // Three threads at those with a deadline and at those without.
        let deadline = number.is_multiple_of(2).then(|| Time::from_nanos(number as u64 * 17 % 30));
        executor.spawn(KINDS[number % KINDS.len()], deadline, Box::pin(request)).unwrap();
    }
    std::thread::scope(|scope| {
        for giver in 0..2 {
            let tokens = &tokens;
            scope.spawn(move || {
                for round in 0..TOKENS / 2 {
                    for tokens in tokens.iter().skip((giver + round) % 3).chain(tokens.iter().take((giver + round) % 3))
                    {
                        tokens.give();
                    }
                }
            });
        }
    });
    let figures = all_done(&executor);
    assert_eq!(ended.load(SeqCst), REQUESTS);
    let done: u64 = figures.threads.iter().map(|thread| thread.done).sum();
    assert_eq!(done, REQUESTS as u64);
    let runs: u64 = figures.threads.iter().map(|thread| thread.runs).sum();
    let served: u64 = figures.queues.iter().map(|queue| queue.served).sum();
    assert_eq!(runs, served, "whatever was taken out of a queue was run");
}

/// Planted break: a wake while the request runs is forgotten.
/// Promise: executor-ends.
#[test]
fn a_request_that_is_woken_while_it_runs_is_run_again() {
    let executor = executor(1, 1);
    let mut runs = 0;
    let request = std::future::poll_fn(move |context| {
        runs += 1;
        context.waker().wake_by_ref();
        if runs == 5 { Poll::Ready(()) } else { Poll::Pending }
    });
    executor.spawn(Kind::Read, None, Box::pin(request)).unwrap();
    let thread = all_done(&executor).threads[0];
    assert_eq!((thread.runs, thread.suspended, thread.resumed), (5, 4, 4));
}

/// Planted break: a new request wakes no thread.
#[test]
fn a_request_to_sleeping_threads_is_served() {
    let executor = executor(2, 4);
    for round in 1..=3_000_u64 {
        executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
        let done = |figures: &Figures| figures.threads.iter().map(|thread| thread.done).sum::<u64>();
        let mut looks = 0_u64;
        while done(&executor.figures()) < round {
            looks += 1;
            if looks > 1_000_000 {
                pause();
            }
            assert!(looks < 1_060_000, "request {round} sleeps: {:?}", executor.figures());
        }
    }
}

/// Planted break: the requests alive are counted last, and may have ended since the others were.
#[test]
fn a_dead_process_is_done() {
    let executor = executor(2, 4);
    for spawned in 1..=50_000_u64 {
        executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
        loop {
            let figures = executor.figures();
            let done: u64 = figures.threads.iter().map(|thread| thread.done).sum();
            assert!(done + figures.alive as u64 >= spawned, "of {spawned}: {figures:?}");
            if figures.alive == 0 {
                break;
            }
        }
    }
}

/// The first goes on until the second has run; there is one thread. Planted break: checkpoints that always go on.
#[test]
fn a_spent_slice_lets_others_go_first() {
    let executor = executor(1, 2);
    let has_run = Arc::new(AtomicBool::new(false));
    let seen = has_run.clone();
    let long = async move {
        // As many as take half a minute, so that it ends at all where it is broken.
        for _ in 0..1_000_000_000_u64 {
            checkpoint().await;
            if seen.load(SeqCst) {
                break;
            }
        }
    };
    executor.spawn(Kind::Read, None, Box::pin(long)).unwrap();
    wait_until(&executor, "its begin", |figures| figures.threads[0].turns > 0);
    executor.spawn(Kind::Read, None, Box::pin(async move { has_run.store(true, SeqCst) })).unwrap();
    let figures = all_done(&executor);
    assert!(figures.threads[0].preempted > 0, "{figures:?}");
}

/// Outcome: what is beyond the bound is given back, nothing of what was taken is lost. Planted break: no bound.
/// Promise: executor-ends.
#[test]
fn a_hundred_thousand_wait_and_one_more_is_given_back() {
    const REQUESTS: usize = 100_000;
    let executor = executor(1, REQUESTS + 1);
    let (go, ended) = (Go(Arc::default()), Arc::new(AtomicUsize::new(0)));
    let (begun, has_begun) = channel();
    executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    for number in 0..REQUESTS {
        let ended = ended.clone();
        let request = async move {
            ended.fetch_add(1, SeqCst);
        };
        executor.spawn(KINDS[number % KINDS.len()], None, Box::pin(request)).unwrap();
    }
    let depths = executor.figures().queues.map(|queue| queue.depth);
    assert_eq!(depths, [25_000, 50_000, 25_000], "writes are high, maintenance is apart");
    let refused = executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap_err();
    assert_eq!(refused.to_string(), "100001 requests are under way, more are not taken");
    drop(go);
    all_done(&executor);
    assert_eq!(ended.load(SeqCst), REQUESTS);
    // Memory of those that ended is there for others.
    executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
    all_done(&executor);
}

/// Outcome: it keeps its thread, the figures say since when, all others go on. Planted break: `running_since` is not
/// set.
/// Promise: executor-ends.
#[test]
fn a_stuck_request_keeps_its_thread_and_no_other() {
    let executor = executor(2, 1_000);
    let go = Go(Arc::default());
    let (begun, has_begun) = channel();
    executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    for number in 0..500 {
        executor.spawn(KINDS[number % KINDS.len()], None, Box::pin(async {})).unwrap();
    }
    let figures = wait_until(&executor, "the others", |figures| figures.alive == 1);
    assert_eq!(figures.threads.iter().filter(|thread| thread.running_since.is_some()).count(), 1, "{figures:?}");
    drop(go);
    let figures = all_done(&executor);
    assert!(figures.threads.iter().all(|thread| thread.done > 0 || thread.turns == 0));
}

/// Outcome: it is done and counted. Planted break: the thread ends with it.
/// Promise: executor-ends.
#[test]
fn a_request_that_panics_ends_alone() {
    let executor = executor(1, 8);
    executor.spawn(Kind::Read, None, Box::pin(async { panic!("on purpose") })).unwrap();
    executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
    let figures = all_done(&executor);
    assert_eq!((figures.threads[0].panicked, figures.threads[0].done), (1, 2));
}

/// What throws when it is dropped: it, and what it throws.
struct Thorn;

impl Drop for Thorn {
    fn drop(&mut self) {
        // Else this is the end of the process, and not of a thread.
        if !std::thread::panicking() {
            panic!("on purpose, when it is dropped");
        }
    }
}

/// It has a thorn until it is dropped, also when it was run to its end.
fn thorny() -> Request {
    let thorn = Thorn;
    Box::pin(std::future::poll_fn(move |_| {
        let _ = &thorn;
        Poll::Ready(())
    }))
}

/// Outcome: it is done and counted, the thread goes on, and its place is free. Planted breaks: it is dropped where
/// nothing catches what it throws, when it is done, and when it is given up.
/// Promise: executor-ends.
#[test]
fn a_request_that_panics_when_it_is_dropped_ends_alone() {
    let executor = executor(1, 2);
    executor.spawn(Kind::Read, None, thorny()).unwrap();
    executor.spawn(Kind::Read, None, Box::pin(async { std::panic::panic_any(Thorn) })).unwrap();
    let figures = all_done(&executor);
    assert_eq!((figures.threads[0].panicked, figures.threads[0].done), (2, 2));
    executor.spawn(Kind::Read, None, Box::pin(async {})).unwrap();
    assert_eq!(all_done(&executor).threads[0].done, 3);
    let (go, (begun, has_begun)) = (Go(Arc::default()), channel());
    executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    executor.spawn(Kind::Maintenance, None, thorny()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(executor));
        // Sooner, it would be run, which is as well.
        pause();
        drop(go);
    });
}

/// Outcome: it is dropped, whatever it throws then, and its place is free. Planted break: it keeps its place.
#[test]
fn a_request_without_a_waker_is_over() {
    let executor = executor(1, 1);
    let (told, wakers) = channel();
    for round in 1..=3 {
        let (told, thorn) = (told.clone(), Thorn);
        let request = std::future::poll_fn(move |context| {
            let _ = (&thorn, told.send(context.waker().clone()));
            Poll::Pending
        });
        executor.spawn(Kind::Read, None, Box::pin(request)).unwrap();
        let waker = wakers.recv().unwrap();
        wait_until(&executor, "its suspension", |figures| figures.threads[0].suspended == round);
        assert_eq!(executor.figures().alive, 1);
        drop(waker);
        all_done(&executor);
    }
}

/// Planted break: what waits is kept.
#[test]
fn what_is_not_done_is_dropped_with_the_executor() {
    struct Alive(Arc<AtomicU64>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let (alive, go) = (Arc::new(AtomicU64::new(0)), Go(Arc::default()));
    let executor = executor(1, 64);
    let (begun, has_begun) = channel();
    executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    for number in 0..50 {
        alive.fetch_add(1, SeqCst);
        let request = Alive(alive.clone());
        executor.spawn(KINDS[number % KINDS.len()], None, Box::pin(async move { drop(request) })).unwrap();
    }
    std::thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(executor));
        // It waits for the one that runs; sooner, the rest would be run, which is as well.
        pause();
        drop(go);
        dropped.join().unwrap();
    });
    assert_eq!(alive.load(SeqCst), 0);
}

/// Takes some ten times what a write takes that does nothing.
fn long_read() -> Request {
    Box::pin(async {
        let mut word = 1_u64;
        (0..40_000).for_each(|_| word = std::hint::black_box(word.rotate_left(5) ^ 0x9e37_79b9));
    })
}

/// Shows an adaptive executor reads that take long, and three short writes for each, until reads wait low; or says what
/// it saw.
fn show_long_reads(executor: &Executor<Request>) -> Result<(), Vec<[u64; 3]>> {
    const BATCHES: u32 = 30;
    let batch = |count: usize| {
        for _ in 0..count {
            executor.spawn(Kind::Read, None, long_read()).unwrap();
            for _ in 0..3 {
                executor.spawn(Kind::Write, None, Box::pin(async {})).unwrap();
            }
        }
        all_done(executor).queues.map(|queue| queue.served)
    };
    // Enough that every thread has chosen: each needs 4096 runs. A write on a thread that was without a processor for a
    // second has taken longer than all reads, and is forgotten after some thousand others.
    let (mut before, mut seen) = (batch(6000), Vec::new());
    let has_learned = (0..BATCHES).any(|_| {
        let after = batch(1000);
        seen.push(Queue::ALL.map(|queue| after[queue.index()] - before[queue.index()]));
        before = after;
        seen.last() == Some(&[3000, 1000, 0])
    });
    if has_learned { Ok(()) } else { Err(seen) }
}

/// A thread of theirs ends half as many reads as it ends requests. Planted breaks: what was run is not counted; what
/// was chosen is not shared.
/// Promise: executor-adaptive-queue.
#[test]
fn adaptive_threads_learn_which_requests_take_long() {
    for threads in [1, 2] {
        let executor = ruled(Rules::Adaptive, threads, 100_000);
        assert_eq!(show_long_reads(&executor), Ok(()), "{threads} threads");
    }
}

/// Only two reads wait, low; while the first is run a write comes. The draw after that run takes the write three
/// times of four. Planted break: the slice goes on, with the second read.
/// Promise: executor-adaptive-slice.
#[test]
fn a_slice_that_was_lent_to_the_low_queue_ends_when_a_request_comes_high() {
    const ROUNDS: usize = 40;
    let executor = Arc::new(ruled(Rules::Adaptive, 1, 100_000));
    assert_eq!(show_long_reads(&executor), Ok(()));
    let order = Arc::new(Mutex::new(Vec::new()));
    let write_was_second = (0..ROUNDS).filter(|_| {
        let go = Go(Arc::default());
        let (begun, has_begun) = channel();
        executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
        has_begun.recv().unwrap();
        let named = |name: &'static str| {
            let order = order.clone();
            async move { order.lock().unwrap().push(name) }
        };
        let (first, write, spawner) = (named("first"), named("write"), executor.clone());
        let first = async move {
            assert!(spawner.spawn(Kind::Write, None, Box::pin(write)).is_ok());
            first.await;
        };
        executor.spawn(Kind::Read, None, Box::pin(first)).unwrap();
        executor.spawn(Kind::Read, None, Box::pin(named("second"))).unwrap();
        drop(go);
        all_done(&executor);
        std::mem::take(&mut *order.lock().unwrap()) == ["first", "write", "second"]
    });
    let count = write_was_second.count();
    assert!(count > ROUNDS / 2, "{count} of {ROUNDS}");
}

/// Reads that each take many times what an unmeasured request is taken for, all waiting at once. Where only slices stop
/// them, a thread stops one read a turn at the most. Planted break: runs are stopped with the slice alone.
/// Promise: executor-adaptive-slice.
#[test]
fn adaptive_threads_stop_a_long_run_though_their_slice_goes_on() {
    // Fewer runs than it takes to learn how long these are.
    const READS: usize = 200;
    let executor = ruled(Rules::Adaptive, 1, READS + 1);
    let (go, (begun, has_begun)) = (Go(Arc::default()), channel());
    executor.spawn(Kind::Read, None, blocker(&go, begun)).unwrap();
    has_begun.recv().unwrap();
    for _ in 0..READS {
        let read = async {
            for _ in 0..50_000 {
                checkpoint().await;
            }
        };
        executor.spawn(Kind::Read, None, Box::pin(read)).unwrap();
    }
    drop(go);
    let thread = all_done(&executor).threads[0];
    assert!(thread.preempted > thread.turns, "{thread:?}");
}

/// A read comes while maintenance is run that gives way after each step, of which hundreds fit its slice. Planted
/// break: the slice goes on.
/// Promise: executor-maintenance, executor-maintenance-page.
#[test]
fn a_slice_of_maintenance_ends_when_a_client_comes() {
    let known: Arc<OnceLock<Weak<Executor<Request>>>> = Arc::default();
    let executor = Arc::new(executor(1, 10));
    known.set(Arc::downgrade(&executor)).unwrap();
    let (is_read, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (of_maintenance, counted) = (is_read.clone(), runs.clone());
    let maintenance = async move {
        let read = of_maintenance.clone();
        let read: Request = Box::pin(async move { read.store(true, SeqCst) });
        let executor = known.get().unwrap().upgrade().unwrap();
        assert!(executor.spawn(Kind::Read, None, read).is_ok());
        drop(executor);
        while !of_maintenance.load(SeqCst) {
            counted.fetch_add(1, SeqCst);
            give_way().await;
        }
    };
    assert!(executor.spawn(Kind::Maintenance, None, Box::pin(maintenance)).is_ok());
    let thread = all_done(&executor).threads[0];
    assert_eq!(
        (thread.gave_way + thread.preempted, thread.runs),
        (runs.load(SeqCst) as u64, thread.gave_way + thread.preempted + 2)
    );
    let (runs, turns_max) = (runs.load(SeqCst), Selector::new(Policy::COMBO.weights).turns_max(Queue::Low));
    assert!(runs <= turns_max as usize, "{runs} runs, {turns_max} turns");
    assert!(is_read.load(SeqCst));
}

const ARRIVALS: [Arrival; 3] = [Arrival::New, Arrival::Resumed, Arrival::Preempted];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Beside the threads stands the table that they are to go by: so many are where it says, and as many as came
    /// resumed are counted as that. Planted breaks: how a request came is forgotten when it is handed in; it is not
    /// counted.
    /// Promise: encrypted-resumed.
    #[test]
    fn a_request_waits_where_the_table_says_of_its_arrival(
        rule in 0..Dispatching::ALL.len(),
        sorts in prop::collection::vec((0..KINDS.len(), 0..ARRIVALS.len()), 1..60),
    ) {
        let dispatching = Dispatching::ALL[rule];
        let executor = ruled(Rules::Fixed(Policy { dispatching, ..Policy::BASELINE }), 1, 64);
        let go = Go(Arc::default());
        let (begun, has_begun) = channel();
        executor.spawn(Kind::Other, None, blocker(&go, begun)).unwrap();
        has_begun.recv().unwrap();
        let (mut depths, mut resumed) = ([0; 3], 0);
        for (kind, came) in sorts.iter().map(|&(kind, came)| (KINDS[kind], ARRIVALS[came])) {
            executor.spawn_as(kind, came, None, Box::pin(async {})).unwrap();
            depths[dispatching.queue(kind, came).index()] += 1;
            resumed += u64::from(came == Arrival::Resumed);
        }
        prop_assert_eq!(executor.figures().queues.map(|queue| queue.depth), depths);
        drop(go);
        let thread = all_done(&executor).threads[0];
        prop_assert_eq!((thread.done, thread.resumed), (sorts.len() as u64 + 1, resumed));
    }
}

#[test]
fn outside_of_an_executor_no_request_gives_way() {
    let mut once = std::pin::pin!(give_way());
    assert_eq!(once.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
}
