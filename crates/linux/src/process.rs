//! What the kernel says of another process: whether it is one of the kernel's own threads, and whether it is about to
//! end.

use std::fs;

/// Flags of a task (include/linux/sched.h): it is getting shut down; it is a thread of the kernel's own.
const EXITING: u64 = 0x4;
const KERNEL_THREAD: u64 = 0x0020_0000;
/// The bit of SIGKILL in a mask of signals.
const KILLED: u64 = 1 << 8;

/// State and flags of a task: the third and the ninth field of its `stat` (proc(5)). `None` if there is no such task.
fn state_and_flags(task: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{task}/stat")).ok()?;
    // Its name is in parentheses, and may hold any.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(5)?.parse().ok()?))
}

/// Whether a process or thread is one of the kernel's own. Not if there is no such task.
pub fn is_kernel_thread(task: u32) -> bool {
    state_and_flags(task).is_some_and(|(_, flags)| flags & KERNEL_THREAD != 0)
}

/// Whether a process has gone, or is about to: it is a zombie, it exits, or SIGKILL has come to it. What the kernel
/// does for it meanwhile, and its locks, may last longer than the process.
pub fn is_ending(process: u32) -> bool {
    let Some((state, flags)) = state_and_flags(process) else { return true };
    if matches!(state, 'Z' | 'X') || flags & EXITING != 0 {
        return true;
    }
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & KILLED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Planted break that was seen red: flags are read from the field before.
    #[test]
    fn what_ends_and_what_is_the_kernels_is_told_from_a_living_process() {
        let own = std::process::id();
        assert!(!is_ending(own) && !is_kernel_thread(own));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // Killed, exiting or a zombie: until it is waited for.
        assert!(is_ending(child.id()) && !is_kernel_thread(child.id()));
        child.wait().unwrap();
        // kthreadd; in a PID namespace of its own there may be none.
        let is_there = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
        assert!(!is_there || (is_kernel_thread(2) && !is_ending(2)));
    }
}
