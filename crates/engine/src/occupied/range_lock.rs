//! Range locks that belong to an open file. The only unsafe code of this folder. See fcntl_locking(2), "Open file
//! description locks".
//!
//! A lock of flock(2) is on a whole file. Two loop devices may lie on two parts of one file, so their parts are locked.

use super::beneath::ByteExtent;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Locks these bytes of an open file until its close, shared with other readers or exclusively for a writer.
pub(super) fn lock_range(file: &File, extent: ByteExtent, is_shared: bool) -> Result<(), Errno> {
    let kind = if is_shared { libc::F_RDLCK } else { libc::F_WRLCK };
    let at = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (begin, end) = (at(extent.begin), at(extent.end));
    // A length of 0 is up to the end, wherever that comes to be.
    let length = if end == i64::MAX { 0 } else { (end - begin).max(1) };
    // SAFETY: a `struct flock` is numbers only, for which zeroes are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (begin, length);
    // SAFETY: the pointer is to a whole `struct flock` that lives across the call; the kernel only reads it.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: a range is locked up to the end of the file.
    #[test]
    fn ranges_that_meet_have_one_writer_or_readers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let [one, other, third] = [open(), open(), open()];
        let extent = |begin, end| ByteExtent { begin, end };
        assert_eq!(lock_range(&one, extent(0, 4096), false), Ok(()));
        assert_eq!(lock_range(&other, extent(4096, 8192), false), Ok(()));
        for met in [extent(0, u64::MAX), extent(4095, 4096), extent(8191, 9000)] {
            assert_eq!(lock_range(&third, met, true), Err(Errno::AGAIN), "{met:?}");
        }
        drop(one);
        assert_eq!(lock_range(&third, extent(0, 4096), true), Ok(()));
        assert_eq!(lock_range(&other, extent(0, 4096), true), Ok(()));
        assert_eq!(lock_range(&other, extent(0, 4096), false), Err(Errno::AGAIN));
    }
}
