//! The two calls that `rustix` does not have.

use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// cachestat(2)'s number, the same on all architectures (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;
/// A page of memory, bytes.
pub const PAGE_BYTES: u64 = 4096;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

/// Pages by state, as the kernel fills it in.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Starts writing the dirty pages of a range, without waiting, unless the device's queue is full.
///
/// # Errors
/// What sync_file_range(2) says: an error of the disk that was seen before, or a file that cannot be written back.
pub fn start_writeback(file: &File, range: Range<u64>) -> Result<(), Errno> {
    let (offset, length) = (range.start as i64, (range.end - range.start) as i64);
    // SAFETY: the call takes no addresses.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Bytes of a range that are dirty and not yet being written.
///
/// # Errors
/// `NOSYS` before Linux 6.5; what cachestat(2) says otherwise.
pub fn dirty_bytes(file: &File, range: Range<u64>) -> Result<u64, Errno> {
    let range = CachestatRange { offset: range.start, length: range.end - range.start };
    let mut found = Cachestat::default();
    // SAFETY: both addresses are of this function's own variables, laid out as the kernel's.
    match unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &range, &mut found, 0u32) } {
        0 => Ok(found.dirty * PAGE_BYTES),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
