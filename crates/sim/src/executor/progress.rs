//! A run that makes no progress ends with a panic instead of going on for ever.
//!
//! Two kinds are told apart. A task, or several that wake each other, may loop while time stands still. Each run of a
//! task, and each wait that ends at once, is a step, and the steps of one instant are bounded. Or processes wait for
//! what never comes while the kernel's periodic tasks go on: then no process runs and none has a timer.
//!
//! The complication: a loop inside of a task that awaits nothing at all is not seen here. A test's time limit finds it.

use super::{Executor, TaskId};
use plimsoll_core::{Span, Time};
use std::cell::Cell;

/// Steps of one instant: far more than the processes of any scenario take, and a second's worth of them.
pub(crate) const STEPS_MAX: u64 = 20_000_000;
/// How long no process runs before it is asked whether any ever will.
const SILENCE: Span = Span::from_secs(30 * 24 * 3600);
/// Names in a message.
const NAMES_MAX: usize = 8;

/// What has happened since time passed last, and since a process ran last.
#[derive(Default)]
pub(super) struct Progress {
    steps: Cell<u64>,
    /// When a process ran last, or it was asked whether any will.
    process_ran: Cell<Time>,
}

impl Progress {
    pub(super) fn process_runs(&self, now: Time) {
        self.process_ran.set(now);
    }

    pub(super) fn advance(&self, from: Time, to: Time) {
        if to > from {
            self.steps.set(0);
        }
    }
}

impl Executor {
    /// One step more at this instant.
    ///
    /// # Panics
    /// If there were too many.
    pub(crate) fn count_step(&self) {
        let steps = self.progress.steps.get() + 1;
        self.progress.steps.set(steps);
        if steps > STEPS_MAX {
            self.progress.steps.set(0);
            panic!("{STEPS_MAX} steps at {:?} and no time passes: {}", self.now(), self.running());
        }
    }

    /// Time advances to `next`; processes have not ended.
    ///
    /// # Panics
    /// If no process has run for [`SILENCE`] and none has a timer.
    pub(crate) fn assert_processes_run(&self, next: Time) {
        if next.since(self.progress.process_ran.get()) < SILENCE {
            return;
        }
        let tasks = self.tasks.borrow();
        let is_process = |id: TaskId| {
            tasks.get(id.index as usize).is_some_and(|task| task.generation == id.generation && task.name.is_some())
        };
        let has_timer = self.timers.borrow().iter().any(|timer| is_process(timer.0.2));
        drop(tasks);
        assert!(has_timer, "processes wait for ever while the kernel's tasks go on: {}", self.processes());
        self.progress.process_runs(next);
    }

    /// The task that runs now and those that are ready, by name.
    fn running(&self) -> String {
        let ids = std::iter::once(self.current()).chain(self.ready.borrow().iter().copied()).collect::<Vec<_>>();
        let tasks = self.tasks.borrow();
        let name = |id: &TaskId| {
            tasks.get(id.index as usize).map_or("the host", |task| task.name.as_deref().unwrap_or(KERNEL))
        };
        listed(ids.iter().map(name))
    }

    /// The processes that have not ended, by name.
    pub(crate) fn processes(&self) -> String {
        let tasks = self.tasks.borrow();
        listed(tasks.iter().filter(|task| task.is_alive).filter_map(|task| task.name.as_deref()))
    }
}

/// What a task without a name is.
const KERNEL: &str = "a task of the kernel";

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut listed: Vec<&str> = Vec::new();
    let mut more = 0;
    for name in names {
        if listed.contains(&name) {
            continue;
        }
        if listed.len() < NAMES_MAX { listed.push(name) } else { more += 1 }
    }
    match more {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}
