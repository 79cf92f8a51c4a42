/* The preload gate: a tenant's system calls wait here while the agent has closed the word of their account and class.
 *
 *     open(), write(), fsync() ...   ->  word is 0: on to the C library (two loads and a branch)
 *                                        word is our generation: futex wait, until the agent wakes us or its lease
 *                                        runs out
 *                                        word is another number: meant for a process that has the account now; on
 *
 * A closed word counts as long as the agent renews a lease; a thread that finds it run out goes on and remembers it. So
 * no thread waits for an agent that is gone. The words are mapped read-only: this code can wait, and no more.
 *
 * Files that were opened with O_CLASSIFIED say their classes on the way (classified.h). A process that installs a
 * seccomp filter has no gates from then on (aside.h): the shim's own calls would not be among those that it allows
 * itself.
 *
 * It cooperates, it does not enforce: static programs, raw system calls and the C library's own calls (stdio) pass by.
 *
 * Everything on the way of a call is async-signal-safe, takes no lock and keeps errno. The library's functions are
 * looked up when the shim is loaded; an earlier call goes straight to the kernel. It needs no library of its own, so
 * that it loads beside any C library. */
#define _GNU_SOURCE
#include "kernel.h"
#include "layout.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NANOSECONDS 1000000000
/* Flags with which an open changes the file system. */
#define O_CHANGES (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))

_Static_assert(sizeof(long) == 8 && sizeof(off_t) == 8, "offsets are passed as one argument");

/* What is mapped where there is no gate: open, for ever. */
static const uint32_t no_words[CLASSES * WORD_STRIDE / sizeof(uint32_t)];
static const uint32_t *words = no_words;
/* What stands in a word that is closed for this process; never 0. */
static uint32_t generation = 1;
static const uint64_t *lease;
/* The lease that ran out while a thread waited: a thread that finds it again waits no more. */
static uint64_t lease_lost;

extern void *dlsym(void *, const char *) __attribute__((weak));

static void *find(const char *name) { return dlsym ? dlsym(RTLD_NEXT, name) : NULL; }

static inline const uint32_t *word_of(int class) { return words + class * (WORD_STRIDE / sizeof(uint32_t)); }

static inline int is_closed(int class) {
  return __builtin_expect(__atomic_load_n(word_of(class), __ATOMIC_ACQUIRE) != 0, 0);
}

/* How long the lease lasts, at most one whole: in another time namespace the clock may say anything. */
static uint64_t lease_left_ns(uint64_t seen) {
  struct timespec now;
  if (seen == __atomic_load_n(&lease_lost, __ATOMIC_RELAXED) || clock_gettime(CLOCK_MONOTONIC, &now)) return 0;
  uint64_t now_ns = (uint64_t)now.tv_sec * NANOSECONDS + (uint64_t)now.tv_nsec;
  if (seen <= now_ns) return 0;
  return seen - now_ns < LEASE_NS ? seen - now_ns : LEASE_NS;
}

#include "aside.h"

static void wait_until_open(int class) {
  const uint32_t *word;
  while (__atomic_load_n(word = word_of(class), __ATOMIC_ACQUIRE) == generation) {
    uint64_t seen = __atomic_load_n(lease, __ATOMIC_ACQUIRE), left = lease_left_ns(seen);
    if (!left) break;
    struct timespec timeout = {(time_t)(left / NANOSECONDS), (long)(left % NANOSECONDS)};
    long outcome = K6(SYS_futex, word, FUTEX_WAIT, generation, &timeout, NULL, 0);
    if (!outcome) break; /* meant for us, closed or not */
    if (outcome == -ETIMEDOUT) {
      if (__atomic_load_n(lease, __ATOMIC_ACQUIRE) == seen) __atomic_store_n(&lease_lost, seen, __ATOMIC_RELAXED);
    } else if (outcome != -EAGAIN && outcome != -EINTR) {
      break;
    }
  }
}

/* Whether the descriptor leads to a disk. Asked only while a gate is closed, so nothing needs to be remembered. */
static int is_on_disk(int fd) {
  struct stat file;
  struct statfs system;
  if (K2(SYS_fstat, fd, &file) || K2(SYS_fstatfs, fd, &system)) return 0;
  int answer = S_ISREG(file.st_mode) || S_ISBLK(file.st_mode) || S_ISDIR(file.st_mode);
  switch ((unsigned long)system.f_type) {
    case TMPFS_MAGIC: case RAMFS_MAGIC: case PROC_SUPER_MAGIC: case SYSFS_MAGIC: case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC: case TRACEFS_MAGIC: case DEBUGFS_MAGIC: case HUGETLBFS_MAGIC:
      answer = answer && S_ISBLK(file.st_mode); /* a device's node may lie anywhere */
  }
  return answer;
}

