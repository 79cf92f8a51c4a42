//! An application classifies its own files and so their blocks, and cannot classify another user's files.

mod support;

use io_uring::{IoUring, opcode, squeue, types::Fd};
use plimsoll_agent::{ClassServer, ClassifiedMount};
use plimsoll_classes::{Class, Client, ClientError, io_priority};
use plimsoll_core::{Allocation, Operation};
use plimsoll_engine::{RECORDER_EVENTS_DEFAULT, Recording};
use plimsoll_serve::attach::FileSystemKind;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Rig, go};

const KINDS: [FileSystemKind; 2] = [FileSystemKind::Ext4, FileSystemKind::Xfs];
const FILE_BYTES: usize = 64 << 10;
/// What file systems call a file of that size.
const OF_SIZE: u8 = 10;
const INDEX: u8 = 25;
const NOBODY: u32 = 65534;

fn class(number: u8) -> Class {
    Class::new(number).unwrap()
}

fn serve(rig: &Rig) -> (ClassServer, Client) {
    let classes = rig.station().classes().unwrap().clone();
    let mount = ClassifiedMount { mount_point: rig.path(""), classes };
    let server = ClassServer::start(&rig.classes_socket(), vec![mount]).unwrap();
    let client = Client::new(server.path());
    (server, client)
}

/// Bytes of files that were moved by `operation`, by class.
fn bytes_by_class(recording: &mut Recording, operation: Operation) -> BTreeMap<u8, u64> {
    recording.stop();
    let mut bytes = BTreeMap::new();
    for request in recording.take(usize::MAX) {
        if request.operation == operation && request.class.number() > Class::JOURNAL.number() {
            *bytes.entry(request.class.number()).or_default() += u64::from(request.length);
        }
    }
    bytes
}

fn write(file: &File) {
    file.write_all_at(&[7; FILE_BYTES], 0).unwrap();
    file.sync_all().unwrap();
}

fn read_cold(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file.read_exact_at(&mut [0; FILE_BYTES], 0).unwrap();
}

fn new_file(rig: &Rig, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(rig.path(name)).unwrap()
}

/// `classes.c` with the library for C, compiled where every user may run it.
fn program(rig: &Rig) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let library = tests.join("../../classes/c");
    let program = rig.outside("classes");
    let sources = [tests.join("classes.c"), library.join("plimsoll_classes.c")];
    let flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let built = Command::new("cc").args(flags).arg("-I").arg(library).args(sources).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    program
}

/// Broken on purpose and seen red: blocks keep the class of their file's size; a class that was taken back stays.
/// Promise: classes-files.
#[test]
fn what_was_said_of_a_file_is_the_class_of_its_blocks() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "noop") else { return };
        let (_server, client) = serve(&rig);
        let (said, unsaid) = (new_file(&rig, "said"), new_file(&rig, "unsaid"));
        client.classify(&said, class(INDEX)).unwrap();
        assert_eq!(client.class_of(&said).unwrap(), class(INDEX));
        assert_eq!(client.class_of(&unsaid).unwrap(), Class::UNCLASSIFIED);
        let both = BTreeMap::from([(OF_SIZE, FILE_BYTES as u64), (INDEX, FILE_BYTES as u64)]);
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        [&said, &unsaid].into_iter().for_each(write);
        assert_eq!(bytes_by_class(&mut recording, Operation::Write), both, "{kind:?}");
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        [&said, &unsaid].into_iter().for_each(read_cold);
        assert_eq!(bytes_by_class(&mut recording, Operation::Read), both, "{kind:?}");
        client.classify(&said, Class::UNCLASSIFIED).unwrap();
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        read_cold(&said);
        assert_eq!(bytes_by_class(&mut recording, Operation::Read), BTreeMap::from([(OF_SIZE, FILE_BYTES as u64)]));
    }
}

/// Broken on purpose and seen red: deletions are not heard.
/// Promise: classes-files.
#[test]
fn a_file_that_is_deleted_is_forgotten() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "noop") else { return };
        let (server, client) = serve(&rig);
        let classes = rig.station().classes().unwrap().clone();
        let (kept, deleted) = (new_file(&rig, "kept"), new_file(&rig, "deleted"));
        [&kept, &deleted].into_iter().for_each(|file| client.classify(file, class(INDEX)).unwrap());
        assert_eq!(classes.len(), 2);
        std::fs::remove_file(rig.path("deleted")).unwrap();
        assert_eq!(client.class_of(&deleted).unwrap(), class(INDEX), "it has no name, but is open");
        drop(deleted);
        rig.wait_until("that it is forgotten", || classes.len() == 1);
        assert_eq!(client.class_of(&kept).unwrap(), class(INDEX));
        drop(server);
        assert!(matches!(client.class_of(&kept), Err(ClientError::Unreachable { .. })));
        assert_eq!(classes.len(), 1, "what was said stays");
    }
}

