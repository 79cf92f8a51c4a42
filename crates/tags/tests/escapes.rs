//! Ways by which a tenant, on purpose or not, could charge its I/O to another account or to none, or fill a table for
//! ever.

mod support;

use plimsoll_core::Span;
use plimsoll_tags::Options;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::thread;
use support::{Frozen, Rig, Writer, can_run, mask, now_ns, serve_as_writer, written};

const PROGRAMS: [&str; 2] = ["mkfs.xfs", "losetup"];
const INODE: u8 = 4;
const JOURNAL: u8 = 7;

#[test]
fn a_writer() {
    serve_as_writer();
}

/// A write of a gibibyte from unreadable memory. Broken on purpose and seen red: what is to be written is entered
/// before it is.
/// Promise: tags-escapes.
#[test]
fn a_write_that_fails_leaves_no_page_behind_and_its_writers_number_is_free_again() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let mut rig = Rig::with("xfs", &[], "defaults", &Options { recycle_after: Span::ZERO, ..Options::default() });
    let (account, path) = (rig.account("a"), rig.path("f"));
    let file = File::create(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            rig.tags.accounts().register_thread(account, thread).unwrap();
            const BYTES: usize = 1 << 30;
            // SAFETY: memory of its own, which no thread can read, unmapped behind the call that fails to.
            let outcome = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                let memory = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_NONE, flags, -1, 0);
                assert_ne!(memory, libc::MAP_FAILED);
                let outcome = libc::pwrite(file.as_raw_fd(), memory, BYTES, 0);
                libc::munmap(memory, BYTES);
                outcome
            };
            assert_eq!(outcome, -1);
        });
    });
    rig.tags.accounts().close(account).unwrap();
    rig.sync();
    drop(Frozen::new(&rig.mounted));
    let ended = rig.tags.accounts().recycle().unwrap();
    assert_eq!(ended.len(), 1, "nothing carries it");
    let dirtied = ended[0].counters.dirtied_bytes;
    assert_eq!(dirtied, 0, "it dirtied nothing");
}

/// Sequences of XFS's checkpoints begin at 1 with each mount. Broken on purpose and seen red: what they caused before
/// is known by them alone.
/// Promise: tags-escapes.
#[test]
fn a_writer_before_an_unmount_has_no_part_in_the_log_of_the_next_mount() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let mut rig = Rig::new("xfs", &[], "defaults");
    let (a, b) = (rig.account("a"), rig.account("b"));
    for folder in ["a", "b"] {
        fs::create_dir(rig.path(folder)).unwrap();
    }
    let job = |rig: &Rig, folder| format!("create-sync {} 50 4096", rig.path(folder).display());
    let first = job(&rig, "a");
    Writer::run(vec![Writer::of(&mut rig.tags, a, &first)]);
    rig.mount_again("xfs");
    let since = now_ns();
    let second = job(&rig, "b");
    Writer::run(vec![Writer::of(&mut rig.tags, b, &second)]);
    let log =
        written(&rig.tags, rig.blocks(), since, now_ns()).into_iter().filter(|(_, tag)| tag.class.number() == JOURNAL);
    let causes: Vec<u64> = log.map(|(_, tag)| tag.causes_mask).collect();
    assert!(causes.contains(&mask(&[b])), "{causes:x?}");
    assert!(causes.iter().all(|causes| causes & mask(&[a]) == 0), "{causes:x?}");
}

/// The log has both, and the block of the inodes that both changed in one checkpoint as well. Broken on purpose and
/// seen red: only the account that logs an inode first in a checkpoint has its block.
/// Promise: tags-escapes.
#[test]
fn an_inode_that_two_change_in_one_checkpoint_is_both_of_them() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let mut rig = Rig::new("xfs", &[], "defaults");
    let (a, b) = (rig.account("a"), rig.account("b"));
    let folder = rig.path("d");
    fs::create_dir(&folder).unwrap();
    (0..200).for_each(|name| fs::write(folder.join(name.to_string()), "").unwrap());
    rig.sync();
    drop(Frozen::new(&rig.mounted));
    let since = now_ns();
    for account in [a, b] {
        let job = format!("xattr {} 8", folder.display());
        Writer::run(vec![Writer::of(&mut rig.tags, account, &job)]);
    }
    rig.sync();
    drop(Frozen::new(&rig.mounted));
    let written = written(&rig.tags, rig.blocks(), since, now_ns());
    let inodes: Vec<u64> =
        written.iter().filter(|(_, tag)| tag.class.number() == INODE).map(|(_, tag)| tag.causes_mask).collect();
    // The first and the last block have inodes of others, too.
    let both = inodes.iter().filter(|&&causes| causes == mask(&[a, b])).count();
    assert!(both > 0 && both + 2 >= inodes.len(), "{inodes:x?}");
}
