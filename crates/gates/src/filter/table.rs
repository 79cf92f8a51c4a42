//! The system calls that a gate knows: their class, and the arguments with their file and bytes.

use crate::class::GateClass::{self, Metadata, Read, Sync, Write};
use plimsoll_core::CallKind;

/// When a call of that number is one of the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Always.
    Always,
    /// If one of the bits of `mask` is set in an argument.
    Flags { argument: usize, mask: u32 },
}

/// What the call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file behind the descriptor in this argument.
    Descriptor(usize),
    /// A path. Looking it up could wait for a tenant's own file system. So the directory that it starts from stands for
    /// it: the descriptor in this argument, or the working directory.
    Path(Option<usize>),
    /// Not to be seen from the arguments.
    Unknown,
}

/// Which bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// None, or all.
    None,
    /// This argument has the number of bytes. They start at the offset in that argument, or at the descriptor's
    /// position.
    Bytes { length: usize, offset: Option<usize> },
    /// The bytes of the vectors together, which the arguments do not show; the offset as above.
    Vectors { offset: Option<usize> },
}

/// One system call.
#[derive(Debug)]
pub(crate) struct GatedCall {
    pub number: i64,
    /// As libseccomp and the OCI runtimes call it.
    pub name: &'static str,
    pub class: GateClass,
    pub kind: CallKind,
    pub condition: Condition,
    pub place: Place,
    pub extent: Extent,
}

/// Flags with which open(2) changes the file system. `O_TMPFILE` is a bit of its own and `O_DIRECTORY`.
pub(crate) const OPEN_CHANGES: [u32; 3] =
    [libc::O_CREAT as u32, libc::O_TRUNC as u32, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32];
const OPEN_MASK: u32 = OPEN_CHANGES[0] | OPEN_CHANGES[1] | OPEN_CHANGES[2];
/// msync(2): waits.
const MS_SYNC: u32 = libc::MS_SYNC as u32;

/// What would pass by every gate: a ring's calls are made by the kernel itself.
pub(crate) const REFUSED: [(i64, &str); 3] = [
    (libc::SYS_io_uring_setup, "io_uring_setup"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_io_uring_register, "io_uring_register"),
];

/// A call by which a process may install a seccomp filter of its own. It has a number, and the range of the first
/// argument that says so.
pub(crate) const RESTRICTING: [(i64, u32, u32); 2] = [
    (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER),
    (libc::SYS_prctl, libc::PR_SET_SECCOMP as u32, libc::PR_SET_SECCOMP as u32),
];
/// Marks, in the sixth argument of such a call, a process without gates that would have to leave them (`shim/aside.h`).
/// The kernel does not look at that argument.
pub(crate) const STOOD_ASIDE: u32 = u32::from_le_bytes(*b"PrGl");
pub(crate) const STOOD_ASIDE_ARGUMENT: usize = 5;

const AT_DESCRIPTOR: Place = Place::Descriptor(0);
const AT_WORKING_DIRECTORY: Place = Place::Path(None);
const AT_DIRECTORY: Place = Place::Path(Some(0));

const fn call(
    number: i64,
    name: &'static str,
    class: GateClass,
    kind: CallKind,
    place: Place,
    extent: Extent,
) -> GatedCall {
    GatedCall { number, name, class, kind, condition: Condition::Always, place, extent }
}

const fn open(number: i64, name: &'static str, argument: usize, place: Place) -> GatedCall {
    let condition = Condition::Flags { argument, mask: OPEN_MASK };
    GatedCall { number, name, class: Metadata, kind: CallKind::Create, condition, place, extent: Extent::None }
}

const fn bytes(length: usize, offset: Option<usize>) -> Extent {
    Extent::Bytes { length, offset }
}

const fn vectors(offset: Option<usize>) -> Extent {
    Extent::Vectors { offset }
}

