//! A test that hangs is named and ended, with all that it started, and the run goes on: `scripts/time-limit.sh`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A program that says what libtest says, and does what it is asked to.
fn run(folder: &Path, program: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/time-limit.sh");
    fs::write(folder.join("program"), program).unwrap();
    Command::new("bash")
        .arg(script)
        .args([folder.join("not_run"), folder.join("hung")])
        .args(["some/program", "bash"])
        .arg(folder.join("program"))
        .current_dir(folder)
        // libtest names a test after a minute; so it may take a second more.
        .env("TEST_SECONDS_MAX", "61")
        .output()
        .unwrap()
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    fs::read_to_string(folder.join(file)).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Whether a process ends within ten seconds. A killed process ends when it is next on a processor.
fn ends(process: &str) -> bool {
    (0..100).any(|_| {
        let has_ended = has_ended(process);
        if !has_ended {
            Command::new("sleep").arg("0.1").status().unwrap();
        }
        has_ended
    })
}

/// Whether a process has ended: there is no such process, or only its exit code is left.
fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
}

/// Promise: project-hanging-test.
#[test]
fn a_test_that_hangs_is_named_and_ended_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let program = "\
        echo; echo 'running 3 tests'\n\
        echo 'test quick ... ok'\n\
        echo 'test module::slow has been running for over 60 seconds'\n\
        echo 'test module::slow - should panic ... ok'\n\
        for start in '' setsid; do $start sleep 600 & echo $! >>started; done\n\
        (setsid sleep 600 & echo $! >>started)\n\
        echo 'test module::hangs has been running for over 60 seconds'\n\
        while :; do :; done\n";
    let output = run(folder.path(), program);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let said = ["some/program: module::hangs ran for over 61 s and was ended"];
    assert_eq!(lines(folder.path(), "hung"), said, "{output:?}");
    let started = lines(folder.path(), "started");
    assert_eq!(started.len(), 3);
    assert!(started.iter().all(|process| ends(process)), "{started:?}");
}

/// Promise: project-hanging-test.
#[test]
fn what_is_not_run_is_collected_what_passed_is_not_shown_and_what_failed_is() {
    let folder = tempfile::tempdir().unwrap();
    let program = "\
        echo 'test passes ... ok'; echo 'test fails ... FAILED'\n\
        printf '\\nsuccesses:\\n\\n---- passes stdout ----\\nnot run: no root\\n\\nsuccesses:\\n    passes\\n\\n'\n\
        printf '\\nfailures:\\n\\n---- fails stdout ----\\nthe reason\\n\\n'\n\
        echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'\n\
        setsid sleep 30 & echo $! >started\n\
        exit 101\n";
    let output = run(folder.path(), program);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let started = lines(folder.path(), "started");
    // It outlives the program and holds its pipe: the script does not wait for it.
    Command::new("kill").args(&started).status().unwrap();
    assert_eq!((output.status.code(), lines(folder.path(), "hung").len()), (Some(101), 0), "{said}");
    assert_eq!(lines(folder.path(), "not_run"), ["not run: no root"]);
    assert!(
        said.contains("test fails ... FAILED") && said.contains("the reason") && said.contains("1 failed"),
        "{said}"
    );
    assert!(!said.contains("passes") && !said.contains("no root"), "{said}");
}
