/* The calls behind the gates, by class. `GATED` is in gate.c. */

/* Writes. */
GATED(ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n), gate_file(CLASS_WRITE, fd),
      (SYS_write, fd, bytes, n))
GATED(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at), (fd, bytes, n, at), gate_file(CLASS_WRITE, fd),
      (SYS_pwrite64, fd, bytes, n, at))
GATED(ssize_t, pwrite64, (int fd, const void *bytes, size_t n, off64_t at), (fd, bytes, n, at),
      gate_file(CLASS_WRITE, fd), (SYS_pwrite64, fd, bytes, n, at))
GATED(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), TAKE_CLASS(fd, v, n); gate_file(CLASS_WRITE, fd),
      (SYS_writev, fd, v, n))
GATED(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at), TAKE_CLASS(fd, v, n); gate_file(CLASS_WRITE, fd),
      (SYS_pwritev, fd, v, n, at, 0L))
GATED(ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at),
      TAKE_CLASS(fd, v, n); gate_file(CLASS_WRITE, fd), (SYS_pwritev, fd, v, n, at, 0L))
GATED(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t at, int flags), (fd, v, n, at, flags),
      TAKE_CLASS(fd, v, n); gate_file(CLASS_WRITE, fd), (SYS_pwritev2, fd, v, n, at, 0L, flags))
GATED(ssize_t, pwritev64v2, (int fd, const struct iovec *v, int n, off64_t at, int flags), (fd, v, n, at, flags),
      TAKE_CLASS(fd, v, n); gate_file(CLASS_WRITE, fd), (SYS_pwritev2, fd, v, n, at, 0L, flags))
GATED(ssize_t, copy_file_range, (int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags),
      (from, from_at, to, to_at, n, flags), gate_file(CLASS_WRITE, to),
      (SYS_copy_file_range, from, from_at, to, to_at, n, flags))
GATED(ssize_t, sendfile, (int to, int from, off_t *from_at, size_t n), (to, from, from_at, n),
      gate_file(CLASS_WRITE, to), (SYS_sendfile, to, from, from_at, n))
GATED(ssize_t, sendfile64, (int to, int from, off64_t *from_at, size_t n), (to, from, from_at, n),
      gate_file(CLASS_WRITE, to), (SYS_sendfile, to, from, from_at, n))
GATED(ssize_t, splice, (int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags),
      (from, from_at, to, to_at, n, flags), gate_file(CLASS_WRITE, to),
      (SYS_splice, from, from_at, to, to_at, n, flags))

/* Whatever makes written bytes durable. */
GATED(int, fsync, (int fd), (fd), gate_file(CLASS_SYNC, fd), (SYS_fsync, fd))
GATED(int, fdatasync, (int fd), (fd), gate_file(CLASS_SYNC, fd), (SYS_fdatasync, fd))
GATED(int, sync_file_range, (int fd, off64_t at, off64_t n, unsigned flags), (fd, at, n, flags),
      gate_file(CLASS_SYNC, fd), (SYS_sync_file_range, fd, at, n, flags))
GATED(int, syncfs, (int fd), (fd), gate_file(CLASS_SYNC, fd), (SYS_syncfs, fd))
GATED(int, msync, (void *start, size_t n, int flags), (start, n, flags), if (flags & MS_SYNC) gate(CLASS_SYNC),
      (SYS_msync, start, n, flags))

/* Changes of the file system itself. */
GATED(int, creat, (const char *path, mode_t mode), (path, mode), gate(CLASS_METADATA),
      (SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode))
GATED(int, creat64, (const char *path, mode_t mode), (path, mode), gate(CLASS_METADATA),
      (SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode))
GATED(int, mkdir, (const char *path, mode_t mode), (path, mode), gate(CLASS_METADATA),
      (SYS_mkdirat, AT_FDCWD, path, mode))
GATED(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), gate(CLASS_METADATA),
      (SYS_mkdirat, at, path, mode))
GATED(int, rename, (const char *from, const char *to), (from, to), gate(CLASS_METADATA),
      (SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0))
GATED(int, renameat, (int from_at, const char *from, int to_at, const char *to), (from_at, from, to_at, to),
      gate(CLASS_METADATA), (SYS_renameat2, from_at, from, to_at, to, 0))
GATED(int, renameat2, (int from_at, const char *from, int to_at, const char *to, unsigned flags),
      (from_at, from, to_at, to, flags), gate(CLASS_METADATA), (SYS_renameat2, from_at, from, to_at, to, flags))
GATED(int, unlink, (const char *path), (path), gate(CLASS_METADATA), (SYS_unlinkat, AT_FDCWD, path, 0))
GATED(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), gate(CLASS_METADATA),
      (SYS_unlinkat, at, path, flags))
GATED(int, rmdir, (const char *path), (path), gate(CLASS_METADATA), (SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR))
GATED(int, truncate, (const char *path, off_t n), (path, n), gate(CLASS_METADATA), (SYS_truncate, path, n))
GATED(int, truncate64, (const char *path, off64_t n), (path, n), gate(CLASS_METADATA), (SYS_truncate, path, n))
GATED(int, ftruncate, (int fd, off_t n), (fd, n), gate_file(CLASS_METADATA, fd), (SYS_ftruncate, fd, n))
GATED(int, ftruncate64, (int fd, off64_t n), (fd, n), gate_file(CLASS_METADATA, fd), (SYS_ftruncate, fd, n))
GATED(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), gate_file(CLASS_METADATA, fd),
      (SYS_fallocate, fd, mode, at, n))
