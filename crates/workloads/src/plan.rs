//! A workload with a seed: the files to prepare, and the threads to run.

use crate::design::{Common, Design};
use crate::random::{Purpose, Random};
use crate::step::{Action, Counter, DirectoryIndex, FileIndex, Step};
use plimsoll_core::{Class, Span};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Threads of one workload at most ("1000s" in the split-level paper, figure 15). Files that threads make are numbered
/// in strides of this, so that a thread more renumbers no other's files.
pub const THREADS_MAX: u32 = 16_384;

/// What a file must be like before the workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Before {
    /// Not there: a thread makes it.
    Absent,
    /// There, with no bytes.
    Empty,
    /// There, with data in its blocks.
    Filled,
}

/// A file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Its path below the folder that the host gives the workload, such as `d17/f262160`.
    pub path: String,
    /// Bytes that it has before the start; 0 if it is absent or empty.
    pub bytes: u64,
    /// What it must be like before the start.
    pub before: Before,
    /// Whether it is read and written past the page cache (O_DIRECT).
    pub is_direct: bool,
    /// What the program says that its blocks are (Differentiated Storage Services, section 3.4); `None` if it says nothing.
    pub class: Option<Class>,
}

impl FileSpec {
    pub(crate) fn filled(path: String, bytes: u64) -> FileSpec {
        FileSpec { path, bytes, before: Before::Filled, is_direct: false, class: None }
    }

    pub(crate) fn with(path: String, bytes: u64, before: Before) -> FileSpec {
        FileSpec { path, bytes, before, is_direct: false, class: None }
    }
}

/// A thread of a plan, as the host should know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSpec {
    /// What it is and its number, such as `client.3` or `checkpointer`: hosts give deadlines and priorities by it.
    pub name: String,
    /// Units of [`Step::Start`] that may be outstanding at once, 1 to `DEPTH_UNLIMITED`.
    pub depth: u32,
    /// The files that it opens first and never closes.
    pub files: Vec<FileIndex>,
    /// No user waits for its units: hosts pace them and do not count them as such.
    pub is_background: bool,
}

impl ThreadSpec {
    /// One that makes a call after the other.
    pub(crate) fn new(name: impl Into<String>, files: Vec<FileIndex>) -> ThreadSpec {
        ThreadSpec { name: name.into(), depth: 1, files, is_background: false }
    }

    /// A thread that works in the background.
    pub(crate) fn background(name: impl Into<String>, files: Vec<FileIndex>) -> ThreadSpec {
        ThreadSpec { is_background: true, ..ThreadSpec::new(name, files) }
    }
}

/// A workload with a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    design: Arc<dyn Design>,
    common: Common,
    seed: u64,
}

impl Plan {
    pub(crate) fn new(design: Arc<dyn Design>, common: Common, seed: u64) -> Plan {
        Plan { design, common, seed }
    }

    /// Files 0 to this - 1 are to be prepared before the start, as [`Plan::file`] says.
    pub fn file_count(&self) -> u64 {
        self.design.file_count(&self.common)
    }

    /// Any file that a step names: those to prepare, and those that threads make. Takes constant time.
    pub fn file(&self, file: FileIndex) -> FileSpec {
        FileSpec { is_direct: self.common.is_direct, ..self.design.file(&self.common, self.seed, file) }
    }

    /// Directories 0 to this - 1 are to be made before the files, in this order.
    pub fn directory_count(&self) -> u64 {
        self.design.directory_count(&self.common)
    }

    /// Any directory's path.
    pub fn directory(&self, directory: DirectoryIndex) -> String {
        self.design.directory(directory)
    }

    /// How many threads run.
    pub fn thread_count(&self) -> u32 {
        self.design.thread_count(&self.common)
    }

    /// What the host should know of each thread, by number.
    pub fn threads(&self) -> impl Iterator<Item = ThreadSpec> {
        (0..self.thread_count()).map(|thread| self.design.thread(&self.common, thread))
    }

    /// When its threads start and when they are asked for no further step, after the experiment's start. A thread
    /// that then waits in a [`Step::Take`] is let go. The times in steps count from the start of this range.
    pub fn active(&self) -> Range<Span> {
        self.common.active.clone()
    }

    /// The steps of one thread, from its start.
    ///
    /// # Panics
    /// If there is no thread of this number.
    pub fn thread(&self, thread: u32) -> Thread {
        assert!(thread < self.thread_count(), "thread {thread} of {}", self.thread_count());
        let files = self.design.thread(&self.common, thread).files.into_iter();
        let script = Script { items: files.map(|file| Item::Step(Step::Call(Action::Open { file }))).collect() };
        let random = Random::new(self.seed, Purpose::Thread, u64::from(thread));
        Thread { program: self.design.program(&self.common, self.seed, thread), script, random, taken: 0 }
    }
}

