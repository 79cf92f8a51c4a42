/* What tenants do, for the tests of the gates: tenant FILE COUNTERS WHAT [THREADS]
 *
 * Each thread does one kind of call again and again, and counts each in COUNTERS, two 64-bit words a thread: calls that
 * it entered and calls that returned. A reader of COUNTERS sees which threads wait in a call. The first error ends the
 * program. */
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
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "only.h"

#ifdef OWN_OPTIONS
/* As a program has it that sets its sanitizer up by itself. */
const char *__asan_default_options(void) { return "detect_leaks=0"; }
#endif

static const char *file, *what;
static uint64_t *counters;

static int is(const char *name) { return !strcmp(what, name); }

static void fail(const char *step) {
  perror(step);
  _exit(3);
}

static int wrote(ssize_t bytes, ssize_t wanted) { return bytes == wanted ? 0 : -1; }

static int write_into_pipe(char *bytes) {
  int ends[2];
  if (pipe(ends) || write(ends[1], bytes, 1) != 1) return -1;
  return close(ends[0]) | close(ends[1]);
}

static int write_in_child(int fd, char *bytes) {
  int status;
  pid_t child = fork();
  if (!child) _exit(pwrite(fd, bytes, 4096, 0) == 4096 ? 0 : 3);
  return child > 0 && waitpid(child, &status, 0) == child && !status ? 0 : -1;
}

static int read_directly(int fd) {
  static char page[4096] __attribute__((aligned(4096)));
  return fcntl(fd, F_SETFL, O_DIRECT) | wrote(pread(fd, page, 4096, 0), 4096);
}

/* A container's profile refuses to make directories, and to rename with an error of its own. To read is no change. */
static int refused_by_profile(int fd, const char *name) {
  int is_refused = mkdir(name, 0700) && errno == EPERM && rename(file, file) && errno == EXDEV;
  int is_allowed = !close(open(file, O_RDONLY));
  errno = 0;
  return is_refused && is_allowed ? fsync(fd) : -1;
}

/* No ring is to be had behind a filter. */
static int find_no_ring(char *bytes) {
  int made = (int)syscall(SYS_io_uring_setup, 1, bytes), is_missing = made < 0 && errno == ENOSYS;
  errno = 0;
  return is_missing ? 0 : -1;
}

/* One call of the kind that was asked for; `name` is a path of this thread's own. */
static int call(int fd, const char *name, char *bytes) {
  if (!strncmp(what, PREFIX, strlen(PREFIX))) return usleep(2000) | only(what + strlen(PREFIX), fd, file, name, bytes);
  if (is("write") || is("traced")) return wrote(pwrite(fd, bytes, 4096, 0), 4096);
  if (is("paced")) return usleep(10000) | wrote(pwrite(fd, bytes, 4096, 0), 4096);
  if (is("slow")) return wrote(pwrite(fd, bytes, 4096, 0), 4096) | usleep(1000000);
  if (is("append")) return wrote(write(fd, bytes, 10), 10) | usleep(1000);
  if (is("stdout")) return wrote(write(1, "12345\n", 6), 6);
  if (is("fsync")) return wrote(pwrite(fd, bytes, 4096, 0), 4096) | fsync(fd);
  if (is("range")) return sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE);
  if (is("read")) return wrote(pread(fd, bytes, 4096, 0), 4096);
  if (is("direct")) return read_directly(fd);
  if (is("pipe")) return write_into_pipe(bytes);
  if (is("fork")) return write_in_child(fd, bytes);
  if (is("refused")) return refused_by_profile(fd, name);
  if (is("ring")) return find_no_ring(bytes);
#ifdef __x86_64__
  if (is("32-bit")) {
    long pid = 20;
    __asm__ volatile("int $0x80" : "+a"(pid));
    return pid > 0 ? 0 : -1;
  }
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

/* Follows its child, which goes on in main, from system call to system call. */
static void trace(void) {
  int status;
  pid_t child = fork();
  if (!child) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    return;
  }
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ptrace(PTRACE_SYSCALL, child, 0, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
}

static void handle(int signal) { (void)signal; }

int main(int arguments, char **argument) {
  if (arguments < 4) return 2;
  file = argument[1];
  what = argument[3];
  long threads = arguments > 4 ? atol(argument[4]) : 1;
  int fd = open(argument[2], O_RDWR);
  counters = mmap(NULL, (size_t)threads * 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (counters == MAP_FAILED) fail(argument[2]);
  close(fd);
  signal(SIGUSR1, handle);
  if (is("traced")) trace();
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
