//! Commands that go on until the user stops them.

use crate::support::{Site, ends_by_itself, text};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Reads a line of what a command says again and again, as `head -1` does; it must end then, and say nothing of it.
pub fn ends_with_its_reader(mut command: Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let has_ended = ends_by_itself(&mut child);
    // Of a child that has ended this does nothing.
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!line.is_empty() && has_ended, "{command:?} goes on");
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, text(&output.stderr));
    assert!(!text(&output.stderr).contains("rror"), "{command:?}: {}", text(&output.stderr));
}

/// Broken on purpose and seen red: a reader that went away is nothing to the loop.
#[test]
fn a_status_without_a_reader_ends() {
    let site = Site::of_normal_user(
        "[device.disk0]\n[pool.web]\ndevice = \"disk0\"\n[volume.db]\npool = \"web\"\nsize = \"8MiB\"\nmemory = true\nnbd = {}\n",
    );
    let daemon = site.up();
    for form in [&["--watch"][..], &["--watch", "--json"]] {
        ends_with_its_reader(site.command(&[&["status", "--socket", "state/control.sock"], form].concat()));
    }
    daemon.stop();
}
