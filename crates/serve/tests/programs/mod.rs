//! Other people's programs in tests: run where they are installed, told where they are not, and never for ever.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::process::{Command, Output};

/// Seconds after which a program that hangs is killed.
const SECONDS_MAX: &str = "300";

/// Whether a program is there; says so if not.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_there {
        println!("not run: {program} is not installed");
    }
    is_there
}

/// Runs a program that cannot hang for ever.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout").arg(SECONDS_MAX).arg(program).args(arguments).output().unwrap()
}

/// Runs a program that must succeed, and gives what it printed.
pub fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{printed}{complaints}", output.status);
    printed
}
