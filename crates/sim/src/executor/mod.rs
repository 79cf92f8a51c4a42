//! Runs tasks in virtual time: time stands still while any task can run, and then jumps to the next event.
//!
//! A task is an ordinary future. It runs until it must wait; what it waits for names it to [`Executor::wake`], and it
//! goes to the end of the ready queue. Tasks that become ready at the same instant run in the order of their wake-ups.
//! Timers of the same instant run in the order in which they were set. So a run follows from its programs and seeds
//! alone.
//!
//! The complication: futures do not use their waker, but the executor's own name of the running task
//! ([`Executor::current`]), which costs no reference counting. So only the waiting primitives of this crate
//! ([`Executor::sleep_until`], [`wait`]) can be awaited. Each checks its own condition when it is polled, so a spurious
//! wake-up does no harm. A task waits for several things by waiting for one after the other, or by a [`wait::Group`].
//!
//! A run that makes no progress ends with a panic, which names the processes at fault: see [`progress`].

mod progress;
pub mod wait;

#[cfg(test)]
mod tests;

use progress::Progress;
pub(crate) use progress::STEPS_MAX;

use plimsoll_core::{Span, Time};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The executor's name for a task; a name is never used again, though its place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

impl TaskId {
    const NONE: TaskId = TaskId { index: u32::MAX, generation: u32::MAX };
}

struct Task {
    /// `None` while it runs, and after its end.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Its process's; the kernel's tasks have none.
    name: Option<Rc<str>>,
    generation: u32,
    is_alive: bool,
    is_ready: bool,
}

/// Tasks, timers and the time.
pub struct Executor {
    now: Cell<Time>,
    current: Cell<TaskId>,
    tasks: RefCell<Vec<Task>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<TaskId>>,
    timers: RefCell<BinaryHeap<Reverse<(Time, u64, TaskId)>>>,
    timers_set: Cell<u64>,
    polls: Cell<u64>,
    progress: Progress,
}

impl Default for Executor {
    fn default() -> Executor {
        Executor {
            now: Cell::new(Time::ZERO),
            current: Cell::new(TaskId::NONE),
            tasks: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            timers: RefCell::default(),
            timers_set: Cell::new(0),
            polls: Cell::new(0),
            progress: Progress::default(),
        }
    }
}

impl Executor {
    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// The task that runs now; meaningful only inside of one.
    pub fn current(&self) -> TaskId {
        self.current.get()
    }

    /// How often a task was run since the start: one event each.
    pub fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Adds a task, which runs for the first time when its turn comes, at the present instant.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.add(None, Box::pin(future))
    }

    /// Adds the task of a process called `name`: [`spawn`](Self::spawn), and messages name it.
    pub(crate) fn spawn_process(&self, name: &str, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.add(Some(name.into()), Box::pin(future))
    }

    fn add(&self, name: Option<Rc<str>>, future: Pin<Box<dyn Future<Output = ()>>>) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(Task { future: None, name: None, generation: 0, is_alive: false, is_ready: false });
            tasks.len() as u32 - 1
        });
        let task = &mut tasks[index as usize];
        (task.future, task.name, task.is_alive, task.is_ready) = (Some(future), name, true, true);
        let id = TaskId { index, generation: task.generation };
        self.ready.borrow_mut().push_back(id);
        id
    }

    /// Lets a task run at the present instant, after those that are ready already. Without effect on one that is ready
    /// or has ended.
    pub fn wake(&self, id: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(id.index as usize) else { return };
        if task.is_alive && task.generation == id.generation && !task.is_ready {
            task.is_ready = true;
            self.ready.borrow_mut().push_back(id);
        }
    }

    /// Whether the task has ended.
    pub fn has_ended(&self, id: TaskId) -> bool {
        let tasks = self.tasks.borrow();
        let task = &tasks[id.index as usize];
        task.generation != id.generation || !task.is_alive
    }

    /// Waits until `deadline`; not at all if it has passed.
    pub fn sleep_until(&self, deadline: Time) -> Sleep<'_> {
        Sleep { executor: self, deadline, is_set: false }
    }

    /// Waits for `span`.
    pub fn sleep(&self, span: Span) -> Sleep<'_> {
        self.sleep_until(self.now() + span)
    }

    /// Wakes `task` at `at`, or now if that is over: a flusher that was busy when its period ended.
    pub(crate) fn wake_at(&self, at: Time, task: TaskId) {
        let at = at.max(self.now());
        let sequence = self.timers_set.get();
        self.timers_set.set(sequence + 1);
        self.timers.borrow_mut().push(Reverse((at, sequence, task)));
    }

    /// Runs ready tasks until none is.
    pub(crate) fn run_ready(&self) {
        loop {
            let Some(id) = self.ready.borrow_mut().pop_front() else { break };
            let (future, is_process) = {
                let task = &mut self.tasks.borrow_mut()[id.index as usize];
                task.is_ready = false;
                (task.future.take(), task.name.is_some())
            };
            let mut future = future.expect("a ready task is alive and does not run");
            self.current.set(id);
            self.polls.set(self.polls.get() + 1);
            self.count_step();
            if is_process {
                self.progress.process_runs(self.now());
            }
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => self.tasks.borrow_mut()[id.index as usize].future = Some(future),
                Poll::Ready(()) => {
                    drop(future);
                    self.end(id);
                }
            }
        }
        self.current.set(TaskId::NONE);
    }

    fn end(&self, id: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        let task = &mut tasks[id.index as usize];
        task.is_alive = false;
        task.generation += 1;
        if std::mem::take(&mut task.is_ready) {
            self.ready.borrow_mut().retain(|&ready| ready != id);
        }
        self.free.borrow_mut().push(id.index);
    }

    /// Whether a task could run now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.borrow().peek().map(|&Reverse((at, ..))| at)
    }

    /// Goes on to `now` and wakes tasks that slept until then.
    pub(crate) fn advance(&self, now: Time) {
        debug_assert!(now >= self.now.get(), "time does not go backwards");
        self.progress.advance(self.now.replace(now), now);
        let mut timers = self.timers.borrow_mut();
        while let Some(&Reverse((at, _, task))) = timers.peek()
            && at <= now
        {
            timers.pop();
            self.wake(task);
        }
    }

    /// Drops every task: tasks hold the machine that holds the executor, and nothing else would end that circle.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        self.ready.borrow_mut().clear();
        self.timers.borrow_mut().clear();
    }
}

/// Waits for a point in time.
pub struct Sleep<'a> {
    executor: &'a Executor,
    deadline: Time,
    is_set: bool,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if self.executor.now() >= self.deadline {
            self.executor.count_step();
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_set, true) {
            self.executor.wake_at(self.deadline, self.executor.current());
        }
        Poll::Pending
    }
}
