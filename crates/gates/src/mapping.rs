//! Memory that several processes have mapped, read and written as atomic words only.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A file's first bytes, mapped shared until dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value until it is dropped and is given out as atomics, or as addresses for the
// kernel.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, which must have them: an access beyond its end kills the process.
    pub(crate) fn new(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Mapping { start, bytes })
    }

    /// The address of `length` bytes at `offset`, for the kernel to fill.
    ///
    /// # Panics
    /// If they are not in the mapping.
    pub(crate) fn address(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.bytes), "{offset} is not in the mapping");
        // SAFETY: checked above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// If it is not in the mapping, or not aligned.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        let address: *mut u32 = self.address(offset, size_of::<u32>()).cast();
        assert!(address.is_aligned(), "{offset} is not a word's");
        // SAFETY: in the mapping and aligned, as checked; mapped as long as `self` is; only ever used as an atomic.
        unsafe { AtomicU32::from_ptr(address) }
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// As [`word`](Self::word).
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        let address: *mut u64 = self.address(offset, size_of::<u64>()).cast();
        assert!(address.is_aligned(), "{offset} is not a long word's");
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nothing borrowed from it outlives it. It fails only for arguments that are not
        // these.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
