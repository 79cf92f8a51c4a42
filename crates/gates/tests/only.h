/* Calls that gates know, each for itself: no gate knows any other call on the way. So a thread that waits, waits in
 * that call, and one that a gate has forgotten does not hide behind another.
 *
 * Some fail, as it is expected of them, so that nothing has to be done before they can be done again. */
#ifndef PLIMSOLL_TESTS_ONLY_H
#define PLIMSOLL_TESTS_ONLY_H

#define PREFIX "only-"
#define LENGTH 4096

/* Not declared unless a program is built to be checked. */
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t);

static int closed(int fd) { return fd < 0 ? -1 : close(fd); }

/* It may fail so. */
static int or_fails(int result, int expected) {
  if (!result) return 0;
  int is_expected = errno == expected;
  errno = 0;
  return is_expected ? 0 : -1;
}

static int from_pipe(int fd, const struct iovec *bytes) {
  int ends[2];
  off64_t at = 0;
  if (pipe(ends)) return -1;
  int failed = vmsplice(ends[1], bytes, 1, 0) != LENGTH || splice(ends[0], NULL, fd, &at, LENGTH, 0) != LENGTH;
  return close(ends[0]) | close(ends[1]) | -failed;
}

static int synchronized(int fd) {
  void *mapped = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0);
  return mapped == MAP_FAILED ? -1 : msync(mapped, LENGTH, MS_SYNC) | munmap(mapped, LENGTH);
}

/* Nothing of the file is in the cache. */
static int cold(int fd) { return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

static int at_start(int fd) { return lseek(fd, 0, SEEK_SET) ? -1 : 0; }

/* `name` does not exist, or was made by an earlier one of these; `file` has two pages. */
static int only(const char *call, int fd, const char *file, const char *name, char *bytes) {
  struct iovec one = {bytes, LENGTH};
  off64_t at = 0, further = LENGTH;
  int flags = O_CREAT | O_RDWR, here = AT_FDCWD;
#define ONE(called, done) \
  if (!strcmp(call, called)) return (done) ? -1 : 0;
  ONE("write", at_start(fd) || write(fd, bytes, LENGTH) != LENGTH)
  ONE("pwrite", pwrite(fd, bytes, LENGTH, 0) != LENGTH)
  ONE("pwrite64", pwrite64(fd, bytes, LENGTH, 0) != LENGTH)
  ONE("writev", at_start(fd) || writev(fd, &one, 1) != LENGTH)
  ONE("pwritev", pwritev(fd, &one, 1, 0) != LENGTH)
  ONE("pwritev64", pwritev64(fd, &one, 1, 0) != LENGTH)
  ONE("pwritev2", pwritev2(fd, &one, 1, 0, 0) != LENGTH)
  ONE("pwritev64v2", pwritev64v2(fd, &one, 1, 0, 0) != LENGTH)
  ONE("copy_file_range", copy_file_range(fd, &at, fd, &further, LENGTH, 0) != LENGTH)
  ONE("sendfile", at_start(fd) || sendfile(fd, fd, &further, LENGTH) != LENGTH)
  ONE("sendfile64", at_start(fd) || sendfile64(fd, fd, &further, LENGTH) != LENGTH)
  ONE("splice", from_pipe(fd, &one))
  ONE("fsync", fsync(fd))
  ONE("fdatasync", fdatasync(fd))
  ONE("sync_file_range", sync_file_range(fd, 0, LENGTH, SYNC_FILE_RANGE_WRITE))
  ONE("syncfs", syncfs(fd))
  ONE("msync", synchronized(fd))
  ONE("open", closed(open(name, flags, 0600)))
  ONE("open64", closed(open64(name, flags, 0600)))
  ONE("openat", closed(openat(here, name, flags, 0600)))
  ONE("openat64", closed(openat64(here, name, flags, 0600)))
  ONE("open O_TRUNC", closed(open(file, O_RDWR | O_TRUNC)))
  ONE("__open_2", closed(__open_2(file, O_RDWR | O_TRUNC)))
  ONE("__open64_2", closed(__open64_2(file, O_RDWR | O_TRUNC)))
  ONE("__openat_2", closed(__openat_2(here, file, O_RDWR | O_TRUNC)))
  ONE("__openat64_2", closed(__openat64_2(here, file, O_RDWR | O_TRUNC)))
  ONE("creat", closed(creat(name, 0600)))
  ONE("creat64", closed(creat64(name, 0600)))
  ONE("mkdir", or_fails(mkdir(name, 0700), EEXIST))
  ONE("mkdirat", or_fails(mkdirat(here, name, 0700), EEXIST))
  ONE("rename", rename(file, file))
  ONE("renameat", renameat(here, file, here, file))
  ONE("renameat2", or_fails(renameat2(here, file, here, file, RENAME_NOREPLACE), EEXIST))
  ONE("unlink", link(file, name) || unlink(name))
  ONE("unlinkat", link(file, name) || unlinkat(here, name, 0))
  ONE("rmdir", or_fails(rmdir(name), ENOENT))
  ONE("truncate", truncate(file, LENGTH))
  ONE("truncate64", truncate64(file, LENGTH))
  ONE("ftruncate", ftruncate(fd, LENGTH))
  ONE("ftruncate64", ftruncate64(fd, LENGTH))
  ONE("fallocate", fallocate(fd, 0, 0, 2 * LENGTH))
  ONE("fallocate64", fallocate64(fd, 0, 0, 2 * LENGTH))
  ONE("posix_fallocate", posix_fallocate(fd, 0, 2 * LENGTH))
  ONE("posix_fallocate64", posix_fallocate64(fd, 0, 2 * LENGTH))
  ONE("read", cold(fd) || at_start(fd) || read(fd, bytes, LENGTH) != LENGTH)
  ONE("__read_chk", cold(fd) || at_start(fd) || __read_chk(fd, bytes, LENGTH, LENGTH) != LENGTH)
  ONE("pread", cold(fd) || pread(fd, bytes, LENGTH, 0) != LENGTH)
  ONE("__pread_chk", cold(fd) || __pread_chk(fd, bytes, LENGTH, 0, LENGTH) != LENGTH)
  ONE("pread64", cold(fd) || pread64(fd, bytes, LENGTH, 0) != LENGTH)
  ONE("__pread64_chk", cold(fd) || __pread64_chk(fd, bytes, LENGTH, 0, LENGTH) != LENGTH)
  ONE("readv", cold(fd) || at_start(fd) || readv(fd, &one, 1) != LENGTH)
  ONE("preadv", cold(fd) || preadv(fd, &one, 1, 0) != LENGTH)
  ONE("preadv64", cold(fd) || preadv64(fd, &one, 1, 0) != LENGTH)
  ONE("preadv2", cold(fd) || preadv2(fd, &one, 1, 0, 0) != LENGTH)
  ONE("preadv64v2", cold(fd) || preadv64v2(fd, &one, 1, 0, 0) != LENGTH)
  /* Known to filters only. */
#ifdef SYS_open
  ONE("SYS_open", closed(syscall(SYS_open, name, flags, 0600)))
#endif
  /* What waits for no gate. */
  ONE("preadv2 RWF_NOWAIT", cold(fd) || or_fails(preadv2(fd, &one, 1, 0, RWF_NOWAIT) != LENGTH, EAGAIN))
  ONE("open O_RDONLY", closed(open(file, O_RDONLY)))
  ONE("close", closed(dup(fd)))
#undef ONE
  errno = EINVAL;
  return -1;
}

#endif
