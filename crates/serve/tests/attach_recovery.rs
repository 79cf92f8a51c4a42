//! kill -9 of a serving process under load, and what its successor finds: everything that was synced, nothing left
//! over.
//!
//! The process that is killed is this test binary again: [`serving_child`] serves if its environment says so.

mod attach_support;

use attach_support::{
    POOL, Rig, SIZE_BYTES, VOLUME, backing_path, bytes_of, can_attach, check_file_system, leftovers, mount_disk,
    run_well, serve, serve_with, state_path,
};
use plimsoll_core::{Allocation, Rate};
use plimsoll_engine::backend::Backing;
use plimsoll_serve::attach::{AttachError, FileSystemKind, Format, isolated, recover};
use rustix::process::{Pid, Signal};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const PROGRAMS: &[&str] = &["mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fio", "losetup"];
/// Names the directory to serve in, and with it makes a child of this binary the serving process.
const DIRECTORY_VARIABLE: &str = "PLIMSOLL_TEST_SERVE_IN";
const FILE_SYSTEM_VARIABLE: &str = "PLIMSOLL_TEST_FILE_SYSTEM";
/// If set, the serving process makes its volume so slow, once it is a block device, that it never gets through mounting
/// it.
const STALL_VARIABLE: &str = "PLIMSOLL_TEST_STALL";
/// Records that must be synced before the server is killed.
const RECORDS_MIN: u64 = 50;
const RECORD_BYTES: usize = 3000;

/// Not a test by itself: the process that is killed.
#[test]
fn serving_child() {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from) else { return };
    let kind = match std::env::var(FILE_SYSTEM_VARIABLE).as_deref() {
        Ok("xfs") => FileSystemKind::Xfs,
        _ => FileSystemKind::Ext4,
    };
    let (state, recovered) = recover(&state_path(&directory)).unwrap();
    assert_eq!(recovered, []);
    let path = backing_path(&directory);
    let backing = Backing::File { path, size_bytes: Some(SIZE_BYTES), creates: true, encryption: None };
    let (engine, info) = serve_with("zygaria", backing);
    let plan = Some((kind, Format::IfEmpty));
    let mut attachment = mount_disk(&engine, &state, &info, plan, directory.join("mounted"));
    attachment.make_device().unwrap();
    if std::env::var_os(STALL_VARIABLE).is_some() {
        let limit = Some(Rate::RunsPerSecond(0.01));
        engine.change_account(POOL, Allocation { limit, ..Allocation::default() }).unwrap();
    }
    attachment.mount().unwrap();
    println!("serving");
    // Until it is killed, or the test is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A serving process, killed at the latest when it is dropped.
struct Server(Child);

impl Server {
    fn command(directory: &Path, kind: FileSystemKind) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serving_child", "--nocapture"]).env(DIRECTORY_VARIABLE, directory);
        command.env(FILE_SYSTEM_VARIABLE, kind.name()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn start(directory: &Path, kind: FileSystemKind) -> Server {
        let mut server = Server(Server::command(directory, kind).spawn().unwrap());
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("serving")), "the server ended before it served");
        server
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Undoes what a killed server left behind even if the test fails.
struct Cleanup(TempDir);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Err(error) = recover(&state_path(self.0.path())) {
            println!("{error}");
        }
    }
}

/// Appends records, each of them synced, until the file system fails; counts those with a sync that returned.
fn append_synced_records(log: &File, has_enough: &AtomicBool) -> u64 {
    for number in 0.. {
        let record = bytes_of(number, RECORD_BYTES);
        if log.write_all_at(&record, number * RECORD_BYTES as u64).and_then(|()| log.sync_all()).is_err() {
            return number;
        }
        has_enough.store(number >= RECORDS_MIN, Ordering::Relaxed);
    }
    unreachable!("numbers do not end")
}

