//! The log tells what the tags lose. The test is alone in its process and reads the process's log.

mod support;

use plimsoll_core::Allocation;
use plimsoll_serve::attach::FileSystemKind;
use std::sync::Mutex;
use support::{Rig, go};

/// A tenant that has more processes at once than there is room for.
///
/// Broken on purpose and seen red: a doorman that does not look.
/// Promise: tags-losses.
#[test]
fn what_the_tags_have_lost_stands_in_the_log() {
    let log = tempfile::NamedTempFile::new().unwrap();
    tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(log.reopen().unwrap())).init();
    let Some(mut rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    rig.close_station();
    rig.open_station_for(4);
    let tenant = rig.join("forks", Allocation::default());
    // They end when their input does.
    let mut child = rig.start(&tenant, "cat | cat | cat | cat | cat | cat | cat");
    go(&mut child);
    rig.wait_until("a line in the log", || {
        let log = std::fs::read_to_string(log.path()).unwrap();
        log.contains("WARN") && log.contains("tags have found no room since they were loaded for")
    });
    assert!(rig.station().losses().registrations > 0);
    drop(child.stdin.take());
    child.wait().unwrap();
}
