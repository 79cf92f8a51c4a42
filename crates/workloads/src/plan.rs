//! A workload with a seed: the files to prepare, and the threads to run.

use crate::design::{Common, Design};
use crate::file::FileSpec;
use crate::random::{Purpose, Random};
use crate::script::{Item, Program, Script};
use crate::step::{Action, DirectoryIndex, FileIndex, Step};
use crate::thread::ThreadSpec;
use plimsoll_core::Span;
use std::ops::Range;
use std::sync::Arc;

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
