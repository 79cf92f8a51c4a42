//! Threads that only compute. The split-level paper's figure 15 runs them to show that its many threads disturb the
//! reader by the processor and not by the disk.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::random::Random;
use crate::script::{Generator, Program, Script};
use crate::step::{FileIndex, Step};
use crate::thread::ThreadSpec;
use plimsoll_core::Span;

/// How much is computed in one step. Ours: short beside a scheduler's time slice, so that a host can share cores
/// fairly.
const STEP: Span = Span::from_millis(1);

/// Threads that only compute.
#[derive(Clone, Debug)]
pub(crate) struct Spin;

impl Design for Spin {
    fn file_count(&self, _common: &Common) -> u64 {
        0
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        FileSpec::with(format!("none.{}", file.0), 0, Before::Absent)
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        ThreadSpec::new(format!("spinner.{thread}"), Vec::new())
    }

    fn program(&self, _common: &Common, _seed: u64, _thread: u32) -> Program {
        Box::new(Spinner)
    }
}

struct Spinner;

impl Generator for Spinner {
    fn next(&mut self, _random: &mut Random, _taken: u64, script: &mut Script) {
        script.step(Step::Compute(STEP));
    }
}
