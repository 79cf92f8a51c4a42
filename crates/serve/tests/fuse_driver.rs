//! The FUSE file itself, without a loop device on it: every call that one file can get, and the ends of a mount.
//!
//! The tests use files that their own process serves, so they do it [`isolated`]: they can be killed at any time.

mod attach_support;

use attach_support::{Rig, SIZE_BYTES, VOLUME, bytes_of, can_attach, leftovers};
use plimsoll_engine::GRACE_DEFAULT;
use plimsoll_protocols::fuse::limits::PAYLOAD_BYTES_MAX;
use plimsoll_serve::attach::{Attachment, isolated};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::mpsc::channel;

fn open(attachment: &Attachment) -> File {
    OpenOptions::new().read(true).write(true).open(attachment.disk_path()).unwrap()
}

fn errno_of<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn the_file_is_what_the_volume_is() {
    if !can_attach(&[]) {
        return;
    }
    let rig = Rig::in_memory();
    let attachment = rig.mount_disk(None);
    isolated(|| {
        let file = open(&attachment);
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks(), metadata.is_file()), (SIZE_BYTES, SIZE_BYTES / 512, true));
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.nlink()), (0o600, 1));
        let statistics = rustix::fs::fstatfs(&file).unwrap();
        assert_eq!(statistics.f_bsize, 4096, "what the loop device offers discards in");

        assert_eq!(errno_of(file.set_len(SIZE_BYTES / 2)), Errno::PERM);
        assert_eq!(errno_of(file.set_len(SIZE_BYTES * 2)), Errno::PERM);
        assert_eq!(errno_of(file.set_permissions(PermissionsExt::from_mode(0o666))), Errno::PERM);
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        assert_eq!(errno_of(file.write_all_at(&[0; 512], SIZE_BYTES)), Errno::NOSPC);
        assert_eq!(errno_of(file.write_all_at(&[0; 512], 100)), Errno::INVAL, "not on a block");
        let unsupported = fallocate(&file, FallocateFlags::empty(), 0, 4096);
        assert_eq!(unsupported, Err(Errno::OPNOTSUPP));
        let behind = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, SIZE_BYTES, 4096);
        assert_eq!(behind, Err(Errno::FBIG));
        assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
    })
    .unwrap();
    drop(attachment);
    rig.shut_down();
}

#[test]
fn what_was_written_is_read() {
    if !can_attach(&[]) {
        return;
    }
    for rig in [Rig::in_memory(), Rig::in_file(tempfile::tempdir().unwrap())] {
        let attachment = rig.mount_disk(None);
        isolated(|| {
            let file = open(&attachment);
            // From one block over a whole request to more than the kernel puts into one.
            let lengths = [512, 4096, 65_536, PAYLOAD_BYTES_MAX as usize, PAYLOAD_BYTES_MAX as usize * 5 + 512];
            for (number, length) in lengths.into_iter().enumerate() {
                let (offset, bytes) = (number as u64 * (32 << 20) + 512, bytes_of(number as u64, length));
                file.write_all_at(&bytes, offset).unwrap();
                assert!(read(&file, offset, length) == bytes, "{length} bytes");
                assert_eq!(read(&file, offset - 512, 512), [0; 512], "before");
                assert_eq!(read(&file, offset + length as u64, 512), [0; 512], "behind");
            }
            let mut bytes = vec![0; 8192];
            assert_eq!(file.read_at(&mut bytes, SIZE_BYTES - 4096).unwrap(), 4096, "over the end");
            assert_eq!(file.read_at(&mut bytes, SIZE_BYTES).unwrap(), 0, "behind the end");
        })
        .unwrap();
        drop(attachment);
        rig.shut_down();
    }
}

#[test]
fn a_hole_and_a_zeroed_range_read_as_zero_and_nothing_else_does() {
    if !can_attach(&[]) {
        return;
    }
    for rig in [Rig::in_memory(), Rig::in_file(tempfile::tempdir().unwrap())] {
        let attachment = rig.mount_disk(None);
        isolated(|| {
            let file = open(&attachment);
            let keep = FallocateFlags::KEEP_SIZE;
            let modes =
                [FallocateFlags::PUNCH_HOLE | keep, FallocateFlags::ZERO_RANGE | keep, FallocateFlags::ZERO_RANGE];
            for mode in modes {
                let ones = vec![1; 4 << 20];
                file.write_all_at(&ones, 0).unwrap();
                fallocate(&file, mode, 4096, 2 << 20).unwrap();
                let mut expected = ones;
                expected[4096..][..2 << 20].fill(0);
                assert!(read(&file, 0, 4 << 20) == expected, "{mode:?}");
            }
        })
        .unwrap();
        drop(attachment);
        rig.shut_down();
    }
}

