//! `[executor]`: the service threads, which compress and encrypt.

use plimsoll_executor::Rules;
use plimsoll_settings::key::{Absent, Choice, Integer, Key, KeyTable};
use plimsoll_settings::{Problem, Section};
use std::fmt;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Service threads at the most: the largest server of the paper has 20 processors.
const THREADS_MAX: u64 = 256;

const THREADS: Key<Integer> = Key {
    name: "threads",
    form: Integer::new(1..=THREADS_MAX, "service threads"),
    absent: Absent::Words("one fewer than processors, at least 1"),
    help: "how many threads serve",
};
/// In simulation `adaptive` is within a hundredth of the better of Baseline and Combo, or better. That holds for the
/// mean of each workload and platform of the paper (docs/figures.md). On real threads it is not always the best
/// (docs/executor.md).
const POLICY: Key<Choice> = Key {
    name: "policy",
    form: Choice::of(|| Rules::ALL.map(|(name, _)| name).to_vec()),
    absent: Absent::Value("adaptive"),
    help: "in which order they serve, and for how long ([executor.md](executor.md#the-rules))",
};

pub(super) const TABLE: KeyTable = KeyTable { path: "executor", keys: &[&THREADS, &POLICY] };

/// The section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExecutorSection {
    /// Service threads; none said: one fewer than processors.
    pub threads: Option<usize>,
    /// The name of its rules.
    pub policy: &'static str,
}

impl Default for ExecutorSection {
    fn default() -> ExecutorSection {
        ExecutorSection { threads: None, policy: POLICY.default_value() }
    }
}

impl ExecutorSection {
    /// Number of service threads: the configured one, or one fewer than processors, since the engines need one, too.
    pub fn thread_count(&self) -> usize {
        let processors = || available_parallelism().map_or(1, NonZero::get);
        self.threads.unwrap_or_else(|| (processors() - 1).max(1))
    }

    /// What its threads go by.
    pub fn rules(&self) -> Rules {
        let found = Rules::ALL.iter().find(|(name, _)| *name == self.policy);
        found.expect("one of the names").1
    }
}

impl fmt::Display for ExecutorSection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.thread_count();
        write!(out, "{threads} service thread{}, {}", if threads == 1 { "" } else { "s" }, self.policy)
    }
}

pub(super) fn read(mut section: Section<'_>, problems: &mut Vec<Problem>) -> ExecutorSection {
    let threads = THREADS.read(&mut section, problems);
    let policy = POLICY.read_or_default(&mut section, problems);
    section.finish(problems);
    ExecutorSection { threads: threads.map(|threads| threads as usize), policy }
}
