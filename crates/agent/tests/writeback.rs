//! Writeback in slices, of files that lie on the volume of the engine that asks for it.

mod support;

use plimsoll_core::{Allocation, Deadlines, Span};
use plimsoll_serve::attach::FileSystemKind;
use std::sync::mpsc::channel;
use std::time::Duration;
use support::{Rig, go};

/// Files that are at least written, synced and put in the place of the one before: about one a second, as each makes
/// the promised deadline late.
const FILES: u64 = 20;
/// How long an engine that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The last close of a deleted file ends it, and waits for its pages and for the journal. If an engine's thread did
/// that, its volume would wait for itself. That takes bad luck, so code that does it can pass here; what it cannot pass
/// is the test in the text of [`plimsoll_agent::files`], by which files stay on the thread that opened them.
/// Promise: tenants-writeback-files.
#[test]
fn files_that_are_replaced_while_slices_of_them_are_written_stop_no_engine() {
    for kind in [FileSystemKind::Ext4, FileSystemKind::Xfs] {
        let Some(mut rig) = Rig::new(kind, "split_deadline") else { return };
        // Too short for anything: so the fsyncs of all others are held until their files have been written in slices.
        let deadlines = Deadlines { fsync: Some(Span::from_millis(1)), ..Deadlines::default() };
        rig.join("a", Allocation { deadlines, ..Allocation::default() });
        let b = rig.join("b", Allocation::default());
        let [new, old] = ["new", "old"].map(|name| rig.path(name).display().to_string());
        let [going, count] = ["going", "count"].map(|name| rig.outside(name));
        [&going, &count].into_iter().for_each(|path| std::fs::write(path, "").unwrap());
        let replace = format!("dd if=/dev/zero of={new} bs=64k count=4 conv=fsync status=none && mv -f {new} {old}");
        let counted = format!("printf x >> {}", count.display());
        let script = format!("while [ -e {} ]; do {replace} && {counted} || exit 1; done", going.display());
        let mut child = rig.start(&b, &script);
        go(&mut child);
        let (mut opened_max, root) = (0, 1);
        rig.wait_until("files that are replaced", || {
            let (answer, answered) = channel();
            let engine = rig.engine.clone();
            std::thread::spawn(move || answer.send(engine.status().is_ok()));
            assert_eq!(answered.recv_timeout(PATIENCE), Ok(true), "{kind:?}: the engine stands still");
            opened_max = opened_max.max(rig.open_here());
            std::fs::metadata(&count).unwrap().len() >= FILES && opened_max > root
        });
        std::fs::remove_file(&going).unwrap();
        assert!(child.wait().unwrap().success());
        // What is kept open would keep the file system.
        rig.close_station();
        assert_eq!(rig.open_here(), 0);
        let done = rig.detach();
        assert!(!done.is_empty() && done.iter().all(|step| !step.contains("still in use")), "{done:?}");
    }
}
