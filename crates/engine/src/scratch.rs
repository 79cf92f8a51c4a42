//! Memory into which is encrypted what encrypted volumes of a device write.
//!
//! The client's own bytes stay as they are: an initiator may have them compared with what is read back, or written a
//! thousand times (`scsi/job.rs`). **Rule.** A piece takes a buffer and encrypts as much as fits. It has that written,
//! encrypts the next part into the same buffer, and gives it back when it is done. **Complication.** There are a few
//! hundred, however many pieces there are. A piece that finds none stands in a line, and no piece passes it by. A piece
//! with a buffer needs nothing else that a piece in the line has, so the line moves.

use super::buffer::{Arena, Buffer, BufferClass};
use crate::path::request::TRANSFER_PIECE_BYTES_MAX;
use std::collections::VecDeque;
use std::io;

/// Number and size of buffers: for most requests, and for streaming ones. Memory is taken when one is first used, 7 MiB
/// when all were.
const CLASSES: &[BufferClass] = &[
    BufferClass { bytes: 4096, count: 256 },
    BufferClass { bytes: 64 * 1024, count: 32 },
    BufferClass { bytes: TRANSFER_PIECE_BYTES_MAX, count: 16 },
];

/// The buffers, and the pieces that wait for one.
pub(super) struct Scratch {
    arena: Arena,
    line: VecDeque<u32>,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Scratch> {
        Ok(Scratch { arena: Arena::new(CLASSES, None)?, line: VecDeque::new() })
    }

    fn find(&mut self, bytes: u32) -> Option<Buffer> {
        self.arena.take(bytes.min(TRANSFER_PIECE_BYTES_MAX)).ok()
    }

    /// A buffer for a piece of so many bytes, or for a part of it. Without one the piece stands in the line.
    pub(super) fn take(&mut self, piece: u32, bytes: u32) -> Option<Buffer> {
        let found = if self.line.is_empty() { self.find(bytes) } else { None };
        if found.is_none() {
            self.line.push_back(piece);
        }
        found
    }

    pub(super) fn give(&mut self, buffer: Buffer) {
        self.arena.give(buffer);
    }

    /// The first piece in line and its buffer, if one is free now. `length_of` says how long a piece is.
    pub(super) fn next(&mut self, length_of: impl FnOnce(u32) -> u32) -> Option<(u32, Buffer)> {
        let &first = self.line.front()?;
        let buffer = self.find(length_of(first))?;
        self.line.pop_front();
        Some((first, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: a newcomer takes what is free, whichever piece waits.
    /// Promise: encrypted-oracle.
    #[test]
    fn no_piece_is_passed_by_and_every_piece_comes() {
        let mut scratch = Scratch::new().unwrap();
        let large = TRANSFER_PIECE_BYTES_MAX;
        let mut taken: Vec<Buffer> = (0..16).map(|piece| scratch.take(piece, 4 * large).unwrap()).collect();
        assert!(taken.iter().all(|buffer| buffer.capacity() == large as usize), "a long piece takes several turns");
        assert!(scratch.take(16, large).is_none() && scratch.take(17, 512).is_none(), "17 stands behind 16");
        let length_of = |piece| if piece == 16 { large } else { 512 };
        assert!(scratch.next(length_of).is_none());
        scratch.give(taken.pop().unwrap());
        let (first, buffer) = scratch.next(length_of).unwrap();
        assert_eq!((first, buffer.capacity()), (16, large as usize));
        taken.push(buffer);
        let (second, buffer) = scratch.next(length_of).unwrap();
        assert_eq!((second, buffer.capacity()), (17, 4096));
        taken.push(buffer);
        assert!(scratch.next(length_of).is_none());
        taken.push(scratch.take(18, 512).expect("no thread waits any more"));
        taken.into_iter().for_each(|buffer| scratch.give(buffer));
        assert_eq!(scratch.arena.out(), 0);
    }
}
