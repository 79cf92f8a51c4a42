//! Single events: returns of calls, and direct writes.
//!
//! Planted breaks that turned a test red: calls that were not asked for told too; threads that are registered nowhere
//! told; direct writes told without their inode; records of requests that no reader wants.

mod support;

use plimsoll_tags::{Event, Options, Tags};
use rustix::thread::gettid;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use support::{Rig, Writer, can_run, mask, serve_as_writer};

const EVENT_BYTES: u32 = 1 << 20;

#[test]
fn a_writer() {
    serve_as_writer();
}

fn returned(rig: &mut Rig) -> Vec<u32> {
    let mut threads = Vec::new();
    let each = |event| {
        if let Event::Returned { thread, .. } = event {
            threads.push(thread)
        }
    };
    rig.tags.events(usize::MAX, each);
    threads
}

#[test]
fn a_call_that_was_asked_for_is_told_when_it_returns_to_a_thread_that_is_registered() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let returns = vec![libc::SYS_fsync as u32, libc::SYS_renameat2 as u32];
    let options = Options { event_bytes: Some(EVENT_BYTES), returns, ..Options::default() };
    let mut rig = Rig::with("ext4", &[], "defaults", &options);
    rig.tags.tell_returns(true).unwrap();
    let path = rig.path("file");
    let mut file = File::create(&path).unwrap();
    let mut work = || {
        file.write_all(b"some text").unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
    };
    work();
    assert_eq!(returned(&mut rig), [0u32; 0], "nobody is registered");
    let account = rig.account("a");
    let me = gettid().as_raw_nonzero().get().unsigned_abs();
    rig.tags.accounts().register_thread(account, me).unwrap();
    work();
    work();
    assert_eq!(returned(&mut rig), [me, me], "fsync, and neither write nor fdatasync");
    let started = std::thread::spawn(|| gettid().as_raw_nonzero().get().unsigned_abs());
    started.join().unwrap();
    assert_eq!(returned(&mut rig), [0u32; 0]);
    // Not any more, and again.
    rig.tags.tell_returns(false).unwrap();
    work();
    assert_eq!(returned(&mut rig), [0u32; 0]);
    rig.tags.tell_returns(true).unwrap();
    work();
    assert_eq!(returned(&mut rig), [me]);
}

/// The reader asks for no records of requests, and gets none.
#[test]
fn a_direct_write_is_told_by_its_file_and_its_writer() {
    if !can_run(&["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    for file_system in ["ext4", "xfs"] {
        let options = Options { event_bytes: Some(EVENT_BYTES), ..Options::default() };
        let mut rig = Rig::with(file_system, &[], "defaults", &options);
        let (path, account) = (rig.path("file"), rig.account("a"));
        File::create(&path).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        Writer::run(vec![Writer::of(&mut rig.tags, account, &format!("direct {} 16", path.display()))]);
        let (mut written, mut requests) = (0, 0);
        rig.tags.events(usize::MAX, |event| match event {
            Event::WrittenDirect { inode: of, causes, .. } => {
                assert_eq!((of, causes), (inode, mask(&[account])), "{file_system}");
                written += 1;
            }
            Event::Issued { .. } | Event::Completed { .. } => requests += 1,
            _ => {}
        });
        assert_eq!((written, requests), (16, 0), "{file_system}");
    }
}

#[test]
fn a_call_that_linux_does_not_have_is_refused() {
    if !can_run(&["mkfs.ext4"]) {
        return;
    }
    let rig = Rig::new("ext4", &[], "defaults");
    let options = Options { event_bytes: Some(EVENT_BYTES), returns: vec![512], ..Options::default() };
    let refusal = Tags::load(&rig.device, &options).err().unwrap().to_string();
    assert_eq!(refusal, "system call 512 does not exist, allowed are 0 to 511");
}
