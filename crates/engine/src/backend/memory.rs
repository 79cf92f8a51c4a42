//! A volume in memory: for tests, demos, and to measure the data path without a disk.

use crate::VolumeBytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Smallest range, in bytes, that is zeroed by giving its pages back. Below, writing zeroes is quicker. Pages that are
/// locked go too (`MADV_DONTNEED_LOCKED`): a process that serves file systems locks its memory.
const UNMAP_BYTES_MIN: usize = 64 * 1024;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// Bytes in memory; pages that were never written take none and read as zeroes.
///
/// Replies to reads are sent straight out of the mapping while the engine may be writing to it. So no reference to its
/// bytes is ever made: only addresses, copied from and to.
pub(crate) struct MemoryBackend {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the backend, and nothing in it is tied to a thread.
unsafe impl Send for MemoryBackend {}

impl MemoryBackend {
    /// Reserves `size_bytes` of address space.
    pub(crate) fn new(size_bytes: u64) -> io::Result<MemoryBackend> {
        let size = usize::try_from(size_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        Ok(MemoryBackend { base: NonNull::new(base.cast()).expect("mmap never answers with null"), size })
    }

    /// Asks for large pages. Copying to and from random places costs less, but the first write to each 2 MiB waits
    /// until all of them are cleared.
    pub(crate) fn use_large_pages(&mut self) {
        // SAFETY: the range is the backend's mapping, and its content stays. A refusal only means small pages.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.size, Advice::LinuxHugepage) };
    }

    /// Takes all memory now, so that no first write to a page waits for one.
    pub(crate) fn populate(&mut self) {
        // SAFETY: the range is the backend's mapping, and its content stays. A refusal only means that first writes
        // wait.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.size, Advice::LinuxPopulateWrite) };
    }

    /// Where `length` bytes from `offset` on are. Panics beyond the end: front ends' requests were checked before.
    pub(crate) fn bytes(&self, offset: u64, length: u32) -> VolumeBytes {
        VolumeBytes(self.at(offset, length as usize))
    }

    fn at(&self, offset: u64, length: usize) -> *mut u8 {
        let offset = offset as usize;
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        assert!(is_inside, "{length} bytes at {offset} lie outside of a volume of {} bytes", self.size);
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies `length` bytes from `source` to `offset`.
    ///
    /// # Safety
    /// `source` is valid for `length` bytes and lies outside of the volume.
    pub(crate) unsafe fn write(&mut self, offset: u64, source: *const u8, length: u32) {
        let destination = self.at(offset, length as usize);
        // SAFETY: `at` checked the destination; the caller promises the source.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, length as usize) }
    }

    /// Copies `length` bytes from `offset` on to `target`.
    ///
    /// # Safety
    /// `target` is valid for writing `length` bytes and lies outside of the volume.
    pub(crate) unsafe fn read(&self, offset: u64, target: *mut u8, length: u32) {
        let source = self.at(offset, length as usize);
        // SAFETY: `at` checked the source; the caller promises the target.
        unsafe { std::ptr::copy_nonoverlapping(source, target, length as usize) }
    }

    /// Makes `length` bytes from `offset` on zero, giving whole pages back.
    pub(crate) fn zero(&mut self, offset: u64, length: u32) {
        let start = self.at(offset, length as usize);
        let length = length as usize;
        let head = start.align_offset(PAGE_BYTES).min(length);
        let pages = (length - head) / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: all of it lies inside the range that `at` checked; private anonymous pages that were given back read
        // as zeroes, and if the kernel refuses, they are written.
        unsafe {
            let middle = start.add(head);
            if pages >= UNMAP_BYTES_MIN && madvise(middle.cast(), pages, Advice::LinuxDontneedLocked).is_ok() {
                std::ptr::write_bytes(start, 0, head);
                std::ptr::write_bytes(middle.add(pages), 0, length - head - pages);
            } else {
                std::ptr::write_bytes(start, 0, length);
            }
        }
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; a volume is dropped only when no front end can still send from it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(memory: &MemoryBackend, offset: u64, length: u32) -> Vec<u8> {
        // SAFETY: no thread writes meanwhile, and `bytes` checks the range.
        unsafe { std::slice::from_raw_parts(memory.bytes(offset, length).0, length as usize) }.to_vec()
    }

    #[test]
    fn zeroing_touches_exactly_its_range() {
        let size = 1 << 20;
        let ones = vec![1u8; size];
        for (offset, length) in [(512u64, 512u32), (512, 200 * 1024), (0, 1 << 20), (4096, 128 * 1024), (100, 0)] {
            let mut memory = MemoryBackend::new(size as u64).unwrap();
            // SAFETY: `ones` is a vector of that length.
            unsafe { memory.write(0, ones.as_ptr(), size as u32) };
            memory.zero(offset, length);
            let mut expected = ones.clone();
            expected[offset as usize..][..length as usize].fill(0);
            assert!(read(&memory, 0, size as u32) == expected, "{length} bytes at {offset}");
        }
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_beyond_the_end_is_reached() {
        MemoryBackend::new(4096).unwrap().bytes(4000, 97);
    }
}