GATED(int, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n), gate_file(CLASS_METADATA, fd),
      (SYS_fallocate, fd, mode, at, n))

/* posix_fallocate answers with the error itself. */
static int allocate(int fd, off_t at, off_t n) { return (int)-K6(SYS_fallocate, fd, 0, at, n, 0, 0); }
#define ALLOCATE(name)                                                                          \
  static int (*next_##name)(int, off_t, off_t);                                                 \
  __attribute__((constructor)) static void find_##name(void) { next_##name = find(#name); }     \
  EXPORT int name(int fd, off_t at, off_t n) {                                                  \
    gate_file(CLASS_METADATA, fd);                                                              \
    return next_##name ? next_##name(fd, at, n) : allocate(fd, at, n);                          \
  }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

/* The mode is there only if the call creates a file. */
#define OPEN(name, parameters, arguments, direct)                                               \
  static int(*next_##name) parameters;                                                          \
  __attribute__((constructor)) static void find_##name(void) { next_##name = find(#name); }     \
  EXPORT int name parameters {                                                                  \
    va_list more;                                                                               \
    va_start(more, flags);                                                                      \
    mode_t mode = has_mode(flags) ? va_arg(more, mode_t) : 0;                                   \
    va_end(more);                                                                               \
    int asked = flags;                                                                          \
    flags = flags_without_classes(flags);                                                       \
    gate_open(flags);                                                                           \
    return opened(next_##name ? next_##name arguments : (int)call_kernel direct, asked);            \
  }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), (SYS_openat, AT_FDCWD, path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), (SYS_openat, AT_FDCWD, path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), (SYS_openat, at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), (SYS_openat, at, path, flags, mode))

/* What compilers call where the flags are not known and no mode is given. */
#define OPEN_WITHOUT_MODE(name, parameters, arguments, direct)                                  \
  static int(*next_##name) parameters;                                                          \
  __attribute__((constructor)) static void find_##name(void) { next_##name = find(#name); }     \
  EXPORT int name parameters {                                                                  \
    int asked = flags;                                                                          \
    flags = flags_without_classes(flags);                                                       \
    gate_open(flags);                                                                           \
    return opened(next_##name ? next_##name arguments : (int)call_kernel direct, asked);            \
  }
OPEN_WITHOUT_MODE(__open_2, (const char *path, int flags), (path, flags), (SYS_openat, AT_FDCWD, path, flags, 0))
OPEN_WITHOUT_MODE(__open64_2, (const char *path, int flags), (path, flags), (SYS_openat, AT_FDCWD, path, flags, 0))
OPEN_WITHOUT_MODE(__openat_2, (int at, const char *path, int flags), (at, path, flags), (SYS_openat, at, path, flags, 0))
OPEN_WITHOUT_MODE(__openat64_2, (int at, const char *path, int flags), (at, path, flags),
                  (SYS_openat, at, path, flags, 0))

/* Reads, which wait only for what the cache has not. Compilers call the `_chk` forms where they know the buffer. */
GATED(ssize_t, read, (int fd, void *bytes, size_t n), (fd, bytes, n), gate_read(fd, bytes, n, -1),
      (SYS_read, fd, bytes, n))
GATED(ssize_t, __read_chk, (int fd, void *bytes, size_t n, size_t most), (fd, bytes, n, most),
      gate_read(fd, bytes, n < most ? n : most, -1), (SYS_read, fd, bytes, n < most ? n : most))
GATED(ssize_t, pread, (int fd, void *bytes, size_t n, off_t at), (fd, bytes, n, at), gate_read(fd, bytes, n, at),
      (SYS_pread64, fd, bytes, n, at))
GATED(ssize_t, __pread_chk, (int fd, void *bytes, size_t n, off_t at, size_t most), (fd, bytes, n, at, most),
      gate_read(fd, bytes, n < most ? n : most, at), (SYS_pread64, fd, bytes, n < most ? n : most, at))
GATED(ssize_t, pread64, (int fd, void *bytes, size_t n, off64_t at), (fd, bytes, n, at), gate_read(fd, bytes, n, at),
      (SYS_pread64, fd, bytes, n, at))
GATED(ssize_t, __pread64_chk, (int fd, void *bytes, size_t n, off64_t at, size_t most), (fd, bytes, n, at, most),
      gate_read(fd, bytes, n < most ? n : most, at), (SYS_pread64, fd, bytes, n < most ? n : most, at))
GATED(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), TAKE_CLASS(fd, v, n); gate_reads(fd, v, n, -1),
      (SYS_readv, fd, v, n))
GATED(ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at), TAKE_CLASS(fd, v, n); gate_reads(fd, v, n, at),
      (SYS_preadv, fd, v, n, at, 0L))
GATED(ssize_t, preadv64, (int fd, const struct iovec *v, int n, off64_t at), (fd, v, n, at), TAKE_CLASS(fd, v, n); gate_reads(fd, v, n, at),
      (SYS_preadv, fd, v, n, at, 0L))
GATED(ssize_t, preadv2, (int fd, const struct iovec *v, int n, off_t at, int flags), (fd, v, n, at, flags),
      TAKE_CLASS(fd, v, n); gate_waiting_reads(fd, v, n, at, flags), (SYS_preadv2, fd, v, n, at, 0L, flags))
GATED(ssize_t, preadv64v2, (int fd, const struct iovec *v, int n, off64_t at, int flags), (fd, v, n, at, flags),
      TAKE_CLASS(fd, v, n); gate_waiting_reads(fd, v, n, at, flags), (SYS_preadv2, fd, v, n, at, 0L, flags))
