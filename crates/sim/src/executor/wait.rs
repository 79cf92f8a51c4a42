//! What tasks wait for: each other ([`WaitQueue`]), a resource ([`Semaphore`]), several things at once ([`Group`]).
//!
//! All are first come, first served. A semaphore hands a unit over to the first waiter instead of putting it back, so
//! that no later waiter can take it.

use super::{Executor, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Tasks that wait until another task lets them go on, in the order in which they came.
#[derive(Debug, Default)]
pub struct WaitQueue {
    waiting: RefCell<VecDeque<TaskId>>,
    /// Tickets given out, and the first that has not been let go on.
    next_ticket: Cell<u64>,
    served: Cell<u64>,
}

impl WaitQueue {
    /// Waits until [`wake_one`](Self::wake_one) comes to this task, or [`wake_all`](Self::wake_all) is called.
    ///
    /// The wait must not be given up: a drop half-way takes another's turn.
    pub fn wait<'a>(&'a self, executor: &'a Executor) -> Wait<'a> {
        Wait { queue: self, executor, ticket: None }
    }

    /// Lets the first go on, if there is one.
    pub fn wake_one(&self, executor: &Executor) -> bool {
        let Some(task) = self.waiting.borrow_mut().pop_front() else { return false };
        self.served.set(self.served.get() + 1);
        executor.wake(task);
        true
    }

    /// Lets all go on that wait now.
    pub fn wake_all(&self, executor: &Executor) {
        while self.wake_one(executor) {}
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See [`WaitQueue::wait`].
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    executor: &'a Executor,
    ticket: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        match self.ticket {
            Some(ticket) if ticket < self.queue.served.get() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None => {
                let ticket = self.queue.next_ticket.get();
                self.queue.next_ticket.set(ticket + 1);
                self.queue.waiting.borrow_mut().push_back(self.executor.current());
                self.ticket = Some(ticket);
                Poll::Pending
            }
        }
    }
}

/// A number of units of something; a task that wants one waits until it is there.
pub struct Semaphore {
    available: Cell<u64>,
    queue: WaitQueue,
}

impl Semaphore {
    /// With so many units.
    pub fn new(units: u64) -> Semaphore {
        Semaphore { available: Cell::new(units), queue: WaitQueue::default() }
    }

    /// Takes a unit, at once or when one is handed over.
    pub async fn acquire(&self, executor: &Executor) {
        executor.count_step();
        if !self.try_acquire() {
            self.queue.wait(executor).await;
        }
    }

    /// Takes a unit if one is there.
    pub fn try_acquire(&self) -> bool {
        let available = self.available.get();
        self.available.set(available.saturating_sub(1));
        available > 0
    }

    /// Gives a unit back: to the first waiter, if there is one.
    pub fn release(&self, executor: &Executor) {
        if !self.queue.wake_one(executor) {
            self.available.set(self.available.get() + 1);
        }
    }

    /// Units that no task holds.
    pub fn available(&self) -> u64 {
        self.available.get()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

/// Counts what is under way, so that a task can wait until all of it is done. A clone counts with its original.
#[derive(Clone, Debug, Default)]
pub struct Group {
    inner: Rc<GroupInner>,
}

#[derive(Debug, Default)]
struct GroupInner {
    outstanding: Cell<u64>,
    queue: WaitQueue,
}

impl Group {
    /// One more is under way.
    pub fn add(&self) {
        self.inner.outstanding.set(self.inner.outstanding.get() + 1);
    }

    /// One is done.
    ///
    /// # Panics
    /// If none was under way.
    pub fn done(&self, executor: &Executor) {
        let outstanding = self.inner.outstanding.get().checked_sub(1).expect("nothing is done twice");
        self.inner.outstanding.set(outstanding);
        if outstanding == 0 {
            self.inner.queue.wake_all(executor);
        }
    }

    /// How many are under way.
    pub fn outstanding(&self) -> u64 {
        self.inner.outstanding.get()
    }

    /// Waits until nothing is under way.
    pub async fn wait(&self, executor: &Executor) {
        executor.count_step();
        while self.outstanding() > 0 {
            self.inner.queue.wait(executor).await;
        }
    }
}
