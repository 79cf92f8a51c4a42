//! Notices deleted inodes of a file system: fanotify(7) with one mark on all of it, and no memory per file.
//!
//! An event has the file's handle, as open_by_handle_at(2) takes it, and in it the inode. When more is deleted than is
//! heard, the kernel says that something was lost.

use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of events that are taken at a time: several hundred.
const EVENT_BYTES: usize = 16 << 10;
/// Kinds of file handles, as `files/handle.rs` has them.
const HANDLE_NARROW: i32 = 1;
const HANDLE_WIDE_OF_XFS: i32 = 0x81;
/// Bytes of `fanotify_event_metadata`, and of an information record before its file handle's content.
const METADATA_BYTES: usize = 24;
const RECORD_BYTES: usize = 20;

pub(super) struct Deletions {
    group: OwnedFd,
}

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    /// An inode.
    Inode(u64),
    /// Any number of inodes.
    Unknown,
}

fn system_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Deletions {
    /// Those on the file system of the directory `mount`, from now on. It takes root.
    pub(super) fn on(mount: &File) -> Result<Deletions, Errno> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: it takes numbers only.
        let group = unsafe { libc::fanotify_init(flags, 0) };
        if group < 0 {
            return Err(system_error());
        }
        // SAFETY: the call succeeded, so the descriptor is new and only ours.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: both descriptors are open, and without a path there is no pointer to follow.
        let marked = unsafe {
            libc::fanotify_mark(group.as_raw_fd(), how, libc::FAN_DELETE_SELF, mount.as_raw_fd(), std::ptr::null())
        };
        if marked < 0 { Err(system_error()) } else { Ok(Deletions { group }) }
    }

    /// Takes what has happened, without waiting.
    pub(super) fn take(&self, mut each: impl FnMut(Deleted)) {
        let mut bytes = vec![0; EVENT_BYTES];
        while let Ok(received @ 1..) = rustix::io::read(&self.group, &mut bytes) {
            parse(&bytes[..received], &mut each);
        }
    }
}

impl AsFd for Deletions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

/// Reads events: `fanotify_event_metadata` { u32 bytes, u8 version, u8, u16 metadata bytes, u64 mask, i32, i32 }.
/// Records follow: { u8 type, u8, u16 bytes, u64 file system, file handle { u32 bytes, i32 kind, content } }.
fn parse(mut bytes: &[u8], each: &mut impl FnMut(Deleted)) {
    let number = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    while bytes.len() >= METADATA_BYTES {
        let length = number(bytes, 0) as usize;
        if length < METADATA_BYTES || length > bytes.len() {
            return each(Deleted::Unknown);
        }
        let (event, rest) = bytes.split_at(length);
        bytes = rest;
        let mask = u64::from_ne_bytes(event[8..16].try_into().expect("eight bytes"));
        let record = &event[METADATA_BYTES..];
        if mask & libc::FAN_Q_OVERFLOW != 0 || record.len() < RECORD_BYTES {
            each(Deleted::Unknown);
            continue;
        }
        let (kind, content) = (number(record, 16) as i32, &record[RECORD_BYTES..]);
        each(match kind {
            HANDLE_NARROW if content.len() >= 8 => Deleted::Inode(u64::from(number(content, 0))),
            HANDLE_WIDE_OF_XFS if content.len() >= 12 => {
                Deleted::Inode(u64::from(number(content, 0)) | u64::from(number(content, 4)) << 32)
            }
            _ => Deleted::Unknown,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, kind: i32, content: &[u8]) -> Vec<u8> {
        let record = if content.is_empty() { 0 } else { RECORD_BYTES + content.len() };
        let mut bytes = ((METADATA_BYTES + record) as u32).to_ne_bytes().to_vec();
        bytes.extend([3, 0, 24, 0]);
        bytes.extend(mask.to_ne_bytes());
        bytes.extend([0; 8]);
        if record > 0 {
            bytes.extend([1, 0]);
            bytes.extend((record as u16).to_ne_bytes());
            bytes.extend([0; 8]);
            bytes.extend((content.len() as u32).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(content);
        }
        bytes
    }

    #[test]
    fn events_are_read_and_what_is_not_understood_may_be_anything() {
        let mut bytes = event(libc::FAN_DELETE_SELF, HANDLE_NARROW, &[7, 1, 0, 0, 9, 9, 9, 9]);
        bytes.extend(event(libc::FAN_DELETE_SELF, HANDLE_WIDE_OF_XFS, &[7, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9]));
        bytes.extend(event(libc::FAN_Q_OVERFLOW, 0, &[]));
        bytes.extend(event(libc::FAN_DELETE_SELF, 77, &[1; 8]));
        bytes.extend([255; 30]);
        let mut heard = Vec::new();
        parse(&bytes, &mut |deleted| heard.push(deleted));
        let expected =
            [Deleted::Inode(263), Deleted::Inode(7 | 1 << 32), Deleted::Unknown, Deleted::Unknown, Deleted::Unknown];
        assert_eq!(heard, expected);
    }
}