/// All of them.
pub(crate) const GATED: &[GatedCall] = &[
    call(libc::SYS_write, "write", Write, CallKind::Write, AT_DESCRIPTOR, bytes(2, None)),
    call(libc::SYS_pwrite64, "pwrite64", Write, CallKind::Write, AT_DESCRIPTOR, bytes(2, Some(3))),
    call(libc::SYS_writev, "writev", Write, CallKind::Write, AT_DESCRIPTOR, vectors(None)),
    call(libc::SYS_pwritev, "pwritev", Write, CallKind::Write, AT_DESCRIPTOR, vectors(Some(3))),
    call(libc::SYS_pwritev2, "pwritev2", Write, CallKind::Write, AT_DESCRIPTOR, vectors(Some(3))),
    call(libc::SYS_copy_file_range, "copy_file_range", Write, CallKind::Write, Place::Descriptor(2), bytes(4, None)),
    call(libc::SYS_sendfile, "sendfile", Write, CallKind::Write, AT_DESCRIPTOR, bytes(3, None)),
    call(libc::SYS_splice, "splice", Write, CallKind::Write, Place::Descriptor(2), bytes(4, None)),
    call(libc::SYS_io_submit, "io_submit", Write, CallKind::Write, Place::Unknown, Extent::None),
    call(libc::SYS_fsync, "fsync", Sync, CallKind::Fsync, AT_DESCRIPTOR, Extent::None),
    call(libc::SYS_fdatasync, "fdatasync", Sync, CallKind::Fdatasync, AT_DESCRIPTOR, Extent::None),
    call(libc::SYS_sync_file_range, "sync_file_range", Sync, CallKind::Fdatasync, AT_DESCRIPTOR, bytes(2, Some(1))),
    call(libc::SYS_syncfs, "syncfs", Sync, CallKind::Fsync, AT_DESCRIPTOR, Extent::None),
    call(libc::SYS_sync, "sync", Sync, CallKind::Fsync, Place::Unknown, Extent::None),
    GatedCall {
        number: libc::SYS_msync,
        name: "msync",
        class: Sync,
        kind: CallKind::Fdatasync,
        condition: Condition::Flags { argument: 2, mask: MS_SYNC },
        place: Place::Unknown,
        extent: Extent::None,
    },
    #[cfg(target_arch = "x86_64")]
    open(libc::SYS_open, "open", 1, AT_WORKING_DIRECTORY),
    open(libc::SYS_openat, "openat", 2, AT_DIRECTORY),
    // Its flags are in memory, where a filter cannot look, and the listener does not: any may change the file system.
    call(libc::SYS_openat2, "openat2", Metadata, CallKind::Create, AT_DIRECTORY, Extent::None),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_creat, "creat", Metadata, CallKind::Create, AT_WORKING_DIRECTORY, Extent::None),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_mkdir, "mkdir", Metadata, CallKind::MakeDirectory, AT_WORKING_DIRECTORY, Extent::None),
    call(libc::SYS_mkdirat, "mkdirat", Metadata, CallKind::MakeDirectory, AT_DIRECTORY, Extent::None),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_rename, "rename", Metadata, CallKind::Rename, AT_WORKING_DIRECTORY, Extent::None),
    call(libc::SYS_renameat, "renameat", Metadata, CallKind::Rename, AT_DIRECTORY, Extent::None),
    call(libc::SYS_renameat2, "renameat2", Metadata, CallKind::Rename, AT_DIRECTORY, Extent::None),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_unlink, "unlink", Metadata, CallKind::Unlink, AT_WORKING_DIRECTORY, Extent::None),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_rmdir, "rmdir", Metadata, CallKind::Unlink, AT_WORKING_DIRECTORY, Extent::None),
    call(libc::SYS_unlinkat, "unlinkat", Metadata, CallKind::Unlink, AT_DIRECTORY, Extent::None),
    call(libc::SYS_truncate, "truncate", Metadata, CallKind::Truncate, AT_WORKING_DIRECTORY, Extent::None),
    call(libc::SYS_ftruncate, "ftruncate", Metadata, CallKind::Truncate, AT_DESCRIPTOR, Extent::None),
    call(libc::SYS_fallocate, "fallocate", Metadata, CallKind::Allocate, AT_DESCRIPTOR, bytes(3, Some(2))),
    call(libc::SYS_read, "read", Read, CallKind::Read, AT_DESCRIPTOR, bytes(2, None)),
    call(libc::SYS_pread64, "pread64", Read, CallKind::Read, AT_DESCRIPTOR, bytes(2, Some(3))),
    call(libc::SYS_readv, "readv", Read, CallKind::Read, AT_DESCRIPTOR, vectors(None)),
    call(libc::SYS_preadv, "preadv", Read, CallKind::Read, AT_DESCRIPTOR, vectors(Some(3))),
    call(libc::SYS_preadv2, "preadv2", Read, CallKind::Read, AT_DESCRIPTOR, vectors(Some(3))),
];
