//! Steps that wait for our own engine, on a thread that may be killed meanwhile.
//!
//! A thread inside mount(2) waits for blocks that this very process serves, and while it waits it cannot be killed. If
//! the process is killed then, the engine's thread ends at once. But the kernel closes descriptors only when the last
//! thread that shares them has ended. So `/dev/fuse` would stay open, and the kernel would go on waiting for an answer
//! from it. Neither the thread nor the process nor the mount would ever go away.
//!
//! ```text
//!   killed process:  engine's thread: gone      mount(2): waits for /dev/fuse     /dev/fuse: open, since the thread in
//!                                                          ^                                 mount(2) shares it
//!                                                          +-----------------------------------------+
//! ```
//!
//! So such steps run on a thread with a table of descriptors of its own. In it `/dev/null` replaces all descriptors of
//! the process but standard input, output and error. When the rest of the process dies, the last descriptor of
//! `/dev/fuse` is closed. Then the kernel fails the call that waits for it, and the thread ends, too. Replaced and not
//! just closed: a logger that writes to the number that it knows must not hit a block device that was opened since.
//!
//! One more thing can hold the rest of the process up. Writing a core file waits for all threads, this one included,
//! before any descriptor is closed. A process that serves volumes therefore writes none; tenants' data would be in it
//! besides.

use super::error::AttachError;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// This thread's descriptors.
const DESCRIPTORS: &str = "/proc/thread-self/fd";
/// The last descriptor that stays as it is.
const STANDARD_ERROR: RawFd = 2;

/// Runs `work`, which may wait for this process's engine, so that killing this process ends the wait.
///
/// `work` opens what it needs itself and gives no descriptor back. Those from outside lead to `/dev/null` for it; an
/// [`EngineHandle`](plimsoll_engine::EngineHandle), for one, does not work here.
///
/// # Errors
/// `/proc` is not mounted, or no memory for a table.
///
/// # Panics
/// As `work` does.
pub fn isolated<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, AttachError> {
    let on_thread = || {
        leave_descriptors().map_err(AttachError::file("leave the descriptors in", DESCRIPTORS))?;
        Ok(work())
    };
    std::thread::scope(|scope| scope.spawn(on_thread).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Gives this thread a table of descriptors of its own that leads nowhere.
fn leave_descriptors() -> io::Result<()> {
    // SAFETY: the thread was just made and owns no descriptor. Those that it replaces below are copies: the threads
    // that own the originals have them in another table. What it opens from now on, it uses and closes by itself.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let mut inherited: Vec<RawFd> = Vec::new();
    for entry in std::fs::read_dir(DESCRIPTORS)? {
        inherited.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    let nowhere = File::open("/dev/null")?;
    for number in inherited.into_iter().filter(|&number| number > STANDARD_ERROR && number != nowhere.as_raw_fd()) {
        // SAFETY: see above: copies in a table that only this thread has, and that nothing in this thread owns.
        if unsafe { libc::dup3(nowhere.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::BorrowedFd;

    #[test]
    fn descriptors_from_outside_lead_nowhere_and_their_owners_keep_them() {
        if !rustix::process::geteuid().is_root() {
            println!("not run: needs root to look at its own descriptors while no core file may be written");
            return;
        }
        let mut outside = File::open("/proc/self/status").unwrap();
        let number = outside.as_raw_fd();
        let target = || std::fs::read_link(format!("{DESCRIPTORS}/{number}")).unwrap();
        assert!(target().ends_with("status"));
        let inside = isolated(|| (target(), File::open("/proc/self/status").unwrap().as_raw_fd())).unwrap();
        assert_eq!(inside.0, std::path::Path::new("/dev/null"));
        assert_ne!(inside.1, number, "a descriptor number that other threads know is not used again");
        // SAFETY: `outside` is open.
        let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        assert!(outside.read(&mut [0; 100]).unwrap() > 0);
    }

    #[test]
    #[should_panic(expected = "as it does")]
    fn a_panic_passes_through() {
        let outcome = isolated(|| panic!("as it does"));
        // Without root the thread may not be able to see its own descriptors a second time.
        panic!("not run, as it does: {outcome:?}");
    }
}
