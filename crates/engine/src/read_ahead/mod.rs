//! Reading ahead: what a client reads in sequence is fetched before it asks for it. Decides what, without I/O or a
//! clock.
//!
//! **Intuition.** A client that reads in sequence with small requests waits for the device once for each. Asked for a
//! large piece before it is wanted, the device does the same work in fewer requests. The client waits for its own
//! network at the most.
//!
//! ```text
//!   read(offset, length) --> streams: does it go on where a stream was? --> slots: is it there, or on its way?
//!                                          |                                   yes: hand out      no: fetch, or alone
//!                                          +--> next_ahead: the next chunk of a stream with less than its window
//!   changed(offset, length) --> slots: what was written is dropped
//! ```
//!
//! **Rule.** After three reads one behind the other there is a stream (`streams`). What it reads and what is not there
//! is fetched as a whole chunk, and chunks follow until a window is ahead of it. The window is one chunk first. It
//! doubles after each useful chunk and halves after each useless one; after a useless single chunk there is none.
//! Chunks lie in the slots of a session (`Reader`): twice `read_ahead` bytes, whatever its client does, and no other
//! session's streams can take them.
//!
//! **Complication.** What is in a slot must be what is on the device. So the part of a slot that is written, trimmed or
//! zeroed is cut off when that is *done*. This holds for slots that are still being fetched too: a fetch that began
//! before may have read what was there before. Until then a read of it is left to the device (`changes`). And a client
//! that reads many short stretches would have a chunk fetched in vain for each. So the reads that make a stream become
//! twice as many with each stream that was of no use.
//!
//! A read costs O(streams + slots): at most 24 places and 64 slots, in memory that was taken when the session was
//! opened.

mod changes;
#[cfg(test)]
mod oracle;
mod reader;
mod streams;

pub(crate) use changes::Changes;
pub(crate) use reader::{Fetch, Figures, Lookup, ReadSegment, Reader};

/// Chunks that the largest window has, at least.
const CHUNKS_MIN: u32 = 8;
/// Largest chunk, bytes: a piece of a request ([`crate`]), which a scheduler orders as one.
const CHUNK_BYTES_MAX: u32 = 256 << 10;
/// Slots for each chunk of the largest window: one ahead, and one being read.
const SLOTS_PER_CHUNK: u32 = 2;

/// How far to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    bytes: u32,
}

impl ReadAhead {
    /// Least, bytes.
    pub const BYTES_MIN: u64 = 128 << 10;
    /// Most, bytes.
    pub const BYTES_MAX: u64 = 8 << 20;

    /// At most `bytes` ahead of a stream. `None` unless it is a power of two from [`BYTES_MIN`](Self::BYTES_MIN) to
    /// [`BYTES_MAX`](Self::BYTES_MAX).
    pub fn new(bytes: u64) -> Option<ReadAhead> {
        let is_allowed = bytes.is_power_of_two() && (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes);
        is_allowed.then_some(ReadAhead { bytes: bytes as u32 })
    }

    /// At most so many bytes ahead of a stream.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Bytes of a fetch: an eighth, at most 256 KiB.
    pub fn chunk_bytes(self) -> u32 {
        (self.bytes / CHUNKS_MIN).min(CHUNK_BYTES_MAX)
    }

    /// Chunks ahead of a stream at the most.
    pub(crate) fn window_max(self) -> u32 {
        self.bytes / self.chunk_bytes()
    }

    /// Chunks that a session has room for.
    pub(crate) fn slots(self) -> u32 {
        SLOTS_PER_CHUNK * self.window_max()
    }

    /// Most bytes of a session: twice the bytes that are read ahead of a stream.
    pub fn memory_bytes(self) -> u64 {
        u64::from(self.slots()) * u64::from(self.chunk_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_one_number() {
        let sizes = |bytes| {
            let settings = ReadAhead::new(bytes)?;
            Some((settings.chunk_bytes(), settings.window_max(), settings.slots(), settings.memory_bytes()))
        };
        assert_eq!(sizes(128 << 10), Some((16 << 10, 8, 16, 256 << 10)));
        assert_eq!(sizes(1 << 20), Some((128 << 10, 8, 16, 2 << 20)));
        assert_eq!(sizes(8 << 20), Some((256 << 10, 32, 64, 16 << 20)));
        assert_eq!([64 << 10, 16 << 20, (1 << 20) + 4096, 0].map(sizes), [None; 4]);
    }
}
