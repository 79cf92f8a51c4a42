//! The calls that gates know, each as a job of `only.h` that does nothing else which a gate knows: by class, with the
//! number that the kernel has for what the C library makes of it. This list is written down here and nowhere else: the
//! gates' own list is not asked.

use plimsoll_gates::GateClass::{self, Metadata, Read, Sync, Write};

/// A job's name, and its call's number.
pub type Only = (&'static str, i64);

/// All of them.
pub const CALLS: [(GateClass, &[Only]); 4] = [(Write, WRITES), (Sync, SYNCS), (Metadata, CHANGES), (Read, READS)];

const WRITES: &[Only] = &[
    ("write", libc::SYS_write),
    ("pwrite", libc::SYS_pwrite64),
    ("pwrite64", libc::SYS_pwrite64),
    ("writev", libc::SYS_writev),
    ("pwritev", libc::SYS_pwritev),
    ("pwritev64", libc::SYS_pwritev),
    ("pwritev2", libc::SYS_pwritev2),
    ("pwritev64v2", libc::SYS_pwritev2),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("sendfile", libc::SYS_sendfile),
    ("sendfile64", libc::SYS_sendfile),
    ("splice", libc::SYS_splice),
];

const SYNCS: &[Only] = &[
    ("fsync", libc::SYS_fsync),
    ("fdatasync", libc::SYS_fdatasync),
    ("sync_file_range", libc::SYS_sync_file_range),
    ("syncfs", libc::SYS_syncfs),
    ("msync", libc::SYS_msync),
];

const CHANGES: &[Only] = &[
    ("open", libc::SYS_openat),
    ("open64", libc::SYS_openat),
    ("openat", libc::SYS_openat),
    ("openat64", libc::SYS_openat),
    ("open O_TRUNC", libc::SYS_openat),
    ("__open_2", libc::SYS_openat),
    ("__open64_2", libc::SYS_openat),
    ("__openat_2", libc::SYS_openat),
    ("__openat64_2", libc::SYS_openat),
    ("creat", libc::SYS_creat),
    ("creat64", libc::SYS_creat),
    ("mkdir", libc::SYS_mkdir),
    ("mkdirat", libc::SYS_mkdirat),
    ("rename", libc::SYS_rename),
    ("renameat", libc::SYS_renameat),
    ("renameat2", libc::SYS_renameat2),
    ("unlink", libc::SYS_unlink),
    ("unlinkat", libc::SYS_unlinkat),
    ("rmdir", libc::SYS_rmdir),
    ("truncate", libc::SYS_truncate),
    ("truncate64", libc::SYS_truncate),
    ("ftruncate", libc::SYS_ftruncate),
    ("ftruncate64", libc::SYS_ftruncate),
    ("fallocate", libc::SYS_fallocate),
    ("fallocate64", libc::SYS_fallocate),
    ("posix_fallocate", libc::SYS_fallocate),
    ("posix_fallocate64", libc::SYS_fallocate),
];

const READS: &[Only] = &[
    ("read", libc::SYS_read),
    ("__read_chk", libc::SYS_read),
    ("pread", libc::SYS_pread64),
    ("__pread_chk", libc::SYS_pread64),
    ("pread64", libc::SYS_pread64),
    ("__pread64_chk", libc::SYS_pread64),
    ("readv", libc::SYS_readv),
    ("preadv", libc::SYS_preadv),
    ("preadv64", libc::SYS_preadv),
    ("preadv2", libc::SYS_preadv2),
    ("preadv64v2", libc::SYS_preadv2),
];

/// Jobs of calls that no gate of the shim is for.
pub const UNGATED: [&str; 3] = ["preadv2 RWF_NOWAIT", "open O_RDONLY", "close"];

/// What a tenant is told to do that job.
pub fn job(name: &str) -> String {
    format!("only-{name}")
}