__attribute__((noinline, cold)) static void hold(int class) {
  if (!enter(class)) return;
  wait_until_open(class);
  leave();
}

__attribute__((noinline, cold)) static void hold_file(int class, int fd) {
  if (!enter(class)) return;
  if (is_on_disk(fd)) wait_until_open(class);
  leave();
}

static inline void gate(int class) {
  if (is_closed(class)) hold(class);
}

static inline void gate_file(int class, int fd) {
  if (is_closed(class)) hold_file(class, fd);
}

static inline void gate_open(int flags) {
  if (flags & O_CHANGES) gate(CLASS_METADATA);
}

/* Whether reading these bytes would have to ask the disk. The probe leaves the descriptor's position alone. Direct I/O
 * always asks, and the probe would be the read itself. */
static int misses_cache(int fd, const struct iovec *vectors, int count, off_t offset) {
  long flags = K2(SYS_fcntl, fd, F_GETFL);
  if (flags > 0 && flags & O_DIRECT) return 1;
  if (offset < 0) offset = K3(SYS_lseek, fd, 0, SEEK_CUR);
  long wanted = 0, got = K6(SYS_preadv2, fd, vectors, count, offset, 0, RWF_NOWAIT);
  for (int i = 0; i < count && got > 0; i++) wanted += (long)vectors[i].iov_len;
  if (got > 0 && got < wanted) {
    char next;
    struct iovec one = {&next, 1};
    got = K6(SYS_preadv2, fd, &one, 1, offset + got, 0, RWF_NOWAIT);
  }
  return got == -EAGAIN;
}

__attribute__((noinline, cold)) static void hold_reads(int fd, const struct iovec *vectors, int count, off_t offset) {
  if (!enter(CLASS_READ)) return;
  if (is_on_disk(fd) && misses_cache(fd, vectors, count, offset)) wait_until_open(CLASS_READ);
  leave();
}

static inline void gate_reads(int fd, const struct iovec *vectors, int count, off_t offset) {
  if (is_closed(CLASS_READ)) hold_reads(fd, vectors, count, offset);
}

/* A read that does not wait asks no gate. */
static inline void gate_waiting_reads(int fd, const struct iovec *vectors, int count, off_t offset, int flags) {
  if (!(flags & RWF_NOWAIT)) gate_reads(fd, vectors, count, offset);
}

static inline void gate_read(int fd, void *bytes, size_t length, off_t offset) {
  struct iovec one = {bytes, length};
  gate_reads(fd, &one, 1, offset);
}

/* The decimal number below `end` that the environment has by that name; -1 if it has none. */
static long number_in(const char *name, long end) {
  const char *text = getenv(name);
  long number = 0;
  if (!text || !*text) return -1;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return -1;
    number = number * 10 + (*text - '0');
    if (number >= end) return -1;
  }
  return number;
}

/* Without a file, an account, or with a file that is not what it should be: no gate. Nor behind filters that the
 * launcher does not know of. That the file is long enough is found out by reading it: a process that touches a page
 * that is not there is killed. */
__attribute__((constructor)) static void load_words(void) {
  char content[WORDS_BYTES] __attribute__((aligned(sizeof(uint32_t))));
  const char *path = getenv("PLIMSOLL_GATE_WORDS");
  long account = number_in("PLIMSOLL_GATE_ACCOUNT", ACCOUNTS_MAX), filters = number_in("PLIMSOLL_GATE_FILTERS", 1 << 16);
  long closed = number_in("PLIMSOLL_GATE_GENERATION", 1L << 32);
  if (!path || account < 0 || closed < 1 || filters < 0 || count_filters() != filters) return;
  int fd = (int)K3(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return;
  if (K3(SYS_read, fd, content, sizeof content) == sizeof content && *(uint32_t *)content == WORDS_MAGIC &&
      *(uint32_t *)(content + VERSION_OFFSET) == WORDS_VERSION) {
    long start = K6(SYS_mmap, NULL, WORDS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (start > 0 || start < -ERRORS) {
      lease = (uint64_t *)(start + LEASE_OFFSET);
      generation = (uint32_t)closed;
      words = (uint32_t *)(start + WORDS_OFFSET + account * CLASSES * WORD_STRIDE);
    }
  }
  K1(SYS_close, fd);
}

/* A function of the C library behind a gate; `direct` is what it does in the kernel. */
#define GATED(result, name, parameters, arguments, gate, direct)                                      \
  static result(*next_##name) parameters;                                                             \
  __attribute__((constructor)) static void find_##name(void) { next_##name = find(#name); }           \
  EXPORT result name parameters {                                                                     \
    gate;                                                                                             \
    return next_##name ? next_##name arguments : (result)call_kernel direct;                              \
  }

#include "classified.h"

#include "calls.h"
