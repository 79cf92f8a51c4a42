//! I/O that a caller waits for: writes of fsync, direct I/O and the journal are marked so, and writes only to clean
//! memory are not.
//!
//! Broken on purpose and seen red: everything is waited for; nothing is; the flag of the block's last tag stays.

mod support;

use plimsoll_tags::Tag;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use support::{FILE_SYSTEMS, Rig, can_run, now_ns, written};

const PAGES: usize = 256;
const PAGE: usize = 4096;
const JOURNAL: u8 = 7;
/// The classes of files begin here.
const FILE: u8 = 8;

fn on_each(body: impl Fn(&Rig)) {
    if can_run(&["mkfs.ext4", "mkfs.xfs", "losetup", "dumpe2fs", "debugfs"]) {
        for file_system in FILE_SYSTEMS {
            println!("{file_system}:");
            let rig = Rig::new(file_system, &[], "defaults");
            rig.sync();
            body(&rig);
        }
    }
}

/// What `work` has written: tags of data, tags of the journal.
fn tags_of(rig: &Rig, work: impl FnOnce()) -> (Vec<Tag>, Vec<Tag>) {
    let since = now_ns();
    work();
    let tags = written(&rig.tags, rig.blocks(), since, now_ns()).into_iter().map(|(_, tag)| tag);
    let of = |class: fn(u8) -> bool| tags.clone().filter(|tag| class(tag.class.number())).collect();
    (of(|class| class >= FILE), of(|class| class == JOURNAL))
}

fn is_all(tags: &[Tag], is_sync: bool) -> bool {
    !tags.is_empty() && tags.iter().all(|tag| tag.is_sync == is_sync)
}

/// Does what leaves tags of data until all its pages are among them, and asserts how they are then: other work on the
/// machine makes the kernel write back what is dirty, at any time before.
fn assert_all(is_sync: bool, mut work: impl FnMut() -> Vec<Tag>) {
    const TRIES: u32 = 30;
    let mut last = Vec::new();
    for number in 0..TRIES {
        // The kernel's flusher has its fits: later ones wait longer for its rest.
        let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: i64::from(number) * 10_000_000 };
        let _ = rustix::thread::nanosleep(&pause);
        last = work();
        if last.len() >= PAGES && is_all(&last, is_sync) {
            return;
        }
    }
    panic!("is_sync is not {is_sync} of all {PAGES}: {last:?}");
}

fn write_file(path: &Path) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&[7; PAGES * PAGE]).unwrap();
    file
}

/// Has the kernel write a file back, which waits for nothing but the end of that.
fn write_back(file: &File) {
    let flags = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the call takes numbers only.
    let started = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
    assert_eq!(started, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
}

/// Promise: tags-waited-for.
#[test]
fn what_fsync_writes_is_waited_for_and_so_is_the_journal() {
    on_each(|rig| {
        assert_all(true, || {
            let file = write_file(&rig.path("f"));
            let (data, journal) = tags_of(rig, || file.sync_all().unwrap());
            assert!(journal.iter().all(|tag| tag.is_sync), "{journal:?}");
            if journal.is_empty() { journal } else { data }
        });
    });
}

/// The same blocks before and after: a tag says what the last I/O was.
/// Promise: tags-waited-for.
#[test]
fn what_is_written_back_is_not_waited_for() {
    on_each(|rig| {
        let path = rig.path("f");
        write_file(&path).sync_all().unwrap();
        let rewrite = || {
            let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all(&[8; PAGES * PAGE]).unwrap();
            file
        };
        assert_all(false, || {
            let file = rewrite();
            tags_of(rig, || write_back(&file)).0
        });
        // The kernel's own flusher: the first that a sync of the file system does is to ask for its turn.
        assert_all(false, || {
            let _file = rewrite();
            tags_of(rig, || rig.sync()).0
        });
        assert_all(true, || {
            let file = rewrite();
            tags_of(rig, || file.sync_data().unwrap()).0
        });
    });
}

/// Promise: tags-waited-for.
#[test]
fn direct_writes_are_waited_for() {
    on_each(|rig| {
        #[repr(align(4096))]
        struct Aligned([u8; PAGE]);
        let path = rig.path("f");
        write_file(&path).sync_all().unwrap();
        let flags = OFlags::WRONLY | OFlags::DIRECT;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
        let (data, _) = tags_of(rig, || assert_eq!(rustix::io::pwrite(&file, &Aligned([9; PAGE]).0, 0), Ok(PAGE)));
        assert!(is_all(&data, true), "{data:?}");
    });
}
