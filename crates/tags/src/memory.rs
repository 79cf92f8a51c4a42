//! Memory that BPF programs and we share. Unsafe code of this crate is here and in `kernel::batch`.
//!
//! The kernel's side may write at any time, so it is never borrowed as a plain value. Every access is an atomic one to
//! an aligned word, checked against the end.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::{io, ptr};

/// A map of the kernel, mapped into our memory.
pub(crate) struct SharedMemory {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is only reached through atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// New memory of zeroes that no other code has.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<SharedMemory> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { start, bytes })
    }

    /// Maps the first `bytes` of `map`, an array of that size made with `BPF_F_MMAPABLE`.
    pub(crate) fn new(map: impl AsFd, bytes: usize, is_writable: bool) -> io::Result<SharedMemory> {
        SharedMemory::at(map, 0, bytes, is_writable)
    }

    /// Maps `bytes` of a map from `offset` on, a multiple of the page size.
    pub(crate) fn at(map: impl AsFd, offset: usize, bytes: usize, is_writable: bool) -> io::Result<SharedMemory> {
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, map, offset as u64)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { start, bytes })
    }

    /// The 64-bit word at `offset`, a multiple of eight below the end. A mapping that is not writable may only be
    /// loaded from.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "word at {offset} of {}", self.bytes);
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, both checked above; programs of the
        // kernel change such words as atomics do. A load of this size never writes, so read-only pages are fine.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().byte_add(offset).cast()) }
    }

    /// The 32-bit word at `offset`, a multiple of four below the end.
    pub(crate) fn half_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "half word at {offset} of {}", self.bytes);
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().byte_add(offset).cast()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped by us with this size, and nothing borrowed from it outlives `self`. That it is not
        // mapped any more cannot happen, so the answer does not matter.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}
