//! A volume's file on a file system with an `fsync` that fails when it is told to: which sessions hear of it.
//!
//! Planted breaks that turned it red: only the session that asked for the flush that failed is told; what the flush of
//! forced zeroes says is not heard.

use fuser::{
    BackgroundSession, Config, Errno as Answer, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use plimsoll_engine::backend::Volume;
use plimsoll_protocols::nbd::{CommandFlags, Errno};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{PATIENCE, Served, answered, file_config};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

const VOLUME_BYTES: u64 = 1 << 20;
const NAME: &str = "disk";
const INODE: INodeNo = INodeNo(2);
/// How long the kernel may remember what it was told of the file, which has attributes that never change.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// A directory with one file in memory.
struct OneFile {
    content: Mutex<Vec<u8>>,
    /// So many flushes from now fail.
    failures: Arc<AtomicU32>,
}

impl OneFile {
    fn content(&self) -> MutexGuard<'_, Vec<u8>> {
        self.content.lock().unwrap()
    }

    fn attributes(inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if is_root { 0 } else { VOLUME_BYTES },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&REMEMBERED, &OneFile::attributes(INODE), Generation(0));
        } else {
            reply.error(Answer::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&REMEMBERED, &OneFile::attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&self.content()[offset as usize..][..size as usize]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.content()[offset as usize..][..data.len()].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let failed = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match failed {
            Ok(_) => reply.error(Answer::EIO),
            Err(_) => reply.ok(),
        }
    }
}

/// Where it is mounted until it is dropped, and how it is told to fail.
fn mounted(directory: &std::path::Path) -> Option<(BackgroundSession, Arc<AtomicU32>)> {
    let failures = Arc::new(AtomicU32::new(0));
    let file = OneFile { content: Mutex::new(vec![0; VOLUME_BYTES as usize]), failures: failures.clone() };
    match fuser::spawn_mount(file, directory, &Config::default()) {
        Ok(session) => Some((session, failures)),
        Err(error) => {
            eprintln!("not run: cannot mount a FUSE file system: {error}");
            None
        }
    }
}

fn flushed(client: &mut Client) -> Result<(), Errno> {
    answered(client.flush())
}

/// What is lost may be any session's, whichever asked for the flush that failed.
/// Promise: volume-failed-flush.
#[test]
fn a_flush_that_the_file_refused_fails_the_next_one_of_every_client_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some((session, failures)) = mounted(directory.path()) else { return };
    let volume = Volume::open(file_config("v", &directory.path().join(NAME), None)).unwrap();
    let served = Served::plain(vec![volume]);
    let [mut one, mut other, mut third] = [1, 2, 3].map(|_| served.connect("v", 1, true));
    for client in [&mut one, &mut other, &mut third] {
        client.write(0, &[7; 512], false).unwrap();
        assert_eq!(flushed(client), Ok(()));
    }
    failures.store(1, Ordering::SeqCst);
    assert_eq!(flushed(&mut one), Err(Errno::InputOutput));
    for client in [&mut one, &mut other, &mut third] {
        client.write(4096, &[8; 512], false).unwrap();
        client.read(0, &mut [0; 512]).unwrap();
    }
    let mut later = served.connect("v", 1, true);
    assert_eq!(flushed(&mut later), Ok(()), "it came when a client had been told");
    assert_eq!(flushed(&mut one), Ok(()), "it was told");
    for client in [&mut other, &mut third] {
        assert_eq!([flushed(client), flushed(client)], [Err(Errno::InputOutput), Ok(())]);
    }
    // Forced zeroes are flushed, too.
    failures.store(1, Ordering::SeqCst);
    assert_eq!(answered(other.write_zeroes(0, 512, CommandFlags::FUA)), Err(Errno::InputOutput));
    assert_eq!(flushed(&mut other), Ok(()), "it was told");
    for client in [&mut one, &mut third] {
        assert_eq!([flushed(client), flushed(client)], [Err(Errno::InputOutput), Ok(())]);
    }
    drop((one, other, third, later));
    served.wait_until_all_have_gone();
    served.engine.shutdown(PATIENCE).unwrap();
    drop(served);
    // A program that looks at all mounts may have it open for a moment: only the join waits for that.
    rustix::mount::unmount(directory.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    session.join().unwrap();
}
