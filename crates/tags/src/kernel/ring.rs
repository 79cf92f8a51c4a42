//! The ring of events, read where it lies: taking a record out costs no system call.
//!
//! The kernel's layout (`kernel/bpf/ringbuf.c`): a page with the reader's position, which the reader writes; a page with the
//! writers' position; then the data, mapped twice in a row, so that no record is ever cut at the end. Positions count
//! bytes and never go back. Before each record stands its length, with a bit that says that it is still being written,
//! and one that it was given up.

use crate::memory::SharedMemory;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

const BEING_WRITTEN: u32 = 1 << 31;
const GIVEN_UP: u32 = 1 << 30;
/// Bytes before each record.
const HEADER: usize = 8;
/// No record is longer.
const RECORD_MAX: usize = 64;

/// The reader's end of a ring.
pub(super) struct Ring {
    reader: SharedMemory,
    writers: SharedMemory,
    page: usize,
    bytes: usize,
}

impl Ring {
    /// Of a map of `bytes` bytes, a power of two.
    pub(super) fn new(map: impl AsFd, bytes: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let reader = SharedMemory::new(&map, page, true)?;
        let writers = SharedMemory::at(&map, page, page + 2 * bytes, false)?;
        Ok(Ring { reader, writers, page, bytes })
    }

    /// Takes out every record that is complete, in the order in which they were begun.
    pub(super) fn drain(&self, each: &mut dyn FnMut(&[u8])) {
        // Only we write it.
        let mut position = self.reader.word(0).load(Ordering::Relaxed);
        // Acquire: with a position comes what was written before it.
        let end = self.writers.word(0).load(Ordering::Acquire);
        while position < end {
            let at = self.page + (position as usize & (self.bytes - 1));
            let header = self.writers.half_word(at).load(Ordering::Acquire);
            if header & BEING_WRITTEN != 0 {
                break;
            }
            let length = (header & !GIVEN_UP) as usize;
            if header & GIVEN_UP == 0 {
                let mut record = [0; RECORD_MAX];
                let record = &mut record[..length.min(RECORD_MAX)];
                for (number, word) in record.chunks_mut(8).enumerate() {
                    let value = self.writers.word(at + HEADER + number * 8).load(Ordering::Relaxed);
                    word.copy_from_slice(&value.to_ne_bytes()[..word.len()]);
                }
                each(record);
            }
            position += (HEADER + length).next_multiple_of(8) as u64;
            // Release: what was read is read before its place is given back.
            self.reader.word(0).store(position, Ordering::Release);
        }
    }
}