/// A writer of synced records and fio with checksums, both on the mounted file system, until the server is killed.
/// Gives back how many records were synced, and the log, still open: a mount that is in use must not stop any server.
fn load_until_killed(server: &mut Server, target: &Path) -> (u64, File) {
    let log = OpenOptions::new().create_new(true).read(true).write(true).open(target.join("log")).unwrap();
    File::open(target).unwrap().sync_all().unwrap();
    let mut fio = Command::new("fio")
        .args(["--name=load", "--rw=randwrite", "--size=64m", "--bsrange=4k-128k", "--ioengine=libaio", "--direct=1"])
        .args(["--iodepth=16", "--fsync=32", "--time_based", "--runtime=3600", "--verify=crc32c", "--do_verify=0"])
        .args(["--verify_state_save=0"])
        .arg(format!("--directory={}", target.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let has_enough = AtomicBool::new(false);
    let synced = std::thread::scope(|scope| {
        let writer = scope.spawn(|| append_synced_records(&log, &has_enough));
        let is_loaded = || has_enough.load(Ordering::Relaxed) && target.join("load.0.0").exists();
        while !is_loaded() && !writer.is_finished() {
            std::thread::yield_now();
        }
        server.kill();
        writer.join().unwrap()
    });
    let status = fio.wait().unwrap();
    assert!(!status.success(), "fio was still writing when the server died");
    (synced, log)
}

fn a_killed_server_is_succeeded(kind: FileSystemKind) {
    let cleanup = Cleanup(tempfile::tempdir().unwrap());
    let directory = cleanup.0.path().to_owned();
    let mut server = Server::start(&directory, kind);
    let target = directory.join("mounted");
    let (synced, still_open) = load_until_killed(&mut server, &target);
    assert!(synced > RECORDS_MIN, "{synced}");
    assert_eq!(leftovers(&directory).len(), 3, "a file system's mount, a loop device, a FUSE mount");

    let (state, steps) = recover(&state_path(&directory)).unwrap();
    let words: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert!(words[0].contains(&format!("unmounted {kind} /dev/loop")), "{words:?}");
    assert!(words[0].contains("still in use"), "{words:?}");
    assert!(steps.iter().all(|step| !step.is_left_over), "{words:?}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()), "{mounts}");

    // The same backing file serves again while a process still holds the old mount open.
    let path = backing_path(&directory);
    let (engine, info) = serve(Backing::File { path, size_bytes: Some(SIZE_BYTES), creates: false, encryption: None });
    let plan = Some((kind, Format::Never));
    let mut attachment = mount_disk(&engine, &state, &info, plan, target.clone());
    attachment.build().unwrap();
    let log = isolated(|| std::fs::read(target.join("log")).unwrap()).unwrap();
    for number in 0..synced {
        let record = log.get(number as usize * RECORD_BYTES..).and_then(|rest| rest.get(..RECORD_BYTES));
        assert!(record == Some(&bytes_of(number, RECORD_BYTES)[..]), "record {number} of {synced} was synced and lost");
    }
    let detached = attachment.detach();
    assert_eq!(detached.len(), 3, "{detached:?}");
    drop(still_open);

    let mut bare = mount_disk(&engine, &state, &info, None, target);
    bare.build().unwrap();
    check_file_system(kind, &bare.device_path().unwrap());
    bare.detach();
    engine.shutdown(plimsoll_engine::GRACE_DEFAULT).unwrap();
    assert_eq!(leftovers(&directory), [""; 0]);
}

/// Promise: mount-kill.
#[test]
fn a_killed_server_of_ext4_is_succeeded() {
    if can_attach(PROGRAMS) {
        a_killed_server_is_succeeded(FileSystemKind::Ext4);
    }
}

/// Promise: mount-kill.
#[test]
fn a_killed_server_of_xfs_is_succeeded() {
    if can_attach(PROGRAMS) {
        a_killed_server_is_succeeded(FileSystemKind::Xfs);
    }
}

#[test]
fn a_living_server_keeps_what_it_attached() {
    if !can_attach(PROGRAMS) {
        return;
    }
    let cleanup = Cleanup(tempfile::tempdir().unwrap());
    let mut server = Server::start(cleanup.0.path(), FileSystemKind::Ext4);
    let error = recover(&state_path(cleanup.0.path())).unwrap_err();
    let AttachError::Held { process, .. } = &error else { panic!("{error}") };
    assert_eq!(*process, server.0.id().to_string());
    assert_eq!(leftovers(cleanup.0.path()).len(), 3);
    server.kill();
}

/// Whether a thread of the process waits in the kernel and cannot be interrupted.
fn has_stuck_thread(process: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let state_of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    tasks.flatten().filter_map(state_of).any(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" D")))
}

/// A process is killed inside mount(2), which waits for blocks that the same process serves. It ends all the same: at
/// once, and also where it would have written a core file.
#[test]
fn a_server_that_is_killed_while_it_mounts_ends() {
    if !can_attach(PROGRAMS) {
        return;
    }
    use FileSystemKind::{Ext4, Xfs};
    for (kind, signal) in [(Ext4, Signal::KILL), (Xfs, Signal::KILL), (Ext4, Signal::ABORT)] {
        let cleanup = Cleanup(tempfile::tempdir().unwrap());
        let directory = cleanup.0.path();
        Server::start(directory, kind).kill();
        recover(&state_path(directory)).unwrap();
        let mut server = Server(Server::command(directory, kind).env(STALL_VARIABLE, "1").spawn().unwrap());
        let notes = state_path(directory).join("state.json");
        let is_mounting = || std::fs::read_to_string(&notes).is_ok_and(|notes| notes.contains(&format!("{kind}")));
        while !(is_mounting() && has_stuck_thread(server.0.id())) {
            assert!(server.0.try_wait().unwrap().is_none(), "the server ended before it was killed");
            std::thread::yield_now();
        }
        rustix::process::kill_process(Pid::from_child(&server.0), signal).unwrap();
        // Would wait for ever if the process could not end.
        server.0.wait().unwrap();
        let (_state, steps) = recover(&state_path(directory)).unwrap();
        assert!(steps.iter().all(|step| !step.is_left_over), "{steps:?}");
        assert_eq!(leftovers(directory), [""; 0]);
    }
}

/// Detaches a loop device that the test made, by name.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        run_well("losetup", &["--detach", &self.0]);
    }
}

