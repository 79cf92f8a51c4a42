//! The kernel's calls that no library wraps: seccomp(2), the listener's ioctls (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct seccomp_notif`, in bytes, and where its fields are.
pub(crate) const NOTIFICATION_BYTES: usize = 80;
pub(crate) const THREAD_OFFSET: usize = 8;
pub(crate) const NUMBER_OFFSET: usize = 16;
pub(crate) const ARGUMENTS_OFFSET: usize = 32;

/// `SECCOMP_IOCTL_NOTIF_*` and flags of linux/seccomp.h, as `_IOC` packs them.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
const FLAG_CONTINUE: u32 = 1;
const SYNC_WAKE_UP: u64 = 1;
/// Since Linux 5.19; libc does not have it.
const WAIT_KILLABLE_RECEIVE: libc::c_ulong = 1 << 5;

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Puts the calling thread, for ever, behind `program`, and gives its listener back. Once a notification is received,
/// only a fatal signal ends the wait: else every timer of a tenant's would bring its calls in again.
///
/// Safe to call between fork and exec. Without CAP_SYS_ADMIN the thread gives up gaining privileges by exec first.
pub(crate) fn install(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    let install = || {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECEIVE;
        // SAFETY: the kernel copies the program, which is as long as it says.
        let listener = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER as libc::c_ulong, flags, &program)
        };
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which no other code knows.
        Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
    };
    match install() {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true)?;
            install()
        }
        outcome => outcome,
    }
}

/// Receives a notification into the [`NOTIFICATION_BYTES`] zeroed bytes at `place`. It waits if there is none.
///
/// # Safety
/// The bytes are mapped, and no code holds a reference to them that is not to an atomic.
pub(crate) unsafe fn receive(listener: BorrowedFd<'_>, place: *mut u8) -> io::Result<()> {
    // SAFETY: as the caller says; the request has the size of the structure in it.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, place) })
}

/// Lets the call go on. `NotFound` if it is not there any more, or was answered.
pub(crate) fn send_continue(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let mut response = Response { id, value: 0, error: 0, flags: FLAG_CONTINUE };
    // SAFETY: the structure is the kernel's, and lives as long as the call.
    undisturbed(|| check(unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &mut response) }))
}

/// Whether the call still waits.
pub(crate) fn is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the number lives as long as the call.
    undisturbed(|| check(unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID, &id) })).is_ok()
}

/// Asks the kernel to run tenant and listener in turn on one processor while they wait for each other (Linux 6.6).
pub(crate) fn wake_synchronously(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a number, by value.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Repeats a request that a signal interrupted while the kernel waited for the listener's lock. A caller that takes
/// that for an answer forgets a call that waits.
fn undisturbed(mut request: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match request() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_no_answer() {
        let (gone, signal) = (io::ErrorKind::NotFound, io::ErrorKind::Interrupted);
        let mut answers = vec![Err(gone.into()), Ok(()), Err(signal.into()), Err(signal.into())];
        let mut ask = || undisturbed(|| answers.pop().expect("an answer"));
        assert!(ask().is_ok());
        assert_eq!(ask().unwrap_err().kind(), gone);
    }
}
