//! Where a file's pages are on the device (FIEMAP). The structure and number: `include/uapi/linux/fiemap.h`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B;
const LAST: u32 = 1;
const EXTENTS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    more: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS],
}

/// A part of a file in one piece on the device, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub logical: u64,
    pub physical: u64,
    pub bytes: u64,
}

pub fn extents(path: &Path) -> Vec<Extent> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let mut request = Request {
            start,
            bytes: u64::MAX >> 1,
            flags: 0,
            mapped: 0,
            count: EXTENTS as u32,
            reserved: 0,
            extents: [RawExtent::default(); EXTENTS],
        };
        // SAFETY: the pointer is to a whole `struct fiemap` with room for as many extents as it says, which lives
        // across the call and has no invalid bit patterns.
        let outcome = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
        assert!(outcome == 0, "FIEMAP of {}: {}", path.display(), std::io::Error::last_os_error());
        let extents = &request.extents[..request.mapped as usize];
        found.extend(extents.iter().map(|it| Extent { logical: it.logical, physical: it.physical, bytes: it.bytes }));
        match extents.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical + last.bytes,
            _ => return found,
        }
    }
}
