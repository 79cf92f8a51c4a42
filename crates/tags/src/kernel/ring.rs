//! The ring of events, read in place: taking a record out costs no system call.
//!
//! The kernel's layout (`kernel/bpf/ringbuf.c`) is a page with the reader's position, which the reader writes, and a
//! page with the writers' position. The data follows, mapped twice in a row, so that no record is cut at the end.
//! Positions count bytes and never go back. Before each record stands its length, with a bit that says that it is still
//! being written, and one that it was given up.

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

    /// Takes out complete records, in the order in which they were begun, at most `records_max`. The answer is true if
    /// it took so many, and more may be there.
    pub(super) fn drain(&self, records_max: usize, each: &mut dyn FnMut(&[u8])) -> bool {
        // Only we write it.
        let mut position = self.reader.word(0).load(Ordering::Relaxed);
        // Acquire: with a position comes what was written before it.
        let end = self.writers.word(0).load(Ordering::Acquire);
        let mut left = records_max;
        while position < end && left > 0 {
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
            left -= 1;
        }
        left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A ring in a file, as the kernel lays it out, with `count` records of eight bytes that have their number.
    fn ring(count: u64) -> (Ring, File) {
        let file = File::from(memfd_create("ring", MemfdFlags::CLOEXEC).unwrap());
        let (page, bytes) = (rustix::param::page_size(), 1 << 16);
        ftruncate(&file, (2 * page + 2 * bytes) as u64).unwrap();
        for number in 0..count {
            let record = [&8u32.to_ne_bytes()[..], &[0; 4], &number.to_ne_bytes()].concat();
            file.write_all_at(&record, 2 * page as u64 + number * record.len() as u64).unwrap();
        }
        file.write_all_at(&(count * 16).to_ne_bytes(), page as u64).unwrap();
        (Ring::new(&file, bytes).unwrap(), file)
    }

    /// Planted breaks: everything is taken out at once; a reader that has taken all is told that there is more.
    #[test]
    fn no_more_is_taken_out_than_was_asked_for_and_the_rest_stays() {
        let (ring, _file) = ring(10);
        let mut taken = Vec::new();
        let mut more = Vec::new();
        for records_max in [4, 4, 4, 4] {
            more.push(
                ring.drain(records_max, &mut |record| taken.push(u64::from_ne_bytes(record.try_into().unwrap()))),
            );
        }
        assert_eq!((taken, more), ((0..10).collect(), vec![true, true, false, false]));
    }
}
