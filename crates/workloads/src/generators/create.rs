//! Files made one after the other, with some bytes or none, each perhaps made durable: the metadata workload of the
//! split-level paper's figure 17.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::pace::Pace;
use crate::random::Random;
use crate::script::{Generator, Program, Script};
use crate::step::{Action, FileIndex};
use crate::thread::{THREADS_MAX, ThreadSpec};

/// Bytes of one write call into a new file, the size of a page.
const WRITE_BYTES: u64 = 4096;

/// Files made one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Create {
    /// Bytes of each.
    pub(crate) bytes: u64,
}

impl Design for Create {
    fn file_count(&self, _common: &Common) -> u64 {
        0
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        let (number, thread) = (file.0 / u64::from(THREADS_MAX), file.0 % u64::from(THREADS_MAX));
        FileSpec::with(format!("d{thread}/f{number}"), 0, Before::Absent)
    }

    fn directory_count(&self, common: &Common) -> u64 {
        u64::from(common.threads)
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        ThreadSpec::new(format!("creator.{thread}"), Vec::new())
    }

    fn program(&self, common: &Common, _seed: u64, thread: u32) -> Program {
        let file = FileIndex(u64::from(thread));
        Box::new(CreateThread { bytes: self.bytes, common: common.clone(), pace: common.pace(), file, made: 0 })
    }
}

struct CreateThread {
    bytes: u64,
    common: Common,
    pace: Pace,
    file: FileIndex,
    made: u64,
}

impl Generator for CreateThread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        let file = self.file;
        script.begin(self.pace.next(random));
        script.call(Action::Create { file });
        script.sweep(file, false, 0..self.bytes, WRITE_BYTES);
        self.made += 1;
        if let Some(sync) = self.common.sync.filter(|sync| self.made.is_multiple_of(sync.every)) {
            script.call(sync.action(file));
        }
        script.call(Action::Close { file });
        script.end();
        script.sleep(self.pace.think());
        self.file.0 += u64::from(THREADS_MAX);
    }
}
