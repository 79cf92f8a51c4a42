//! Which processes descend from which.

use std::path::Path;

/// Ancestors of a process that are looked at: more than a container has on its way to its first process.
const ANCESTORS_MAX: usize = 64;

/// Whether a cgroup has processes, and only `process` and its descendants.
pub(crate) fn holds_only(directory: &Path, process: u32) -> bool {
    let members = std::fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let mut members = members.lines().peekable();
    members.peek().is_some() && members.all(|member| member.parse().is_ok_and(|member| descends(member, process)))
}

/// Whether a process is `ancestor` or was started by it.
fn descends(process: u32, ancestor: u32) -> bool {
    let parent = |process: &u32| {
        let status = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    std::iter::successors(Some(process), parent).take(ANCESTORS_MAX).any(|process| process == ancestor)
}