/// Unmounts what the test mounted.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

/// The notes name things that another program has by now: a loop device of that number, mounts at those places.
/// Promise: mount-others.
#[test]
fn what_another_program_made_is_left_alone() {
    if !can_attach(PROGRAMS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (state, target) = (state_path(&path), path.join("mounted"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir(&target).unwrap();
    // Even the backing file has the path of the note; only the name is another.
    let disk = state.join(format!("{VOLUME}.disk"));
    File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let device = run_well("losetup", &["--find", "--show", disk.to_str().unwrap()]).trim().to_owned();
    let number = device.trim_start_matches("/dev/loop").to_owned();
    let _loop = Loop(device.clone());
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount(device.as_str(), &target, "tmpfs", flags, c"size=4k").unwrap();
    let _mounted = Mounted(target.clone());

    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (target, disk) = (target.display(), disk.display());
    let notes = format!(
        r#"{{ "version": 1, "boot_id": "{}", "volumes": {{ "{VOLUME}": {{
            "fuse": {{ "kind": "tmpfs", "source": "plimsoll:0:{VOLUME}", "target": "{target}", "id": null }},
            "loop_device": {{ "number": {number}, "backing_file": "{disk}", "name": "plimsoll:0:{VOLUME}" }},
            "file_system": {{ "kind": "tmpfs", "source": "{device}", "target": "{target}", "id": null }} }} }} }}"#,
        boot_id.trim()
    );
    File::create(state.join("state.json")).unwrap().write_all(notes.as_bytes()).unwrap();
    let (_state, steps) = recover(&state).unwrap();
    assert_eq!(steps, []);
    assert_eq!(leftovers(&path).len(), 2, "the mount and the loop device are still there");
    assert_eq!(std::fs::metadata(state.join(format!("{VOLUME}.disk"))).unwrap().len(), 1 << 20);
}

#[test]
fn a_volume_is_attached_once() {
    if !can_attach(PROGRAMS) {
        return;
    }
    let rig = Rig::in_memory();
    let attachment = rig.attach(None);
    let device = attachment.device_path().unwrap();
    let plan = plimsoll_serve::attach::AttachPlan {
        volume: VOLUME.to_owned(),
        size_bytes: SIZE_BYTES,
        block_bytes: 512,
        is_read_only: false,
        file_system: None,
    };
    let error = plimsoll_serve::attach::Attachment::mount_disk(&rig.state, plan).unwrap_err();
    assert_eq!(error.to_string(), "volume disk is attached already");
    let read = isolated(|| File::open(&device).and_then(|device| device.read_exact_at(&mut [0; 4096], 0)));
    assert!(read.unwrap().is_ok(), "the first one is unharmed");
    drop(attachment);
    rig.shut_down();
}
