//! The file of `--out`, through the real binary: one that cannot be written is refused before anything is begun, and
//! what was found is printed in any case.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

fn plimsoll(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).current_dir(folder).output().unwrap()
}

fn is_refused(output: &Output, reason: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), message.as_ref()), (Some(2), format!("--out {reason}\n").as_str()));
    assert!(output.stdout.is_empty());
}

/// Broken on purpose and seen red: the file is looked at when all is done, as it was.
/// Promise: lab-out.
#[test]
fn what_cannot_be_written_is_refused_before_anything_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("made")).unwrap();
    std::fs::create_dir(folder.join("results")).unwrap();
    std::fs::write(folder.join("file"), "").unwrap();
    let server = UnixListener::bind(folder.join("nbd.sock")).unwrap();
    server.set_nonblocking(true).unwrap();
    let target = format!("nbd+unix:///db?socket={}", folder.join("nbd.sock").display());
    let changed = || folder.join("made").metadata().unwrap().modified().unwrap();
    let before = changed();
    for command in [
        &["device", "measure", "made/probe", "--size", "16MiB", "--seconds", "1"][..],
        &["load", &target, "--rate", "50", "--seconds", "1"],
        &["replay", "missing.csv", "--cache=1%"],
        &["demo", "--seconds", "2"],
    ] {
        for (out, problem) in [
            ("/nodir/p", "No such file or directory (os error 2)"),
            ("file/p", "Not a directory (os error 20)"),
            ("results", "is a directory"),
            ("new/", "No such file or directory (os error 2)"),
        ] {
            let output = plimsoll(folder, &[command, &["--out", out, "--no-progress"]].concat());
            is_refused(&output, &format!("{out}: {problem}"));
        }
    }
    assert_eq!(changed(), before, "a file was made to be measured");
    assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "somebody connected");
}

/// Broken on purpose and seen red: whether it can be written is found out by opening it as what writes it does.
#[test]
fn a_command_that_fails_leaves_it_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("old"), "kept").unwrap();
    for out in ["old", "new"] {
        let output = plimsoll(folder, &["device", "measure", "missing/probe", "--out", out]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.starts_with("missing/probe: "), "{message}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("old")).unwrap(), "kept");
    assert!(!folder.join("new").exists());
}

/// Broken on purpose and seen red: the file is written first, as it was.
/// Promise: lab-out.
#[test]
fn what_was_found_is_printed_though_it_cannot_be_written_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("disk"), vec![1; 16 << 20]).unwrap();
    std::fs::write(folder.join("trace.csv"), "0.1,0,100,4096,0,0,0,20000,R\n0.2,0,100,4096,8,0,0,20000,R\n").unwrap();
    for (command, expected) in [
        (&["device", "measure", "disk", "--seconds", "1"][..], "disk of 16 MiB: worst case "),
        (&["load", "disk", "--rate", "50", "--seconds", "1", "--warm-up", "0"], "read random 4KiB: "),
        (&["replay", "trace.csv", "--cache=8KiB"], "trace.csv: 2 blocks of 4 KiB"),
    ] {
        let output = plimsoll(folder, &[command, &["--out", "/dev/full", "--no-progress"]].concat());
        let (printed, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(printed.contains(expected), "{printed}");
        assert_eq!(message, "/dev/full: cannot write it: No space left on device (os error 28)\n");
    }
}
