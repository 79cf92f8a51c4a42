//! What writes the steps of a thread, a few at a time, and where they wait.

use crate::random::Random;
use crate::step::{Action, Counter, FileIndex, Step};
use plimsoll_core::Span;
use std::collections::VecDeque;
use std::ops::Range;

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
    pub(crate) items: VecDeque<Item>,
}

pub(crate) enum Item {
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

    pub(crate) fn pop(&mut self) -> Option<Step> {
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
}
