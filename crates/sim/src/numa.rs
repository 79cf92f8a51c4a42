//! Cost of a lock shared by threads on several NUMA nodes: Linux's throttling layer before and after WDT.
//!
//! **Intuition.** A line of memory that was written elsewhere has to come from there. From another node it takes three
//! times as long as from a core beside. Under a lock such journeys happen one after the other, so they bound what all
//! cores together can do. **Rule.** A thread keeps the lock for
//!
//! ```text
//!   work + lines x journey(from the one that had it last) + a far journey for each other node on which a thread waits
//! ```
//!
//! The last is the price of spinning. All waiters read a ticket lock, as Linux had until 4.1, so each hand-over calls
//! the line to each of their nodes. **Complication.** None: first come, first served; a thread that waits for a lock
//! uses its core meanwhile, and sends nothing else.
//!
//! Whether all containers share one lock (Linux 4.0: that of the request queue) or each has its own (WDT, section 3.5)
//! is all that differs.

use crate::executor::Executor;
use crate::executor::wait::Semaphore;
use plimsoll_core::{Span, Time};
use std::cell::{Cell, RefCell};

/// Nodes at the most: those of the WDT paper's machine (section 2).
pub const NODES_MAX: usize = 4;
/// Time to change a line that another core of the node, or one of another node, has changed: 120 and 324 cycles at 2.13
/// GHz. The numbers are as commonly quoted for Xeons of that kind from David and others, "Everything you always wanted
/// to know about synchronization" (SOSP 2013, table 2). The paper was not at hand.
const NEAR_JOURNEY: Span = Span::from_nanos(56);
const FAR_JOURNEY: Span = Span::from_nanos(152);
/// What is done under the lock, all lines at hand. Assumed: some hundred instructions.
const WORK: Span = Span::from_nanos(300);
/// Lines that are changed under the lock: lock, throttling data, queues, counters. Fitted: with one lock the four
/// containers of the WDT paper's figure 9 have 133/176 of what they have with a lock each.
const LINES: u64 = 16;

/// The threads that share a lock when a request passes the throttling layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThrottleLock {
    /// There is no lock.
    #[default]
    None,
    /// Each container has one.
    Container,
    /// All containers share one.
    Shared,
}

/// A thread that submits requests, pinned to a node.
pub struct Submitter {
    number: u32,
    node: usize,
    is_free: Semaphore,
}

impl Submitter {
    /// Thread `number`, which differs from all others, on `node`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn new(number: u32, node: usize) -> Submitter {
        assert!(node < NODES_MAX, "node {node} of {NODES_MAX}");
        Submitter { number, node, is_free: Semaphore::new(1) }
    }
}

/// One lock.
#[derive(Clone, Copy, Debug, Default)]
struct Lock {
    free_at: Time,
    /// Thread and node that had it last.
    holder: Option<(u32, usize)>,
    /// Until when a thread of each node waits.
    waited_until: [Time; NODES_MAX],
}

impl Lock {
    /// Takes it at `now` or when it is free; answers when it is given back and how many lines came from another node.
    fn pass(&mut self, now: Time, thread: u32, node: usize) -> (Time, u64) {
        let others = || (0..NODES_MAX).filter(|&other| other != node);
        let spinning = others().filter(|&other| self.waited_until[other] > now).count() as u64;
        let (journey, far_lines) = match self.holder {
            Some((holder, _)) if holder == thread => (Span::ZERO, 0),
            Some((_, from)) if from != node => (FAR_JOURNEY, LINES),
            _ => (NEAR_JOURNEY, 0),
        };
        let granted = self.free_at.max(now);
        self.waited_until[node] = granted;
        self.free_at = granted + WORK + journey * LINES + FAR_JOURNEY * spinning;
        self.holder = Some((thread, node));
        (self.free_at, far_lines + spinning)
    }
}

