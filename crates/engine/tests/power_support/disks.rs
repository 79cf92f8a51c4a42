//! Two disks as files on a FUSE file system, in the memory of this process. What is written to one is in its volatile
//! cache until it is flushed. When the power fails, both answer nothing but errors. Each may have lost any part of what
//! was not flushed, torn at 512 bytes.

use fuser::{
    BackgroundSession, Config, Errno as Answer, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use plimsoll_testkit::Random;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

pub const NAMES: [&str; 2] = ["slow", "fast"];
pub const SECTOR: usize = 512;
const FIRST_INODE: u64 = 2;
/// How long the kernel may remember what it was told of the files, which have attributes that never change.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// One disk.
struct Disk {
    /// What survives.
    durable: Vec<u8>,
    /// What is read.
    current: Vec<u8>,
    /// What was written since the last flush, oldest first.
    volatile: Vec<(usize, Vec<u8>)>,
}

impl Disk {
    fn new(bytes: usize) -> Disk {
        Disk { durable: vec![0; bytes], current: vec![0; bytes], volatile: Vec::new() }
    }

    /// This is durable now, and nothing older takes its place; all else stays as volatile as it is.
    fn force(&mut self, offset: usize, bytes: &[u8]) {
        self.durable[offset..][..bytes.len()].copy_from_slice(bytes);
        for (at, older) in &mut self.volatile {
            let (begin, end) = (offset.max(*at), (offset + bytes.len()).min(*at + older.len()));
            if begin < end {
                older[begin - *at..end - *at].copy_from_slice(&bytes[begin - offset..end - offset]);
            }
        }
    }

    fn flush(&mut self) {
        self.volatile.clear();
        self.durable.copy_from_slice(&self.current);
    }

    /// Loses any part of what was not flushed: whole writes, or sectors of them.
    fn lose(&mut self, random: &mut Random) {
        let tears = random.below(2) == 0;
        let kept_of_8 = random.below(9);
        for (offset, bytes) in std::mem::take(&mut self.volatile) {
            let is_kept = random.below(8) < kept_of_8;
            for (at, sector) in bytes.chunks(SECTOR).enumerate() {
                if if tears { random.below(8) < kept_of_8 } else { is_kept } {
                    self.durable[offset + at * SECTOR..][..sector.len()].copy_from_slice(sector);
                }
            }
        }
        self.current.copy_from_slice(&self.durable);
    }
}

struct State {
    disks: [Disk; 2],
    has_power: bool,
}

/// Both disks; clones are of the same.
#[derive(Clone)]
pub struct Disks(Arc<Mutex<State>>);

impl Disks {
    /// Disks of so many bytes that hold zeroes.
    pub fn new(bytes: [usize; 2]) -> Disks {
        Disks(Arc::new(Mutex::new(State { disks: bytes.map(Disk::new), has_power: true })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Nothing is read, written or flushed from now on.
    pub fn power_off(&self) {
        self.state().has_power = false;
    }

    /// Power is back; the disks that are said have lost some of what was not flushed, the others have written it.
    pub fn power_on(&self, loses: [bool; 2], random: &mut Random) {
        let mut state = self.state();
        for (disk, loses) in state.disks.iter_mut().zip(loses) {
            match loses {
                true => disk.lose(random),
                false => disk.flush(),
            }
        }
        state.has_power = true;
    }

    /// Mounts them in `directory` until the session is dropped; says why not.
    pub fn mount(&self, directory: &Path) -> Option<BackgroundSession> {
        fuser::spawn_mount(self.clone(), directory, &Config::default())
            .inspect_err(|error| eprintln!("not run: cannot mount a FUSE file system: {error}"))
            .ok()
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let disk = inode.0.checked_sub(FIRST_INODE).map(|disk| self.state().disks[disk as usize].current.len());
        FileAttr {
            ino: inode,
            size: disk.unwrap_or(0) as u64,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if disk.is_none() { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Does `work` with a disk, if there is power.
    fn with<T>(&self, inode: INodeNo, work: impl FnOnce(&mut Disk) -> T) -> Result<T, Answer> {
        let mut state = self.state();
        match state.has_power {
            true => Ok(work(&mut state.disks[(inode.0 - FIRST_INODE) as usize])),
            false => Err(Answer::EIO),
        }
    }

    fn put(&self, inode: INodeNo, offset: u64, bytes: Vec<u8>, is_forced: bool) -> Result<(), Answer> {
        self.with(inode, |disk| {
            let offset = offset as usize;
            disk.current[offset..][..bytes.len()].copy_from_slice(&bytes);
            match is_forced {
                true => disk.force(offset, &bytes),
                false => disk.volatile.push((offset, bytes)),
            }
        })
    }
}

impl Filesystem for Disks {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match NAMES.iter().position(|known| name == *known) {
            Some(disk) => reply.entry(&REMEMBERED, &self.attributes(INodeNo(FIRST_INODE + disk as u64)), Generation(0)),
            None => reply.error(Answer::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&REMEMBERED, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.with(inode, |disk| {
            let end = (offset as usize + size as usize).min(disk.current.len());
            disk.current[(offset as usize).min(end)..end].to_vec()
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(answer) => reply.error(answer),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel hands a forced write down as such and does not flush after it.
        let is_forced = flags.0 & (libc::O_DSYNC | libc::O_SYNC) != 0;
        match self.put(inode, offset, data.to_vec(), is_forced) {
            Ok(()) => reply.written(data.len() as u32),
            Err(answer) => reply.error(answer),
        }
    }

    /// Holes and zeroes; room is there.
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes = if mode == 0 { 0 } else { length as usize };
        match self.put(inode, offset, vec![0; zeroes], false) {
            Ok(()) => reply.ok(),
            Err(answer) => reply.error(answer),
        }
    }

    /// Not known: a process that ends in the middle of a run closes the files of its own file system, and would wait
    /// for itself.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Answer::ENOSYS);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let flushed = self.with(inode, Disk::flush);
        match flushed {
            Ok(()) => reply.ok(),
            Err(answer) => reply.error(answer),
        }
    }
}
