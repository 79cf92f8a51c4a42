//! In which order service threads run waiting requests, and what becomes of a request that stops at a checkpoint.

mod threads_support;

use plimsoll_core::{Span, Time};
use plimsoll_executor::{Kind, Policy, Rules, Slicing, checkpoint, give_way};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use threads_support::{Go, Request, all_done, blocker, executor, ruled};

/// Twice: the first time ends with four in a row with a deadline and others without, and the row ends with them.
///
/// Planted breaks: deadlines are not looked at; a request without one waits until none is left with one. Broken on
/// purpose and seen red: where no request has a deadline the row does not end.
/// Promise: executor-queues.
#[test]
fn among_writes_deadlines_go_first_and_the_rest_in_order() {
    let executor = executor(1, 64);
    for _ in 0..2 {
        let (go, order) = (Go(Arc::default()), Arc::new(Mutex::new(Vec::new())));
        let (begun, has_begun) = channel();
        executor.spawn(Kind::Write, None, blocker(&go, begun)).unwrap();
        has_begun.recv().unwrap();
        for number in 0..30_u64 {
            // 17 and 30 have no common divisor: a deadline for each, in no order; every third has none.
            let deadline = (!number.is_multiple_of(3)).then(|| Time::from_nanos(number * 17 % 30));
            let order = order.clone();
            let request = async move { order.lock().unwrap().push((deadline.unwrap_or(Time::MAX), number)) };
            executor.spawn(Kind::Write, deadline, Box::pin(request)).unwrap();
        }
        drop(go);
        all_done(&executor);
        let order = order.lock().unwrap().clone();
        let mut expected = order.clone();
        expected.sort_unstable();
        // Twenty have a deadline; after sixteen of them the first goes that has none.
        expected[16..21].rotate_right(1);
        assert_eq!(order, expected);
    }
}

/// A future made of another one, which it polls only when that one was woken, as those do that are made of several.
struct OnlyIfWoken<F> {
    child: Pin<Box<F>>,
    woken: Arc<Woken>,
}

struct Woken {
    is_woken: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.is_woken.store(true, SeqCst);
        let parent = self.parent.lock().unwrap().take();
        parent.into_iter().for_each(Waker::wake);
    }
}

impl<F: Future<Output = ()>> OnlyIfWoken<F> {
    fn new(child: F) -> OnlyIfWoken<F> {
        let woken = Woken { is_woken: AtomicBool::new(true), parent: Mutex::default() };
        OnlyIfWoken { child: Box::pin(child), woken: Arc::new(woken) }
    }
}

impl<F: Future<Output = ()>> Future for OnlyIfWoken<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.woken.parent.lock().unwrap() = Some(context.waker().clone());
        if !self.woken.is_woken.swap(false, SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.woken.clone());
        self.child.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Of slices that are over as soon as they begin: it stops at each checkpoint, is run again from there, and comes as
/// preempted each time, once.
///
/// Broken on purpose and seen red: a checkpoint does not wake the request that stops there.
/// Promise: executor-checkpoint.
#[test]
fn a_request_that_stops_at_a_checkpoint_inside_another_future_goes_on() {
    const STOPS: u64 = 50;
    const REQUESTS: u64 = 3;
    let slicing = Slicing::ByDepth { base: Span::ZERO, cap: Span::ZERO, factors: [1.0; 3] };
    for threads in [1, 2] {
        let executor = ruled(Rules::Fixed(Policy { slicing, ..Policy::COMBO }), threads, REQUESTS as usize);
        for _ in 0..REQUESTS {
            let stops = OnlyIfWoken::new(async {
                for _ in 0..STOPS {
                    checkpoint().await;
                    give_way().await;
                }
            });
            let request: Request = Box::pin(stops);
            executor.spawn(Kind::Read, None, request).unwrap();
        }
        let figures = all_done(&executor);
        let sum = |count: fn(&plimsoll_executor::ThreadFigures) -> u64| figures.threads.iter().map(count).sum::<u64>();
        let stopped = sum(|thread| thread.preempted + thread.gave_way);
        assert_eq!((stopped, sum(|thread| thread.runs)), (2 * STOPS * REQUESTS, (2 * STOPS + 1) * REQUESTS));
        let others = (sum(|thread| thread.suspended), sum(|thread| thread.resumed), sum(|thread| thread.done));
        assert_eq!(others, (0, 0, REQUESTS), "{figures:?}");
    }
}
