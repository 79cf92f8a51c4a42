//! I/O priorities of a process's threads, which the kernel's schedulers go by.

use crate::scenario::{AccountSetup, ProcessSetup};
use plimsoll_core::Priority;
use serde::{Deserialize, Serialize};
use std::io;

/// `IOPRIO_WHO_PROCESS` of ioprio_set(2), and 0 for the calling thread.
const WHO_PROCESS: libc::c_int = 1;
const THIS_THREAD: libc::c_int = 0;
/// Classes of ioprio_set(2), and where they stand in a priority (`IOPRIO_CLASS_SHIFT`).
const CLASS_SHIFT: u32 = 13;
const CLASS_REAL_TIME: u32 = 1;
const CLASS_BEST_EFFORT: u32 = 2;
const CLASS_IDLE: u32 = 3;

/// Priorities of the threads of a process: its account's, and those of threads in other accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Priorities {
    process: Priority,
    threads: Vec<(String, Priority)>,
}

impl Priorities {
    /// What the accounts of `process` have.
    pub(super) fn of(process: &ProcessSetup, accounts: &[AccountSetup]) -> Priorities {
        let of = |name: &String| {
            let account = accounts.iter().find(|account| account.name == *name);
            account.map_or(Priority::default(), |account| account.allocation.priority)
        };
        let threads = process.thread_accounts.iter().map(|(thread, account)| (thread.clone(), of(account)));
        Priorities { process: of(&process.account), threads: threads.collect() }
    }

    /// That of the thread with this name: of the first part of the name, or else the process's.
    pub(super) fn of_thread(&self, name: &str) -> Priority {
        let role = name.split('.').next().unwrap_or(name);
        let own = self.threads.iter().find(|(thread, _)| thread == role || thread == name);
        own.map_or(self.process, |(_, priority)| *priority)
    }
}

/// The priority as the kernel has it.
fn in_kernel(priority: Priority) -> u32 {
    match priority {
        Priority::RealTime(level) => CLASS_REAL_TIME << CLASS_SHIFT | u32::from(level),
        Priority::Level(level) => CLASS_BEST_EFFORT << CLASS_SHIFT | u32::from(level),
        Priority::Idle => CLASS_IDLE << CLASS_SHIFT,
    }
}

/// Gives the calling thread, and those that it starts from now on, a priority.
///
/// # Errors
/// The kernel refuses: real time takes root.
pub(super) fn set(priority: Priority) -> io::Result<()> {
    // SAFETY: takes three numbers and no memory.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, THIS_THREAD, in_kernel(priority)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn get() -> u32 {
        // SAFETY: takes two numbers and no memory.
        unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, THIS_THREAD) as u32 }
    }

    #[test]
    fn the_kernel_has_what_was_set_and_threads_inherit_it() {
        std::thread::spawn(|| {
            for (priority, expected) in [(Priority::Level(2), 2 << 13 | 2), (Priority::Idle, 3 << 13)] {
                set(priority).unwrap();
                assert_eq!((get(), std::thread::spawn(get).join().unwrap()), (expected, expected), "{priority:?}");
            }
            match set(Priority::RealTime(5)) {
                Ok(()) => assert_eq!(get(), 1 << 13 | 5),
                Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "not root"),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_threads_role_decides() {
        let threads = vec![("checkpointer".to_owned(), Priority::Idle), ("client.1".to_owned(), Priority::Level(7))];
        let priorities = Priorities { process: Priority::Level(0), threads };
        for (name, expected) in
            [("checkpointer.0", Priority::Idle), ("client.1", Priority::Level(7)), ("client.2", Priority::Level(0))]
        {
            assert_eq!(priorities.of_thread(name), expected, "{name}");
        }
    }
}
