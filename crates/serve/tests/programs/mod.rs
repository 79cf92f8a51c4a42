//! Other people's programs in tests: run where they are installed, told where they are not, and never for ever.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
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

/// A loop device over a file, detached at the end.
pub struct LoopDevice(String);

impl LoopDevice {
    /// `None` and a line about it if this machine or this user has none.
    pub fn over(path: &Path) -> Option<LoopDevice> {
        if !is_installed("losetup") {
            return None;
        }
        let output =
            run("losetup", &["--find", "--show", path.to_str().expect("temporary directories have plain names")]);
        if !output.status.success() {
            println!("not run: no loop device: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Flushes that it has carried out: field 16 of its statistics (`Documentation/block/stat.rst` of Linux).
    pub fn flush_count(&self) -> u64 {
        let name = self.0.trim_start_matches("/dev/");
        let statistics = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        statistics.split_whitespace().nth(15).unwrap().parse().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}
