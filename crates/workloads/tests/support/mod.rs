//! The smallest host: it makes no call, but holds every step to what a file system would allow.

#![allow(dead_code, reason = "each test uses its part")]

use plimsoll_core::Span;
use plimsoll_workloads::{Action, Before, Counter, FileIndex, Plan, Step, Thread, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Files that a thread may have open at once: no workload needs more.
const OPEN_MAX: usize = 16;
/// How long every call takes here.
const CALL: Span = Span::from_micros(10);

pub fn plan(text: &str, seed: u64) -> Plan {
    text.parse::<Workload>().unwrap_or_else(|error| panic!("{text}: {error}")).plan(seed)
}

/// The first steps of one thread; a take gets what it waits for, or nothing.
pub fn steps(plan: &Plan, thread: u32, count: usize) -> Vec<Step> {
    let mut running = plan.thread(thread);
    let mut steps = Vec::new();
    while steps.len() < count {
        let Some(step) = running.next() else { break };
        if let Step::Take { at_least, until, .. } = step {
            running.took(if until.is_some() { 0 } else { at_least });
        }
        steps.push(step);
    }
    steps
}

/// The calls among steps.
pub fn actions(steps: &[Step]) -> impl Iterator<Item = Action> {
    steps.iter().filter_map(|step| match step {
        Step::Call(action) | Step::Start { action, .. } => Some(*action),
        _ => None,
    })
}

/// Reads and writes among steps: (is a read, file, offset, length).
pub fn transfers(steps: &[Step]) -> Vec<(bool, u64, u64, u64)> {
    let found = actions(steps).filter_map(|action| match action {
        Action::Read { file, offset, length } => Some((true, file.0, offset, length)),
        Action::Write { file, offset, length } => Some((false, file.0, offset, length)),
        _ => None,
    });
    found.collect()
}

/// All threads of a plan, taking turns, with counters and the sizes of files.
pub struct Host {
    plan: Plan,
    threads: Vec<Running>,
    /// Files that are not as they were before.
    lengths: BTreeMap<FileIndex, Option<u64>>,
    counters: BTreeMap<Counter, u64>,
    pub now: Span,
    /// Every step made, with its thread.
    pub made: Vec<(usize, Span, Step)>,
}

struct Running {
    steps: Thread,
    open: BTreeSet<FileIndex>,
    is_inside: bool,
    waiting: Option<Step>,
    is_done: bool,
}

impl Host {
    pub fn new(plan: Plan) -> Host {
        let running = |number| Running {
            steps: plan.thread(number),
            open: BTreeSet::new(),
            is_inside: false,
            waiting: None,
            is_done: false,
        };
        let threads = (0..plan.thread_count()).map(running).collect();
        let (lengths, counters) = (BTreeMap::new(), BTreeMap::new());
        Host { plan, threads, lengths, counters, now: Span::ZERO, made: Vec::new() }
    }

    /// Makes `rounds` steps of each thread that does not wait; false if all have ended.
    pub fn run(&mut self, rounds: usize) -> bool {
        for _ in 0..rounds {
            for number in 0..self.threads.len() {
                self.turn(number);
            }
            // When all threads wait, time passes.
            self.now += Span::from_micros(100);
        }
        self.threads.iter().any(|thread| !thread.is_done)
    }

    fn turn(&mut self, number: usize) {
        let waiting = self.threads[number].waiting.take();
        let Some(step) = waiting.or_else(|| self.threads[number].steps.next()) else {
            self.threads[number].is_done = true;
            return;
        };
        match step {
            Step::Begin { due, deadline } => {
                assert!(!self.threads[number].is_inside, "a unit inside a unit");
                assert!(deadline.is_none_or(|deadline| deadline > due.unwrap_or(Span::ZERO)), "{step:?}");
                self.threads[number].is_inside = true;
            }
            Step::End => {
                assert!(self.threads[number].is_inside, "an end without a begin");
                self.threads[number].is_inside = false;
            }
            Step::Call(action) => self.call(number, action),
            Step::Start { action, .. } => {
                assert!(!self.threads[number].is_inside, "a start inside a unit");
                self.call(number, action);
            }
            Step::Post { counter, count } => *self.counters.entry(counter).or_default() += count,
            Step::Take { counter, at_least, at_most, until } => {
                let value = self.counters.entry(counter).or_default();
                if *value < at_least && until.is_none_or(|until| self.now < until) {
                    self.threads[number].waiting = Some(step);
                    return;
                }
                let taken = (*value).min(at_most);
                *value -= taken;
                self.threads[number].steps.took(taken);
            }
            Step::Sleep(_) | Step::Compute(_) => {}
        }
        self.made.push((number, self.now, step));
    }

    /// Bytes of a file, none if it does not exist.
    fn length(&self, file: FileIndex) -> Option<u64> {
        self.lengths.get(&file).copied().unwrap_or_else(|| {
            let spec = self.plan.file(file);
            let count = self.plan.file_count();
            // A file may be opened in a second way, under a number beyond.
            let is_twin = || (0..count).any(|other| self.plan.file(FileIndex(other)).path == spec.path);
            let is_prepared = file.0 < count || (spec.before != Before::Absent && is_twin());
            assert_eq!(is_prepared, spec.before != Before::Absent, "{file:?} {spec:?}");
            is_prepared.then_some(spec.bytes)
        })
    }

    fn call(&mut self, number: usize, action: Action) {
        self.now += CALL;
        let open = |host: &Host, file| {
            assert!(host.threads[number].open.contains(&file), "{action:?}: not open");
            host.length(file).expect("open files exist")
        };
        assert!(self.threads[number].open.len() <= OPEN_MAX, "{action:?}: too many open files");
        match action {
            Action::Create { file } => {
                assert_eq!(self.length(file), None, "{action:?}: exists");
                self.lengths.insert(file, Some(0));
                self.threads[number].open.insert(file);
            }
            Action::Open { file } => {
                assert!(self.length(file).is_some(), "{action:?}: missing");
                assert!(self.threads[number].open.insert(file), "{action:?}: open already");
            }
            Action::Close { file } => assert!(self.threads[number].open.remove(&file), "{action:?}: not open"),
            Action::Read { file, offset, length } => {
                let bytes = open(self, file);
                assert!(length > 0 && (offset == 0 || offset + length <= bytes), "{action:?} of {bytes}");
            }
            Action::Write { file, offset, length } => {
                let bytes = open(self, file);
                assert!(length > 0 && offset <= bytes, "{action:?} leaves a hole: {bytes}");
                self.lengths.insert(file, Some(bytes.max(offset + length)));
            }
            Action::Fsync { file } | Action::Fdatasync { file } => drop(open(self, file)),
            Action::Truncate { file, length } => {
                open(self, file);
                self.lengths.insert(file, Some(length));
            }
            Action::Unlink { file } => {
                assert!(self.length(file).is_some(), "{action:?}: missing");
                assert!(!self.threads[number].open.contains(&file), "{action:?}: open");
                self.lengths.insert(file, None);
            }
            Action::Stat { file } | Action::SetAttributes { file } => {
                assert!(self.length(file).is_some(), "{action:?}: missing");
            }
            Action::MakeDirectory { directory } => assert!(directory.0 >= self.plan.directory_count()),
            Action::ReadDirectory { directory } => assert!(directory.0 < self.plan.directory_count()),
        }
    }
}