/// Decides, unit by unit, what a thread does.
pub(crate) trait Generator: Send {
    /// Writes what comes next, a few items at a time; nothing: the thread ends. `taken` is what the last
    /// [`Step::Take`] took.
    fn next(&mut self, random: &mut Random, taken: u64, script: &mut Script);
}

/// A generator, owned.
pub(crate) type Program = Box<dyn Generator>;

/// Steps to come, long runs of them in constant memory.
#[derive(Default)]
pub(crate) struct Script {
    items: VecDeque<Item>,
}

enum Item {
    Step(Step),
    /// Reads or writes one after the other.
    Sweep {
        file: FileIndex,
        is_read: bool,
        range: Range<u64>,
        chunk: u64,
    },
}

impl Script {
    pub(crate) fn step(&mut self, step: Step) {
        self.items.push_back(Item::Step(step));
    }

    pub(crate) fn begin(&mut self, due: Option<Span>) {
        self.step(Step::Begin { due, deadline: None });
    }

    pub(crate) fn end(&mut self) {
        self.step(Step::End);
    }

    pub(crate) fn call(&mut self, action: Action) {
        self.step(Step::Call(action));
    }

    pub(crate) fn sleep(&mut self, span: Option<Span>) {
        if let Some(span) = span {
            self.step(Step::Sleep(span));
        }
    }

    pub(crate) fn post(&mut self, counter: Counter, count: u64) {
        self.step(Step::Post { counter, count });
    }

    /// Takes everything that is there, as soon as it is `at_least` so much.
    pub(crate) fn take_all(&mut self, counter: Counter, at_least: u64, until: Option<Span>) {
        self.step(Step::Take { counter, at_least, at_most: u64::MAX, until });
    }

    /// Calls of at most `chunk` bytes each through `range`.
    pub(crate) fn sweep(&mut self, file: FileIndex, is_read: bool, range: Range<u64>, chunk: u64) {
        self.items.push_back(Item::Sweep { file, is_read, range, chunk });
    }

    fn pop(&mut self) -> Option<Step> {
        loop {
            match self.items.front_mut()? {
                Item::Sweep { file, is_read, range, chunk } if !range.is_empty() => {
                    let (file, offset) = (*file, range.start);
                    let length = (*chunk).min(range.end - offset);
                    range.start += length;
                    return Some(Step::Call(transfer(*is_read, file, offset, length)));
                }
                Item::Sweep { .. } => drop(self.items.pop_front()),
                Item::Step(step) => {
                    let step = *step;
                    self.items.pop_front();
                    return Some(step);
                }
            }
        }
    }
}

/// A read or a write.
pub(crate) fn transfer(is_read: bool, file: FileIndex, offset: u64, length: u64) -> Action {
    if is_read { Action::Read { file, offset, length } } else { Action::Write { file, offset, length } }
}

/// The steps of a thread. Most threads never end: the host stops asking.
pub struct Thread {
    program: Program,
    script: Script,
    random: Random,
    taken: u64,
}

impl Thread {
    /// How much the last [`Step::Take`] took; the host must say so before it asks for the next step.
    pub fn took(&mut self, count: u64) {
        self.taken = count;
    }
}

impl Iterator for Thread {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(step) = self.script.pop() {
            return Some(step);
        }
        self.program.next(&mut self.random, self.taken, &mut self.script);
        self.script.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_covers_its_range_once_and_an_empty_one_is_nothing() {
        let mut script = Script::default();
        let file = FileIndex(3);
        script.sweep(file, true, 5..5, 4);
        script.sweep(file, false, 0..10, 4);
        let steps: Vec<Step> = std::iter::from_fn(|| script.pop()).collect();
        let write = |offset, length| Step::Call(Action::Write { file, offset, length });
        assert_eq!(steps, [write(0, 4), write(4, 4), write(8, 2)]);
    }

    /// Steps ahead of a thread at most: a page of an index and thirty rows (the longest unit that is written at once).
    const AHEAD_MAX: usize = 32;

    #[test]
    fn a_thread_remembers_few_steps_however_long_its_units() {
        for text in include_str!("../../../docs/workloads.md").lines() {
            let Ok(workload) = text.parse::<crate::Workload>() else { continue };
            let mut thread = workload.plan(1).thread(0);
            // The steps before the first unit open the files.
            let files = workload.plan(1).threads().next().unwrap().files.len();
            for _ in 0..20_000 {
                if let Some(Step::Take { at_least, .. }) = thread.next() {
                    thread.took(at_least);
                }
                assert!(thread.script.items.len() <= AHEAD_MAX.max(files), "{text}: {}", thread.script.items.len());
            }
        }
    }
}
