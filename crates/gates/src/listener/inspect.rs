//! What a notified call works on, from its arguments and what `/proc` says.
//!
//! A tenant may change that while we look, so nothing here is a check: it says what to charge, not what is allowed.
//! And nothing here waits for a tenant. Paths are not looked up and attributes come from the kernel's memory, since the
//! file system behind them may be the tenant's own. The tenant's memory is not read either. A missing page of it comes
//! from a file. That may be on that file system, or on the volume that waits for this very thread.

use super::ledger::Notification;
use crate::filter::table::{Extent, GATED, GatedCall, Place};
use plimsoll_core::FileId;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::io::{ErrorKind, Read};

/// Of what `fdinfo` says, position and flags are the first lines.
const FDINFO_BYTES: u64 = 128;

/// A file on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Major and minor number of its file system's device; of a block device's node, its own.
    pub device: (u32, u32),
    /// Its inode's number there.
    pub inode: u64,
}

impl FileKey {
    /// The file's number in schedulers: mixed from device and inode (the finalizer of SplitMix64; Steele, Lea and
    /// Flood, OOPSLA 2014). Two of a million files have the same number with a chance of 1 in 10^7. Never
    /// [`FileId::DEVICE`].
    pub const fn id(self) -> FileId {
        let device = (self.device.0 as u64) << 32 | self.device.1 as u64;
        let mut mixed = self.inode ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        FileId(if mixed == 0 { 1 } else { mixed })
    }
}

/// What was found out.
pub(super) struct Findings {
    pub call: &'static GatedCall,
    /// `None`: not to be seen.
    pub file: Option<FileKey>,
    pub offset: u64,
    pub length: u64,
}

/// Looks at a call. `None`: it cannot reach a disk, let it go on.
pub(super) fn inspect(notification: &Notification) -> Option<Findings> {
    let call = GATED.iter().find(|call| call.number == notification.number)?;
    let file = match call.place {
        Place::Unknown => None,
        Place::Path(directory) => path_start(notification, directory),
        Place::Descriptor(argument) => match file_of(notification.thread, notification.arguments[argument] as u32) {
            Found::OnDisk(file) => Some(file),
            Found::NotOnDisk => return None,
            Found::Hidden => None,
        },
    };
    let (offset, length) = extent(notification, call);
    Some(Findings { call, file, offset, length })
}

enum Found {
    OnDisk(FileKey),
    NotOnDisk,
    Hidden,
}

/// The file behind a descriptor of a thread.
fn file_of(thread: u32, descriptor: u32) -> Found {
    if thread == 0 {
        return Found::Hidden;
    }
    match attributes(&format!("/proc/{thread}/fd/{descriptor}")) {
        Ok((FileType::RegularFile | FileType::Directory | FileType::BlockDevice, file)) => Found::OnDisk(file),
        Ok(_) => Found::NotOnDisk,
        // No such descriptor: the call will say so itself.
        Err(error) if error.kind() == ErrorKind::NotFound => Found::NotOnDisk,
        Err(_) => Found::Hidden,
    }
}

/// The directory that a path starts from.
fn path_start(notification: &Notification, directory: Option<usize>) -> Option<FileKey> {
    let thread = Some(notification.thread).filter(|&thread| thread != 0)?;
    let descriptor = directory.map(|argument| notification.arguments[argument] as i32);
    let path = match descriptor.filter(|&descriptor| descriptor != libc::AT_FDCWD) {
        Some(descriptor) => format!("/proc/{thread}/fd/{descriptor}"),
        None => format!("/proc/{thread}/cwd"),
    };
    Some(attributes(&path).ok()?.1)
}

/// The kernel's remembered attributes of the file behind a link in `/proc`, which needs no look-up.
fn attributes(path: &str) -> std::io::Result<(FileType, FileKey)> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted)?;
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    let device = match kind {
        FileType::BlockDevice => (found.stx_rdev_major, found.stx_rdev_minor),
        _ => (found.stx_dev_major, found.stx_dev_minor),
    };
    Ok((kind, FileKey { device, inode: found.stx_ino }))
}

