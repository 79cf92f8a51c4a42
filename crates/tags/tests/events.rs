//! Single events: what is told of calls that return.
//!
//! Planted breaks that turned a test red: calls that were not asked for told too; threads that are registered nowhere told.

mod support;

use plimsoll_tags::{Event, Options, Tags};
use rustix::thread::gettid;
use std::fs::File;
use std::io::Write;
use support::{Rig, can_run};

const EVENT_BYTES: u32 = 1 << 20;

fn returned(rig: &mut Rig) -> Vec<u32> {
    let mut threads = Vec::new();
    let each = |event| {
        if let Event::Returned { thread, .. } = event {
            threads.push(thread)
        }
    };
    rig.tags.events(each);
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