/// Broken on purpose and seen red: every user may say the class of every file.
/// Promise: classes-owner.
#[test]
fn no_user_says_the_class_of_anothers_file() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let (_server, client) = serve(&rig);
    let program = program(&rig);
    let run = |user: u32, arguments: &[&str], path: &Path| {
        let mut command = Command::new(&program);
        command.arg(arguments[0]).arg(path).args(&arguments[1..]).uid(user).gid(user);
        let ended = command.env("PLIMSOLL_CLASSES", rig.classes_socket()).output().unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stdout).unwrap().trim().to_owned())
    };
    let roots = new_file(&rig, "roots");
    let own = new_file(&rig, "own");
    std::os::unix::fs::fchown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let refused = |errno: Errno| (errno.raw_os_error(), "-1".to_owned());
    assert_eq!(run(NOBODY, &["say", "25"], &rig.path("roots")), refused(Errno::PERM));
    assert_eq!(run(NOBODY, &["ask"], &rig.path("roots")), refused(Errno::PERM));
    assert_eq!(client.class_of(&roots).unwrap(), Class::UNCLASSIFIED);
    assert_eq!(run(NOBODY, &["say", "25"], &rig.path("own")), (0, "0".to_owned()));
    assert_eq!(run(NOBODY, &["ask"], &rig.path("own")), (0, "25".to_owned()));
    assert_eq!(client.class_of(&own).unwrap(), class(INDEX));
    assert_eq!(run(0, &["say", "32"], &rig.path("own")), refused(Errno::INVAL), "no class");
    assert_eq!(run(0, &["say", "1"], &rig.path("")), refused(Errno::INVAL), "a directory");
    assert_eq!(run(0, &["say", "1"], &program), refused(Errno::NODEV), "a file that is elsewhere");
    // Without the shim the flag is refused, so that no class gets into a file.
    assert_eq!(run(0, &["vectored"], &rig.path("own")), refused(Errno::INVAL));
}

fn connected(path: &Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Promise: classes-owner.
#[test]
fn a_client_that_sends_something_else_or_nothing_is_sent_away() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let (server, client) = serve(&rig);
    let file = new_file(&rig, "file");
    for bytes in [&[][..], &[1], &[255; 24], &[0; 4096]] {
        let socket = connected(server.path());
        let _ = send(&socket, bytes, SendFlags::NOSIGNAL);
        assert!(matches!(recv(&socket, &mut [0; 8], RecvFlags::empty()), Ok((0, _)) | Err(Errno::CONNRESET)));
    }
    // More silent clients than places: the next client waits for a place until the server drops a silent one.
    let silent: Vec<OwnedFd> = (0..100).map(|_| connected(server.path())).collect();
    rig.wait_until("an answer", || client.classify(&file, class(INDEX)).is_ok());
    assert_eq!(client.class_of(&file).unwrap(), class(INDEX));
    drop(silent);
}

#[repr(align(4096))]
struct Pages([u8; FILE_BYTES]);

/// A call past the page cache, by the kernel's io_uring, at a priority.
fn submit(ring: &mut IoUring, entry: squeue::Entry) {
    // SAFETY: the buffer outlives the call, which is waited for here.
    unsafe { ring.submission().push(&entry).unwrap() };
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), FILE_BYTES as i32);
}

/// Promise: classes-hint.
#[test]
fn a_direct_call_says_its_class_in_the_hint_of_its_priority() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "noop") else { return };
        let (_server, client) = serve(&rig);
        let Ok(mut ring) = IoUring::new(2) else {
            println!("not run: the kernel has no io_uring for us");
            return;
        };
        let file = new_file(&rig, "file");
        write(&file);
        client.classify(&file, class(INDEX)).unwrap();
        let direct =
            File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(rig.path("file")).unwrap();
        let mut pages = Box::new(Pages([7; FILE_BYTES]));
        let descriptor = Fd(direct.as_raw_fd());
        let length = FILE_BYTES as u32;
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        for said in [class(23), class(24), Class::UNCLASSIFIED] {
            let entry = opcode::Write::new(descriptor, pages.0.as_ptr(), length).ioprio(io_priority(said));
            submit(&mut ring, entry.build());
        }
        let all = FILE_BYTES as u64;
        let expected = BTreeMap::from([(23, all), (24, all), (INDEX, all)]);
        assert_eq!(bytes_by_class(&mut recording, Operation::Write), expected, "{kind:?}");
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        submit(
            &mut ring,
            opcode::Read::new(descriptor, pages.0.as_mut_ptr(), length).ioprio(io_priority(class(31))).build(),
        );
        assert_eq!(bytes_by_class(&mut recording, Operation::Read), BTreeMap::from([(31, all)]), "{kind:?}");
    }
}

/// Of 80 connections 64 give up their places one after the other, unless the server is so slow that those before are
/// over.
/// Promise: classes-owner.
#[test]
fn a_silent_user_keeps_a_quarter_of_the_places() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let (server, client) = serve(&rig);
    let mut command = Command::new(program(&rig));
    let ended = command.arg("silent").arg(server.path()).uid(NOBODY).gid(NOBODY).output().unwrap();
    let sent_away: i32 = String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap();
    assert!((1..=64).contains(&sent_away), "{sent_away}");
    client.classify(new_file(&rig, "file"), class(INDEX)).unwrap();
}

/// Broken on purpose and seen red: a class is said after the call, so that the first of each has the one before.
/// Promise: classes-first-byte.
#[test]
fn the_first_byte_of_a_classified_call_is_the_class_of_its_blocks() {
    for kind in KINDS {
        let Some(rig) = Rig::new(kind, "noop") else { return };
        let (_server, client) = serve(&rig);
        let file = new_file(&rig, "file");
        write(&file);
        let tenant = rig.join("database", Allocation::default());
        let script = format!("exec {} vectored {}", program(&rig).display(), rig.path("file").display());
        let mut child = rig.start(&tenant, &script);
        let mut recording = rig.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
        go(&mut child);
        assert!(child.wait().unwrap().success());
        assert_eq!(
            bytes_by_class(&mut recording, Operation::Write),
            BTreeMap::from([(23, 8192), (24, 4096)]),
            "{kind:?}"
        );
        let mut bytes = [0; FILE_BYTES];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let blocks: Vec<_> =
            bytes.chunks(4096).map(|block| block.iter().all(|&byte| byte == block[0]).then_some(block[0])).collect();
        assert_eq!(blocks[..4], [Some(b'a'), Some(b'b'), Some(b'c'), Some(7)], "and no class is in the file");
        assert_eq!(client.class_of(&file).unwrap(), class(23));
    }
}
