//! The loop driver's ioctls, the only unsafe code of attaching. Structures and numbers: `include/uapi/linux/loop.h`.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;

/// Reads and writes go around the page cache of the backing file.
const FLAG_DIRECT_IO: u32 = 16;
/// Bytes of a name in `struct loop_info64`, with the zero at its end.
pub const NAME_BYTES: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInformation {
    device: u64,
    inode: u64,
    device_number: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption_kind: u32,
    encryption_key_bytes: u32,
    flags: u32,
    file_name: [u8; NAME_BYTES],
    encryption_name: [u8; NAME_BYTES],
    encryption_key: [u8; 32],
    initial: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfiguration {
    backing_file: u32,
    block_bytes: u32,
    information: LoopInformation,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInformation>() == 232 && size_of::<LoopConfiguration>() == 304);

const NO_INFORMATION: LoopInformation = LoopInformation {
    device: 0,
    inode: 0,
    device_number: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encryption_kind: 0,
    encryption_key_bytes: 0,
    flags: 0,
    file_name: [0; NAME_BYTES],
    encryption_name: [0; NAME_BYTES],
    encryption_key: [0; 32],
    initial: [0; 2],
};

/// What a loop device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// The name that its maker gave it.
    pub name: String,
    /// Whether it goes around the page cache.
    pub is_direct: bool,
    /// The number of the file system that its file is on.
    pub device: u64,
    /// Its file's inode.
    pub inode: u64,
}

/// The number of a free loop device; the kernel makes one if there is none. Another process may take it first.
pub fn find_free(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument and touches no memory of ours.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches `backing_file` to the free loop device `device`, with direct I/O, under `name`, cut to 63 bytes.
pub fn configure(device: &File, backing_file: &File, block_bytes: u32, name: &str) -> io::Result<()> {
    let mut information = LoopInformation { flags: FLAG_DIRECT_IO, ..NO_INFORMATION };
    for (to, from) in information.file_name[..NAME_BYTES - 1].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let backing_file = backing_file.as_raw_fd().unsigned_abs();
    let configuration = LoopConfiguration { backing_file, block_bytes, information, reserved: [0; 8] };
    // SAFETY: the pointer is to a whole `struct loop_config`, checked by size above, that lives across the call; the
    // kernel only reads it.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) })
}

/// What the loop device says of itself; ENXIO if nothing is behind it.
pub fn status(device: &File) -> io::Result<LoopStatus> {
    let mut information = NO_INFORMATION;
    // SAFETY: the pointer is to a whole `struct loop_info64`, checked by size above, that only we hold; the kernel
    // fills it, and every bit pattern is a value of its fields.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut information) })?;
    let name = information.file_name.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_direct = information.flags & FLAG_DIRECT_IO != 0;
    let LoopInformation { device, inode, .. } = information;
    Ok(LoopStatus { name: String::from_utf8_lossy(name).into_owned(), is_direct, device, inode })
}

/// Detaches the backing file. If a process has the device open, the kernel does so at the last close.
pub fn clear(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument and touches no memory of ours.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) })
}

fn checked(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether nothing is behind the device (any more).
pub fn is_unconfigured(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
}