/// The throttling layer of one machine.
#[derive(Default)]
pub struct ThrottleLayer {
    kind: ThrottleLock,
    locks: RefCell<Vec<Lock>>,
    passed: Cell<u64>,
    far_lines: Cell<u64>,
}

impl ThrottleLayer {
    /// One with this kind of lock.
    pub fn new(kind: ThrottleLock) -> ThrottleLayer {
        ThrottleLayer { kind, ..ThrottleLayer::default() }
    }

    /// A request of `container` passes: waits until its thread has done `work`, had the lock and given it back.
    pub async fn pass(&self, executor: &Executor, thread: &Submitter, container: usize, work: Span) {
        thread.is_free.acquire(executor).await;
        let lock = match self.kind {
            ThrottleLock::None => None,
            ThrottleLock::Container => Some(container),
            ThrottleLock::Shared => Some(0),
        };
        let done = match lock {
            None => executor.now(),
            Some(lock) => {
                let mut locks = self.locks.borrow_mut();
                if locks.len() <= lock {
                    locks.resize(lock + 1, Lock::default());
                }
                let (done, far_lines) = locks[lock].pass(executor.now(), thread.number, thread.node);
                self.far_lines.set(self.far_lines.get() + far_lines);
                done
            }
        };
        self.passed.set(self.passed.get() + 1);
        executor.sleep_until(done + work).await;
        thread.is_free.release(executor);
    }

    /// Lines that came from another node for each request that passed, on average.
    pub fn far_lines_per_request(&self) -> f64 {
        self.far_lines.get() as f64 / self.passed.get().max(1) as f64
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use std::rc::Rc;

    /// Requests a second that threads pass that do nothing else, and far lines a request.
    fn passes(kind: ThrottleLock, threads: u32, nodes: usize, containers: usize) -> (f64, f64) {
        const REQUESTS: u64 = 2000;
        let (executor, layer) = (Rc::new(Executor::default()), Rc::new(ThrottleLayer::new(kind)));
        for number in 0..threads {
            let (inside, layer) = (executor.clone(), layer.clone());
            executor.spawn(async move {
                let container = number as usize % containers;
                let thread = Submitter::new(number, container % nodes);
                for _ in 0..REQUESTS {
                    layer.pass(&inside, &thread, container, Span::ZERO).await;
                }
            });
        }
        loop {
            executor.run_ready();
            match executor.next_timer() {
                Some(at) => executor.advance(at),
                None => break,
            }
        }
        (f64::from(threads) * REQUESTS as f64 / executor.now().as_secs_f64(), layer.far_lines_per_request())
    }

    fn assert_near(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.01, "{got}, expected {expected}");
    }

    #[test]
    fn one_thread_pays_the_work_alone() {
        assert_near(passes(ThrottleLock::Shared, 1, 1, 1).0, 1e9 / 300.0);
    }

    #[test]
    fn a_lock_is_as_slow_as_the_journeys_of_its_lines() {
        let near = passes(ThrottleLock::Shared, 12, 1, 4);
        assert_near(near.0, 1e9 / (300.0 + 16.0 * 56.0));
        assert_eq!(near.1, 0.0);
        // In turn from node to node, and each other node waits.
        for nodes in [2, 4] {
            let far = passes(ThrottleLock::Shared, 12, nodes, 4);
            let others = nodes as f64 - 1.0;
            assert_near(far.0, 1e9 / (300.0 + 16.0 * 152.0 + others * 152.0));
            assert_near(far.1, 16.0 + others);
        }
    }

    #[test]
    fn a_lock_for_each_container_has_no_far_journey_and_no_crowd() {
        let (shared, _) = passes(ThrottleLock::Shared, 12, 4, 4);
        let (own, far_lines) = passes(ThrottleLock::Container, 12, 4, 4);
        assert_near(own, 4.0 * 1e9 / (300.0 + 16.0 * 56.0));
        assert_eq!(far_lines, 0.0);
        assert!(own > 8.0 * shared);
    }
}