/// First byte and number of bytes, as far as the call has them.
fn extent(notification: &Notification, call: &GatedCall) -> (u64, u64) {
    let (length, offset) = match call.extent {
        Extent::None => return (0, 0),
        Extent::Bytes { length, offset } => (notification.arguments[length], offset),
        // How many bytes the vectors have stands in the tenant's memory.
        Extent::Vectors { offset } => (0, offset),
    };
    let position = || match call.place {
        Place::Descriptor(argument) => position(notification.thread, notification.arguments[argument] as u32),
        _ => None,
    };
    let offset = offset.map(|argument| notification.arguments[argument]).filter(|&offset| offset as i64 >= 0);
    (offset.or_else(position).unwrap_or(0), length)
}

/// Where a descriptor stands. A thread that appends is elsewhere by the time it writes; for that the file's end is what
/// counts.
fn position(thread: u32, descriptor: u32) -> Option<u64> {
    let file = std::fs::File::open(format!("/proc/{thread}/fdinfo/{descriptor}")).ok()?;
    let mut text = String::new();
    file.take(FDINFO_BYTES).read_to_string(&mut text).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    if flags & libc::O_APPEND as u32 != 0 {
        let found = statx(CWD, format!("/proc/{thread}/fd/{descriptor}"), AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE);
        return Some(found.ok()?.stx_size);
    }
    field("pos:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn notification(number: i64, arguments: [u64; 6]) -> Notification {
        Notification { id: 1, thread: rustix::thread::gettid().as_raw_nonzero().get() as u32, number, arguments }
    }

    #[test]
    fn a_write_is_found_with_its_file_and_place() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 5000]).unwrap();
        file.seek(SeekFrom::Start(700)).unwrap();
        let descriptor = file.as_raw_fd() as u64;
        let metadata = file.metadata().unwrap();
        let key = FileKey {
            device: (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev())),
            inode: metadata.ino(),
        };
        let found = inspect(&notification(libc::SYS_write, [descriptor, 0, 300, 0, 0, 0])).unwrap();
        assert_eq!((found.file, found.offset, found.length), (Some(key), 700, 300));
        let found = inspect(&notification(libc::SYS_pwrite64, [descriptor, 0, 300, 4096, 0, 0])).unwrap();
        assert_eq!((found.file, found.offset, found.length), (Some(key), 4096, 300));
        let vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1000 }; 3];
        let arguments = [descriptor, vectors.as_ptr() as u64, 3, 8192, 0, 0];
        let found = inspect(&notification(libc::SYS_pwritev2, arguments)).unwrap();
        assert_eq!((found.offset, found.length), (8192, 0));
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
        let found = inspect(&notification(libc::SYS_write, [descriptor, 0, 300, 0, 0, 0])).unwrap();
        assert_eq!(found.offset, 5000);
    }

    #[test]
    fn what_is_no_file_goes_on() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = reader.as_raw_fd() as u64;
        assert!(inspect(&notification(libc::SYS_write, [pipe, 0, 1, 0, 0, 0])).is_none());
        assert!(inspect(&notification(libc::SYS_fsync, [u64::from(u32::MAX), 0, 0, 0, 0, 0])).is_none());
    }

    /// To read it could wait for the server of the file that it is mapped from.
    #[test]
    fn the_tenants_memory_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        let vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1000 }; 3];
        for address in [vectors.as_ptr() as u64, 8] {
            let arguments = [file.as_raw_fd() as u64, address, 3, 0, 0, 0];
            assert_eq!(inspect(&notification(libc::SYS_writev, arguments)).unwrap().length, 0);
        }
        // Its flags are there too, so any openat2 may change the file system.
        let how = [u64::from(libc::O_RDWR as u32), 0, 0];
        for address in [how.as_ptr() as u64, 8] {
            let arguments = [libc::AT_FDCWD as u64, 0, address, 24, 0, 0];
            assert!(inspect(&notification(libc::SYS_openat2, arguments)).is_some());
        }
    }

    #[test]
    fn a_number_for_each_file_and_none_for_the_device() {
        let keys = (0..4u32).flat_map(|minor| (0..10_000).map(move |inode| FileKey { device: (8, minor), inode }));
        let mut ids: Vec<_> = keys.map(FileKey::id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 40_000);
        assert_ne!(FileKey { device: (0, 0), inode: 0 }.id(), FileId::DEVICE);
    }
}
