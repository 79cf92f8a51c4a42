//! Media: so many bytes a second, each piece wanted before the next one is due (Zygaria's figure 6, "media").

use crate::design::{Common, Design};
use crate::file::FileSpec;
use crate::random::Random;
use crate::script::{Generator, Program, Script, transfer};
use crate::step::{FileIndex, Step};
use crate::thread::ThreadSpec;
use plimsoll_core::Span;

/// A player or a recorder of media.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) is_read: bool,
    pub(crate) bytes_per_second: f64,
    /// Bytes of a piece.
    pub(crate) block: u64,
    pub(crate) name: String,
    /// Bytes of the file.
    pub(crate) size: u64,
}

impl Design for Stream {
    fn file_count(&self, common: &Common) -> u64 {
        u64::from(common.threads)
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        FileSpec::filled(format!("{}.{}", self.name, file.0), self.size)
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        let name = if self.is_read { "player" } else { "recorder" };
        ThreadSpec::new(format!("{name}.{thread}"), vec![FileIndex(u64::from(thread))])
    }

    fn program(&self, _common: &Common, _seed: u64, thread: u32) -> Program {
        Box::new(StreamThread { design: self.clone(), file: FileIndex(u64::from(thread)), pieces: 0, position: 0 })
    }
}

struct StreamThread {
    design: Stream,
    file: FileIndex,
    pieces: u64,
    position: u64,
}

impl StreamThread {
    /// When a piece is due: its bytes before it at the stream's rate, so that no rounding adds up.
    fn due(&self, piece: u64) -> Span {
        Span::from_secs_f64(piece as f64 * self.design.block as f64 / self.design.bytes_per_second)
    }
}

impl Generator for StreamThread {
    fn next(&mut self, _random: &mut Random, _taken: u64, script: &mut Script) {
        if self.position + self.design.block > self.design.size {
            self.position = 0;
        }
        let (due, deadline) = (Some(self.due(self.pieces)), Some(self.due(self.pieces + 1)));
        script.step(Step::Begin { due, deadline });
        script.call(transfer(self.design.is_read, self.file, self.position, self.design.block));
        script.end();
        self.pieces += 1;
        self.position += self.design.block;
    }
}
