//! Cores, shared fairly: the task that has run least runs next (the rule of Linux's completely fair scheduler).
//!
//! A task asks for processor time in pieces. If a core is free it has it at once. Otherwise it waits in the order of
//! the time that each has run. After a slice a core runs the first in that order. A task that has slept does not get
//! all that it missed, but comes before those that run all the time. So tasks that spin do not hold up a process that
//! waits for I/O; very many of them do (split-level paper, figure 15). Time for which no task waited is held against
//! none: alone in its queue, a task is its own level (`update_min_vruntime`).

use crate::executor::{Executor, TaskId};
use plimsoll_core::Span;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How long a task runs while others wait: `sched_min_granularity` of Linux 3.x on eight cores, 0.75 ms x (1 + log2 8).
const SLICE: Span = Span::from_millis(3);
/// How much of the time that a sleeper missed it gets: half of `sched_latency`, 6 ms x (1 + log2 8), by
/// `GENTLE_FAIR_SLEEPERS`.
const SLEEPER_CREDIT: Span = Span::from_millis(12);

/// Where a task stands among those that wait: the time that it has run, and when it came.
type Standing = (u64, u64);

/// The cores.
pub(crate) struct Cpu {
    free: Cell<u32>,
    waiting: RefCell<BTreeSet<(Standing, TaskId)>>,
    arrivals: Cell<u64>,
    /// The time that the one chosen last had run: where newcomers start.
    level: Cell<u64>,
    busy_ns: Cell<u64>,
}

impl Cpu {
    pub(crate) fn new(cores: u32) -> Cpu {
        Cpu {
            free: Cell::new(cores),
            waiting: RefCell::default(),
            arrivals: Cell::new(0),
            level: Cell::new(0),
            busy_ns: Cell::new(0),
        }
    }

    /// Processor time that all tasks together have had.
    pub(crate) fn busy(&self) -> Span {
        Span::from_nanos(self.busy_ns.get())
    }

    /// Takes `span` of a core's time; `has_run` is the task's own account of its time, in nanoseconds.
    pub(crate) async fn compute(&self, executor: &Executor, has_run: &Cell<u64>, span: Span) {
        if span == Span::ZERO {
            executor.count_step();
            return;
        }
        has_run.set(has_run.get().max(self.level.get().saturating_sub(SLEEPER_CREDIT.as_nanos())));
        let mut rest = span;
        loop {
            self.take_core(executor, has_run.get()).await;
            let slice = Span::from_nanos(rest.as_nanos().min(SLICE.as_nanos()));
            executor.sleep(slice).await;
            rest -= slice;
            has_run.set(self.counted(has_run.get(), slice));
            self.busy_ns.set(self.busy_ns.get() + slice.as_nanos());
            self.give_core(executor);
            if rest == Span::ZERO {
                return;
            }
        }
    }

    /// What a task has run after one slice more.
    fn counted(&self, has_run: u64, slice: Span) -> u64 {
        let counted = has_run + slice.as_nanos();
        if self.waiting.borrow().is_empty() { counted.min(has_run.max(self.level.get())) } else { counted }
    }

    async fn take_core(&self, executor: &Executor, has_run: u64) {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            return;
        }
        let place = (has_run, self.arrivals.get());
        self.arrivals.set(place.1 + 1);
        let key = (place, executor.current());
        self.waiting.borrow_mut().insert(key);
        Chosen { cpu: self, key }.await;
    }

    fn give_core(&self, executor: &Executor) {
        match self.waiting.borrow_mut().pop_first() {
            None => self.free.set(self.free.get() + 1),
            Some(((has_run, _), task)) => {
                self.level.set(self.level.get().max(has_run));
                executor.wake(task);
            }
        }
    }
}

struct Chosen<'a> {
    cpu: &'a Cpu,
    key: (Standing, TaskId),
}

impl Future for Chosen<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if self.cpu.waiting.borrow().contains(&self.key) { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Time;
    use std::rc::Rc;

