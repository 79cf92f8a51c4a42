/* What tenants do, for the tests of the gates: tenant FILE COUNTERS WHAT [THREADS]
 *
 * Each thread does one kind of call again and again, and counts each in COUNTERS, two 64-bit words a thread: calls that it
 * entered and calls that returned. Whoever looks at them sees who waits in a call. The first error ends the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *file, *what;
static uint64_t *counters;

static int is(const char *name) { return !strcmp(what, name); }

static void fail(const char *step) {
  perror(step);
  _exit(3);
}

/* One call of the kind that was asked for; `name` is a path of this thread's own. */
static int call(int fd, const char *name, char *bytes) {
  struct iovec one = {bytes, 4096};
  if (is("write")) return pwrite(fd, bytes, 4096, 0) == 4096 ? 0 : -1;
  if (is("append")) return write(fd, bytes, 10) == 10 ? usleep(1000) : -1;
  if (is("writev")) return writev(fd, &one, 1) == 4096 && !ftruncate(fd, 0) ? 0 : -1;
  if (is("pwritev2")) return pwritev2(fd, &one, 1, 0, 0) == 4096 ? 0 : -1;
  if (is("fsync")) return pwrite(fd, bytes, 4096, 0) == 4096 ? fsync(fd) : -1;
  if (is("fdatasync")) return pwrite(fd, bytes, 4096, 0) == 4096 ? fdatasync(fd) : -1;
  if (is("range")) return sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE);
  if (is("create")) { int made = open(name, O_CREAT | O_RDWR, 0600); return made < 0 ? -1 : close(made) | unlink(name); }
  if (is("mkdir")) return mkdir(name, 0700) ? -1 : rmdir(name);
  if (is("rename")) { close(creat(name, 0600)); return rename(name, file); }
  if (is("truncate")) return truncate(file, 100);
  if (is("allocate")) return fallocate(fd, 0, 0, 8192);
  if (is("read")) return pread(fd, bytes, 4096, 0) == 4096 ? 0 : -1;
  if (is("cold")) return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) | (pread(fd, bytes, 4096, 0) == 4096 ? 0 : -1);
  if (is("pipe")) { int ends[2]; return pipe(ends) || write(ends[1], bytes, 1) != 1 || close(ends[0]) || close(ends[1]) ? -1 : 0; }
  if (is("stdout")) return write(1, "12345\n", 6) == 6 ? 0 : -1;
  if (is("ring")) { int made = (int)syscall(SYS_io_uring_setup, 1, bytes); int missing = made < 0 && errno == ENOSYS; errno = 0; return missing ? 0 : -1; }
#ifdef __x86_64__
  if (is("32-bit")) { long pid = 20; __asm__ volatile("int $0x80" : "+a"(pid)); return pid > 0 ? 0 : -1; }
#endif
  errno = EINVAL;
  return -1;
}

static void *loop(void *argument) {
  uint64_t *own = counters + 2 * (long)argument;
  static char bytes[4096] = "a tenant's bytes";
  char name[300];
  snprintf(name, sizeof name, "%s.%ld", file, (long)argument);
  int fd = open(file, O_RDWR | (is("append") ? O_APPEND : 0));
  if (fd < 0) fail("open");
  for (;;) {
    __atomic_add_fetch(own, 1, __ATOMIC_SEQ_CST);
    errno = 0;
    if (call(fd, name, bytes)) fail(what);
    if (errno) fail("a call that succeeded changed errno");
    __atomic_add_fetch(own + 1, 1, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

int main(int arguments, char **argument) {
  if (arguments < 4) return 2;
  file = argument[1];
  what = argument[3];
  long threads = arguments > 4 ? atol(argument[4]) : 1;
  int fd = open(argument[2], O_RDWR);
  counters = mmap(NULL, (size_t)threads * 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (counters == MAP_FAILED) fail(argument[2]);
  close(fd);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  for (long thread = 1; thread < threads; thread++) {
    pthread_t id;
    if (pthread_create(&id, &small, loop, (void *)thread)) fail("pthread_create");
  }
  loop((void *)0);
  return 0;
}
