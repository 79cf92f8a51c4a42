//! The tracepoint that every system call of the machine pays for is there only while a process is behind a filter.

mod support;

use plimsoll_core::Allocation;
use plimsoll_serve::attach::FileSystemKind;
use support::{Rig, go};

/// Whether the kernel tells this process of each return from a system call.
fn returns_are_told() -> bool {
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    infos.filter_map(|info| std::fs::read_to_string(info.path()).ok()).any(|text| text.contains("tp_name:\tsys_exit\n"))
}

/// Red if returns are told from the start, never, or for ever.
/// Promise: gates-returns-cost.
#[test]
fn returns_are_told_while_a_process_is_behind_a_filter() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    let tenant = rig.join("a", Allocation::default());
    assert!(!returns_are_told());
    let mut child = rig.start(&tenant, "exec true");
    rig.wait_until("the first listener", returns_are_told);
    go(&mut child);
    assert!(child.wait().unwrap().success());
    rig.wait_until("a while without a listener", || !returns_are_told());
}
