//! A checkpointing database: what SQLite does in WAL mode (the split-level paper's figure 18).
//!
//! One connection updates random rows: it reads the row's page, appends the new page to the log, and calls fsync on
//! the log. Another begins a checkpoint whenever the log has so many pages ("dirty buffers") more. It makes the log
//! durable, reads the changed pages from it, writes them to the database in order of place, and calls fsync on the
//! database.
//!
//! **Complication.** SQLite starts its log anew when a checkpoint has caught up with it. Here the log is a circle that
//! holds two checkpoints' worth, so its length is bounded. The paper's minor changes to SQLite (concurrent appends and
//! checkpoints) also need that. Which pages are dirty follows from how many updates there were, as in the TPC-B-like
//! workload.

use crate::design::{Common, Design};
use crate::file::FileSpec;
use crate::pace::Pace;
use crate::random::{DirtyPages, Random};
use crate::script::{Generator, Program, Script};
use crate::step::{Action, Counter, FileIndex};
use crate::thread::ThreadSpec;

/// Bytes of a page (SQLite's default since 3.12).
const PAGE: u64 = 4096;
/// Bytes before a page in the log (SQLite's file format, section 4.1).
const FRAME_HEADER: u64 = 24;
/// Bytes before the first frame of the log (SQLite's file format, section 4.1).
const LOG_HEADER: u64 = 32;
/// Checkpoints that the log has room for. Ours: one being copied and one being written.
const LOG_CHECKPOINTS: u64 = 2;

const DATABASE: FileIndex = FileIndex(0);
const LOG: FileIndex = FileIndex(1);

/// Pages in the log that no checkpoint has taken.
const FRAMES: Counter = Counter(0);

/// A checkpointing database.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Dirty buffers that begin a checkpoint.
    pub(crate) checkpoint: u64,
}

impl Database {
    /// The smallest database: one page. Bytes.
    pub(crate) const SIZE_MIN: u64 = PAGE;

    fn pages(&self) -> u64 {
        self.size / PAGE
    }

    fn frames(&self) -> u64 {
        LOG_CHECKPOINTS * self.checkpoint
    }
}

/// First byte of a frame of the log.
fn frame(number: u64) -> u64 {
    LOG_HEADER + number * (FRAME_HEADER + PAGE)
}

impl Design for Database {
    fn file_count(&self, _common: &Common) -> u64 {
        2
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        match file {
            DATABASE => FileSpec::filled(self.name.clone(), self.pages() * PAGE),
            _ => FileSpec::filled(format!("{}-wal", self.name), frame(self.frames())),
        }
    }

    fn thread_count(&self, _common: &Common) -> u32 {
        2
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        match thread {
            0 => ThreadSpec::new("client.0", vec![DATABASE, LOG]),
            _ => ThreadSpec::background("checkpointer", vec![DATABASE, LOG]),
        }
    }

    fn program(&self, common: &Common, _seed: u64, thread: u32) -> Program {
        match thread {
            0 => Box::new(Client { pages: self.pages(), frames: self.frames(), next: 0, pace: common.pace() }),
            _ => Box::new(Checkpointer {
                design: self.clone(),
                dirty: DirtyPages::new(self.pages(), 0),
                is_waiting: false,
                is_dirty: false,
            }),
        }
    }
}

struct Client {
    pages: u64,
    /// Frames of the log.
    frames: u64,
    /// The next frame.
    next: u64,
    pace: Pace,
}

impl Generator for Client {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        script.begin(self.pace.next(random));
        script.call(Action::Read { file: DATABASE, offset: random.below(self.pages) * PAGE, length: PAGE });
        script.call(Action::Write { file: LOG, offset: frame(self.next), length: FRAME_HEADER + PAGE });
        script.call(Action::Fsync { file: LOG });
        script.post(FRAMES, 1);
        script.end();
        script.sleep(self.pace.think());
        self.next = (self.next + 1) % self.frames;
    }
}

struct Checkpointer {
    design: Database,
    dirty: DirtyPages,
    is_waiting: bool,
    is_dirty: bool,
}

impl Generator for Checkpointer {
    fn next(&mut self, random: &mut Random, taken: u64, script: &mut Script) {
        if self.is_waiting {
            (self.is_waiting, self.is_dirty) = (false, true);
            self.dirty = DirtyPages::new(self.design.pages(), taken);
            script.begin(None);
            script.call(Action::Fsync { file: LOG });
        }
        if let Some(page) = self.dirty.next(random) {
            let offset = frame(random.below(self.design.frames())) + FRAME_HEADER;
            script.call(Action::Read { file: LOG, offset, length: PAGE });
            script.call(Action::Write { file: DATABASE, offset: page * PAGE, length: PAGE });
            return;
        }
        if self.is_dirty {
            script.call(Action::Fsync { file: DATABASE });
            script.end();
        }
        script.take_all(FRAMES, self.design.checkpoint, None);
        (self.is_waiting, self.is_dirty) = (true, false);
    }
}
