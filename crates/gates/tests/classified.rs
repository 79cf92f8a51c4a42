//! O_CLASSIFIED in the preload shim: the shim sends each file's class, and no class gets into a file.

mod support;

use plimsoll_classes::message::{Answer, REQUEST_BYTES, Request};
use plimsoll_core::Class;
use plimsoll_gates::passing;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, recv, send};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use support::Rig;

/// `classified.c` with the header of the library, compiled.
fn program(rig: &Rig, flags: &[&str]) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = rig.disk.path().join("classified");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]).args(flags);
    compiler.arg("-I").arg(tests.join("../../classes/c")).arg(tests.join("classified.c")).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    program
}

fn run(rig: &Rig, program: &Path, socket: &Path) -> (ExitStatus, u64) {
    let [file, other] = ["file", "other"].map(|name| rig.disk.path().join(name));
    [&file, &other].into_iter().for_each(|path| drop(std::fs::remove_file(path)));
    let mut command = Command::new(program);
    command.arg(&file).arg(other);
    rig.preload(1).with_classes(socket).prepare(&mut command).unwrap();
    (command.status().unwrap(), std::fs::metadata(file).unwrap().ino())
}

/// Collects the requests it receives, until the other end of `over` hangs up.
fn hear(socket: &OwnedFd, over: &OwnedFd, is_silent: bool) -> Vec<Request> {
    let (mut heard, mut silent) = (Vec::new(), Vec::new());
    loop {
        let mut polled = [socket, over].map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN));
        poll(&mut polled, None).unwrap();
        if !polled[1].revents().is_empty() {
            return heard;
        }
        let client = accept_with(socket, SocketFlags::CLOEXEC).unwrap();
        let mut bytes = [0; REQUEST_BYTES];
        let (received, _) = recv(&client, &mut bytes, RecvFlags::empty()).unwrap();
        heard.push(Request::parse(&bytes[..received]).expect("a request"));
        match is_silent {
            true => silent.push(client),
            false => {
                let answer = Answer { error: None, class: Class::UNCLASSIFIED };
                send(&client, &answer.bytes(), SendFlags::NOSIGNAL).map(drop).unwrap();
            }
        }
    }
}

/// Runs the program while a thread hears it; returns the classes that the program gave its file.
fn said(rig: &Rig, program: &Path, is_silent: bool) -> Vec<u8> {
    let path = rig.run.path().join("classes.sock");
    let socket = passing::listen(&path, SocketType::SEQPACKET, 64, 0o600).unwrap();
    let (over, end) = std::os::unix::net::UnixStream::pair().unwrap();
    let over = OwnedFd::from(over);
    std::thread::scope(|scope| {
        let hearing = scope.spawn(|| hear(&socket, &over, is_silent));
        let (status, inode) = run(rig, program, &path);
        drop(end);
        let heard = hearing.join().unwrap();
        assert!(status.success(), "not so: line {:?} of classified.c", status.code());
        assert!(heard.iter().all(|request| request.inode == inode), "said of another file: {heard:?}");
        heard.into_iter().map(|request| request.class.expect("it says a class").number()).collect()
    })
}

/// Broken on purpose and seen red: the class is left among the elements; only the number of a descriptor is remembered.
/// Promise: classes-first-byte.
#[test]
fn each_classified_call_says_its_class_and_moves_the_rest() {
    let rig = Rig::new();
    let _words = rig.words();
    let expected: Vec<u8> = (1..10).chain([31, 1, 10, 11, 12]).collect();
    // Where flags are not known, compilers call other functions if they are to check more.
    for flags in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"]] {
        let program = program(&rig, flags);
        assert_eq!(said(&rig, &program, false), expected, "each when it changes, and nothing else ({flags:?})");
    }
}

/// Promise: classes-first-byte.
#[test]
fn a_call_without_an_answering_agent_goes_on() {
    let rig = Rig::new();
    let _words = rig.words();
    let program = program(&rig, &["-O1"]);
    assert!(run(&rig, &program, &rig.run.path().join("nobody")).0.success(), "there is no socket");
    assert_eq!(said(&rig, &program, true).len(), 14, "no agent answers");
}