/// Longer than 32 bits, and than what goes to the engine at once.
#[test]
fn a_long_range_is_zeroed_to_its_end() {
    if !can_attach(&[]) {
        return;
    }
    const LONG_BYTES: u64 = (5 << 30) + 4096;
    let rig = Rig::in_memory_of(LONG_BYTES + 8192);
    let attachment = rig.mount_disk(None);
    isolated(|| {
        let file = open(&attachment);
        let marks = [0, 4096, 1 << 30, (4 << 30) + 4096, LONG_BYTES, LONG_BYTES + 4096];
        marks.iter().for_each(|&mark| file.write_all_at(&[1; 4096], mark).unwrap());
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, LONG_BYTES).unwrap();
        let survivors: Vec<u64> = marks.into_iter().filter(|&mark| read(&file, mark, 4096) != [0; 4096]).collect();
        assert_eq!(survivors, [0, LONG_BYTES + 4096]);
        // The engine locks its memory; what is zeroed must be given back all the same, and not filled with zeroes.
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident_kib =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim_end_matches("kB").trim();
        assert!(resident_kib.parse::<u64>().unwrap() < 3 << 20, "{resident_kib} KiB");
    })
    .unwrap();
    drop(attachment);
    rig.shut_down();
}

/// More large requests at once than there are buffers: the rest waits in the kernel and nothing is lost.
#[test]
fn more_requests_than_buffers_are_served_too() {
    if !can_attach(&[]) {
        return;
    }
    const THREADS: u64 = 96;
    const BYTES: u64 = 2 << 20;
    let rig = Rig::in_file(tempfile::tempdir().unwrap());
    let attachment = rig.mount_disk(None);
    isolated(|| {
        let file = open(&attachment);
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    let bytes = bytes_of(number, BYTES as usize);
                    file.write_all_at(&bytes, number * BYTES).unwrap();
                    assert!(read(file, number * BYTES, BYTES as usize) == bytes, "of thread {number}");
                });
            }
        });
    })
    .unwrap();
    let status = rig.engine.status().unwrap();
    assert!(status.accounts.iter().any(|account| account.path.contains("mount")), "{status:?}");
    drop(attachment);
    rig.shut_down();
}

#[test]
fn an_unmount_ends_the_session() {
    if !can_attach(&[]) {
        return;
    }
    let rig = Rig::in_memory();
    let sessions = || {
        let status = rig.engine.status().unwrap();
        status.accounts.iter().filter(|account| account.path.contains("mount")).count()
    };
    let mut attachment = rig.mount_disk(None);
    isolated(|| drop(open(&attachment))).unwrap();
    assert_eq!(sessions(), 1);
    attachment.detach();
    // The engine hears of it at its next turn; the volume can be removed once it has.
    while sessions() > 0 {
        std::thread::yield_now();
    }
    rig.engine.remove_volume(VOLUME).unwrap();
    assert_eq!(leftovers(rig.directory.path()), [""; 0]);
    drop(attachment);
    rig.shut_down();
}

/// A process that uses a mount without an engine gets an error and does not hang; the mount can still be detached.
#[test]
fn an_engine_that_goes_first_leaves_errors_and_no_hang() {
    if !can_attach(&[]) {
        return;
    }
    let rig = Rig::in_memory();
    let attachment = rig.mount_disk(None);
    let (is_open, wait_until_open) = channel();
    let (is_down, wait_until_down) = channel();
    std::thread::scope(|scope| {
        let engine = rig.engine.clone();
        scope.spawn(move || {
            wait_until_open.recv().unwrap();
            engine.shutdown(GRACE_DEFAULT).unwrap();
            is_down.send(()).unwrap();
        });
        let use_file = move || {
            let file = open(&attachment);
            file.write_all_at(&[1; 4096], 0).unwrap();
            is_open.send(()).unwrap();
            wait_until_down.recv().unwrap();
            assert_eq!(errno_of(file.write_all_at(&[1; 4096], 0)), Errno::NOTCONN);
            assert_eq!(errno_of(file.sync_all()), Errno::NOTCONN);
        };
        isolated(use_file).unwrap();
    });
    assert_eq!(leftovers(rig.directory.path()), [""; 0], "the attachment was dropped");
}
