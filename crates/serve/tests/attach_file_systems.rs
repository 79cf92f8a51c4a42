//! Real file systems on volumes: made, filled, unmounted, checked, mounted again and compared.

mod attach_support;

use attach_support::{Rig, bytes_of, can_attach, check_file_system, leftovers, run_well};
use plimsoll_serve::attach::{FileSystemKind, Format, isolated};
use std::fs::File;
use std::io::Write;
use std::path::Path;

const PROGRAMS: &[&str] = &["mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fio", "fstrim"];

/// Files that a test writes: every seventh is removed again, every fifth is synced.
const FILES: u64 = 200;

fn length_of(number: u64) -> usize {
    // From nothing over less than a block to several requests; no multiples of anything.
    [0, 100, 4096, 70_001, 600_011][(number % 5) as usize]
}

fn path_of(root: &Path, number: u64) -> std::path::PathBuf {
    root.join(format!("directory-{}", number % 8)).join(format!("file-{number}"))
}

/// Runs on files that this very process serves, and so isolated: the test can be killed at any time.
fn write_files(root: &Path) {
    isolated(|| write_files_here(root)).unwrap();
}

fn write_files_here(root: &Path) {
    for number in 0..FILES {
        let path = path_of(root, number);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes_of(number, length_of(number))).unwrap();
        if number % 5 == 0 {
            file.sync_all().unwrap();
        }
    }
    (0..FILES).step_by(7).for_each(|number| std::fs::remove_file(path_of(root, number)).unwrap());
}

fn compare_files(root: &Path) {
    isolated(|| compare_files_here(root)).unwrap();
}

fn compare_files_here(root: &Path) {
    for number in 0..FILES {
        let path = path_of(root, number);
        if number % 7 == 0 {
            assert!(!path.exists(), "{}", path.display());
        } else {
            assert!(std::fs::read(&path).unwrap() == bytes_of(number, length_of(number)), "{}", path.display());
        }
    }
}

/// Random writes of many sizes, each block with a checksum, read back and compared while others are written.
fn verify_with_fio(root: &Path) {
    let directory = format!("--directory={}", root.display());
    let printed = run_well(
        "fio",
        &[
            "--name=verify",
            &directory,
            "--rw=randwrite",
            "--size=48m",
            "--bsrange=4k-256k",
            "--ioengine=libaio",
            "--direct=1",
            "--iodepth=32",
            "--fsync=64",
            "--loops=3",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--verify_backlog=128",
            "--verify_fatal=1",
            "--randseed=7",
        ],
    );
    assert!(printed.contains("err= 0"), "{printed}");
}

/// Checks the file system through a block device of its own: what the volume really holds.
fn check(rig: &Rig, kind: FileSystemKind) {
    let mut bare = rig.attach(None);
    check_file_system(kind, &bare.device_path().unwrap());
    bare.detach();
}

fn a_file_system_lives_on(rig: Rig, kind: FileSystemKind) {
    let mut attachment = rig.attach(Some((kind, Format::IfEmpty)));
    write_files(&rig.target());
    let steps = attachment.detach();
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(attachment.detach(), [], "detached once");
    assert_eq!(leftovers(rig.directory.path()), [""; 0]);
    check(&rig, kind);

    // It is recognised, not formatted again; and what was freed can be given back without harm to the rest.
    let mut attachment = rig.attach(Some((kind, Format::IfEmpty)));
    compare_files(&rig.target());
    run_well("fstrim", &[rig.target().to_str().unwrap()]);
    verify_with_fio(&rig.target());
    compare_files(&rig.target());
    attachment.detach();
    check(&rig, kind);

    let attachment = rig.attach(Some((kind, Format::Never)));
    compare_files(&rig.target());
    drop(attachment);
    assert_eq!(leftovers(rig.directory.path()), [""; 0], "a drop detaches too");
    rig.shut_down();
}

#[test]
fn ext4_lives_on_a_volume_in_memory() {
    if can_attach(PROGRAMS) {
        a_file_system_lives_on(Rig::in_memory(), FileSystemKind::Ext4);
    }
}

/// Promise: mount-file-systems.
#[test]
fn ext4_lives_on_a_volume_in_a_file() {
    if can_attach(PROGRAMS) {
        a_file_system_lives_on(Rig::in_file(tempfile::tempdir().unwrap()), FileSystemKind::Ext4);
    }
}

#[test]
fn xfs_lives_on_a_volume_in_memory() {
    if can_attach(PROGRAMS) {
        a_file_system_lives_on(Rig::in_memory(), FileSystemKind::Xfs);
    }
}

/// Promise: mount-file-systems.
#[test]
fn xfs_lives_on_a_volume_in_a_file() {
    if can_attach(PROGRAMS) {
        a_file_system_lives_on(Rig::in_file(tempfile::tempdir().unwrap()), FileSystemKind::Xfs);
    }
}