    fn finish_times_ms(cores: u32, works_ms: &[u64]) -> Vec<u64> {
        let executor = Rc::new(Executor::default());
        let (cpu, ends) = (Rc::new(Cpu::new(cores)), Rc::new(RefCell::new(vec![0; works_ms.len()])));
        for (task, &work) in works_ms.iter().enumerate() {
            let (inside, cpu, ends) = (executor.clone(), cpu.clone(), ends.clone());
            executor.spawn(async move {
                cpu.compute(&inside, &Cell::new(0), Span::from_millis(work)).await;
                ends.borrow_mut()[task] = inside.now().as_nanos() / 1_000_000;
            });
        }
        loop {
            executor.run_ready();
            match executor.next_timer() {
                Some(at) => executor.advance(at),
                None => break,
            }
        }
        let total = Span::from_millis(works_ms.iter().sum());
        assert_eq!(cpu.busy(), total, "all work is done, and no other");
        assert_eq!(cpu.free.get(), cores);
        ends.take()
    }

    #[test]
    fn as_many_tasks_as_cores_do_not_wait() {
        assert_eq!(finish_times_ms(3, &[10, 20, 7]), [10, 20, 7]);
    }

    #[test]
    fn more_tasks_share_and_the_short_one_is_not_behind_the_long() {
        assert_eq!(finish_times_ms(1, &[300, 300]), [597, 600]);
        let ends = finish_times_ms(1, &[3000, 3]);
        assert_eq!(ends, [3003, 6], "one slice of the long one comes first");
    }

    /// Red where a task's time alone is held against it: then it waits for seconds until 64 others have run as long.
    #[test]
    fn time_alone_is_not_made_up_for_by_later_containers() {
        let executor = Rc::new(Executor::default());
        let (cpu, served) = (Rc::new(Cpu::new(1)), Rc::new(Cell::new(0)));
        let (inside, shared, count) = (executor.clone(), cpu.clone(), served.clone());
        executor.spawn(async move {
            let has_run = Cell::new(0);
            loop {
                shared.compute(&inside, &has_run, Span::from_micros(500)).await;
                count.set(count.get() + 1);
                inside.sleep(Span::from_micros(500)).await;
            }
        });
        for _ in 0..64 {
            let (inside, cpu) = (executor.clone(), cpu.clone());
            executor.spawn(async move {
                let has_run = Cell::new(0);
                inside.sleep(Span::from_secs(1)).await;
                loop {
                    cpu.compute(&inside, &has_run, Span::from_millis(3)).await;
                }
            });
        }
        let run_until = |seconds| {
            while executor.now() < Time::ZERO + Span::from_secs(seconds) {
                executor.run_ready();
                executor.advance(executor.next_timer().unwrap());
            }
            served.get()
        };
        let alone = run_until(1);
        let beside = run_until(2) - alone;
        assert!((990..=1000).contains(&alone), "{alone}");
        // Its fair part of a second is 1/65, 15 ms.
        assert!((20..60).contains(&beside), "{beside} turns of 0.5 ms beside 64 others");
        executor.clear();
    }

    #[test]
    fn a_sleeper_comes_before_those_that_spin() {
        let executor = Rc::new(Executor::default());
        let cpu = Rc::new(Cpu::new(2));
        for _ in 0..40 {
            let (inside, cpu) = (executor.clone(), cpu.clone());
            executor.spawn(async move {
                let has_run = Cell::new(0);
                loop {
                    cpu.compute(&inside, &has_run, Span::from_millis(50)).await;
                }
            });
        }
        let (inside, cpu, worst) = (executor.clone(), cpu.clone(), Rc::new(Cell::new(Span::ZERO)));
        let seen = worst.clone();
        executor.spawn(async move {
            let has_run = Cell::new(0);
            // At first no task has run, and all are alike.
            inside.sleep(Span::from_secs(1)).await;
            for _ in 0..90 {
                inside.sleep(Span::from_millis(20)).await;
                let start = inside.now();
                cpu.compute(&inside, &has_run, Span::from_micros(10)).await;
                seen.set(seen.get().max(inside.now().since(start)));
            }
        });
        while executor.now() < Time::ZERO + Span::from_secs(3) {
            executor.run_ready();
            executor.advance(executor.next_timer().unwrap());
        }
        assert!(worst.get() < SLICE * 3, "{}: 40 spinners would make it 60 ms", worst.get());
        executor.clear();
    }
}
