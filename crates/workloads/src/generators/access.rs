//! Reads and writes of one file: sequential, random, in runs, mixed, appended, or again and again in memory.
//!
//! They differ only in where the next call goes and how many of a hundred are reads, so they are one generator. Runs
//! are those of the split-level paper's figures 6 and 13: R bytes one after the other, then a jump.

use crate::design::{Common, Design, SyncRule};
use crate::file::{Before, FileSpec};
use crate::pace::Pace;
use crate::random::Random;
use crate::script::{Generator, Program, Script, transfer};
use crate::step::{Action, FileIndex, Step};
use crate::thread::ThreadSpec;
use std::ops::Range;

/// Where the next call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// On from the last one, and from the start again at the end.
    Sequential,
    /// Anywhere, aligned to the call's length.
    Random,
    /// So many bytes on from each other, then anywhere.
    Runs {
        /// A multiple of the call's length.
        bytes: u64,
    },
    /// On from the last one into a file that grows; at its greatest length it is cut to nothing.
    Append,
}

/// Reads and writes of one file.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) read_percent: u32,
    pub(crate) pattern: Pattern,
    /// Bytes of a call.
    pub(crate) block: u64,
    pub(crate) name: String,
    /// Whether each thread has a file of its own.
    pub(crate) is_own: bool,
    /// Whether the file has no blocks at the start: it gets them where it is written.
    pub(crate) is_empty: bool,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// The part of the file that is used.
    pub(crate) region: Range<u64>,
}

impl Design for Access {
    fn file_count(&self, common: &Common) -> u64 {
        if self.is_own { u64::from(common.threads) } else { 1 }
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        let path = if self.is_own { format!("{}.{}", self.name, file.0) } else { self.name.clone() };
        if self.is_empty {
            return FileSpec::with(path, 0, Before::Empty);
        }
        FileSpec::filled(path, self.size)
    }

    fn thread(&self, common: &Common, thread: u32) -> ThreadSpec {
        let name = match self.read_percent {
            100 => "reader",
            0 => "writer",
            _ => "mixer",
        };
        ThreadSpec {
            depth: self.depth(common),
            ..ThreadSpec::new(format!("{name}.{thread}"), vec![self.file_of(thread)])
        }
    }

    fn program(&self, common: &Common, _seed: u64, thread: u32) -> Program {
        let blocks = (self.region.end - self.region.start) / self.block;
        let skipped = if self.is_own { 0 } else { spread(thread, blocks) };
        Box::new(AccessThread {
            design: self.clone(),
            file: self.file_of(thread),
            sync: common.sync,
            is_started: self.depth(common) > 1,
            pace: common.pace(),
            position: self.region.start + skipped * self.block,
            run_left: 0,
            unsynced: 0,
        })
    }
}

impl Access {
    /// Appended writes go one after the other, or they would leave holes.
    fn depth(&self, common: &Common) -> u32 {
        if self.pattern == Pattern::Append { 1 } else { common.depth() }
    }
    fn file_of(&self, thread: u32) -> FileIndex {
        FileIndex(if self.is_own { u64::from(thread) } else { 0 })
    }
}

/// First block of a thread among `blocks`. Threads that read one file sequentially start far from each other (Zygaria,
/// section 5.3): at the start, the half, a quarter, three quarters and so on. So one more leaves the others where they
/// are.
fn spread(thread: u32, blocks: u64) -> u64 {
    ((u128::from(blocks) * u128::from(thread.reverse_bits())) >> u32::BITS) as u64
}

struct AccessThread {
    design: Access,
    file: FileIndex,
    sync: Option<SyncRule>,
    /// Calls are started and not waited for.
    is_started: bool,
    pace: Pace,
    position: u64,
    /// Bytes until the next jump.
    run_left: u64,
    /// Writes since the last sync.
    unsynced: u64,
}

impl AccessThread {
    /// The next place; true if an appended file must be cut first.
    fn advance(&mut self, random: &mut Random) -> (u64, bool) {
        let Access { pattern, block, ref region, .. } = self.design;
        let blocks = (region.end - region.start) / block;
        let mut is_wrapped = false;
        match pattern {
            Pattern::Random => self.position = region.start + random.below(blocks) * block,
            Pattern::Sequential | Pattern::Append => {
                is_wrapped = self.position + block > region.end;
                if is_wrapped {
                    self.position = region.start;
                }
            }
            Pattern::Runs { bytes } => {
                if self.run_left == 0 {
                    let starts = (region.end - region.start - bytes) / block + 1;
                    self.position = region.start + random.below(starts) * block;
                    self.run_left = bytes;
                }
                self.run_left -= block;
            }
        }
        let offset = self.position;
        self.position += block;
        (offset, is_wrapped && pattern == Pattern::Append)
    }
}

impl Generator for AccessThread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        let (offset, is_full) = self.advance(random);
        let is_read = random.percent(self.design.read_percent);
        let action = transfer(is_read, self.file, offset, self.design.block);
        let is_first = self.unsynced == 0;
        let due = if is_first { self.pace.next(random) } else { None };
        if self.is_started {
            script.step(Step::Start { due, action });
            return;
        }
        if is_first {
            script.begin(due);
        }
        if is_full {
            script.call(Action::Truncate { file: self.file, length: 0 });
        }
        script.call(action);
        self.unsynced += 1;
        if self.unsynced < self.sync.map_or(1, |sync| sync.every) {
            return;
        }
        self.unsynced = 0;
        if let Some(sync) = self.sync {
            script.call(sync.action(self.file));
        }
        script.end();
        script.sleep(self.pace.think());
    }
}
