//! What the engine's thread must be before a file system depends on it.
//!
//! The kernel may write a tenant's dirty pages through us exactly when memory is short. If the thread that serves them
//! then waits for memory itself, no thread ever gets any. So its memory is locked. The kernel is told that its
//! allocations must not start writeback (`PR_SET_IO_FLUSHER`, made for FUSE servers and iSCSI initiators).
//!
//! Pages are locked as they are touched and not before: a memory-backed volume is mapped whole but filled by its users.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use std::num::NonZeroU64;

/// How late a timer of the thread may fire for the kernel's convenience, in nanoseconds. The default, 50,000, is longer
/// than an SSD takes for a read; 1 is the smallest that prctl(2) takes.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// A wish that the kernel refused. The thread can go on; what it loses is said.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{wish} was refused ({errno}): {loss}")]
pub struct SetupRefused {
    /// What was asked for.
    pub wish: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
    /// What the thread loses.
    pub loss: &'static str,
}

/// Prepares the calling thread to serve a block device. Answers the settings that the kernel refused. `mlockall` needs
/// CAP_IPC_LOCK or a high RLIMIT_MEMLOCK; `PR_SET_IO_FLUSHER` needs CAP_SYS_RESOURCE.
///
/// The locking is for the whole process and for its future mappings; the rest is for this thread.
pub fn prepare_engine_thread() -> Vec<SetupRefused> {
    let lock = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    let slack = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
    let outcomes = [
        (lock, "mlockall", "under memory pressure this process may be swapped out while a file system waits for it"),
        (flusher, "PR_SET_IO_FLUSHER", "under memory pressure writeback may wait for itself"),
        (slack, "PR_SET_TIMERSLACK", "timers fire up to 50 us late"),
    ];
    let refused = |(outcome, wish, loss): (Result<(), Errno>, _, _)| {
        outcome.err().map(|errno| SetupRefused { wish, errno, loss })
    };
    outcomes.into_iter().filter_map(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of `CapEff` in `/proc/self/status` (capability(7)).
    const CAP_IPC_LOCK: u32 = 14;
    const CAP_SYS_RESOURCE: u32 = 24;

    fn status_of(name: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    }

    #[test]
    fn the_thread_is_what_it_was_asked_to_be() {
        let check = std::thread::spawn(|| {
            let capabilities = u64::from_str_radix(&status_of("CapEff"), 16).unwrap();
            let may = |capability: u32| capabilities >> capability & 1 == 1;
            let refused = prepare_engine_thread();
            let was_refused = |wish: &str| refused.iter().any(|refusal| refusal.wish == wish);
            assert_eq!(rustix::thread::current_timer_slack(), Ok(TIMER_SLACK_NS.get()));
            assert_eq!(may(CAP_SYS_RESOURCE), !was_refused("PR_SET_IO_FLUSHER"));
            if may(CAP_SYS_RESOURCE) {
                assert_eq!(rustix::process::is_io_flusher(), Ok(true));
            } else {
                println!("not run: PR_SET_IO_FLUSHER needs CAP_SYS_RESOURCE");
            }
            if may(CAP_IPC_LOCK) {
                assert!(!was_refused("mlockall"));
                assert_ne!(status_of("VmLck"), "0 kB");
                rustix::mm::munlockall().unwrap();
            } else {
                println!("not run: mlockall needs CAP_IPC_LOCK");
            }
        });
        check.join().unwrap();
    }
}
