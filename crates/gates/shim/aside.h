/* When the shim stands aside: a process that restricts itself gets no system call that it does not make itself.
 *
 *     loaded     as many seccomp filters as the launcher counted  ->  gates
 *                more: a parent installed one of its own          ->  none
 *     prctl(PR_SET_SECCOMP), seccomp(2)                           ->  no gates from here on, in all threads, for ever
 *     chroot(2), pivot_root(2), setns(2)                          ->  LD_PRELOAD forgets the shim where it is no longer
 *                                                                     to be found: the loader would complain
 *
 * What its constructor asks of the kernel (openat, read, mmap, close), the loader asks to load any library. So a
 * process behind a filter that let it be executed may make these calls. */
#ifndef PLIMSOLL_ASIDE_H
#define PLIMSOLL_ASIDE_H

#include <linux/prctl.h>
#include <linux/seccomp.h>

#define MILLISECOND 1000000
/* How long a thread that installs a filter for all threads waits for those in a call of the shim's: one lease, and a
 * tenth. */
#define SETTLES_MS (LEASE_NS / MILLISECOND * 11 / 10)
#define NAME "/plimsoll-gate.so"
#define PRELOAD "LD_PRELOAD="

extern char **environ __attribute__((weak));

/* Threads that may be in a system call of the shim's own. */
static int inside;

/* Whether the closed word is meant for this process and counts, and it makes system calls of its own: then `leave` ends
 * that. Counted before the word is looked at again: a thread that stands aside opens it first and counts then. */
static int enter(int class) {
  if (__atomic_load_n(word_of(class), __ATOMIC_ACQUIRE) != generation) return 0;
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(word_of(class), __ATOMIC_SEQ_CST) == generation && lease_left_ns(__atomic_load_n(lease, __ATOMIC_ACQUIRE))) return 1;
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static void leave(void) { __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST); }

/* Before a filter is installed. It may be refused: a process that tried is trusted to mean it. Other threads sleep in
 * the kernel until their lease runs out at the latest, and then find the gates open. */
__attribute__((noinline, cold)) static void stand_aside(int of_all_threads) {
  if (words == no_words) return; /* a filter may forbid to sleep */
  __atomic_store_n(&words, no_words, __ATOMIC_SEQ_CST);
  struct timespec pause = {0, MILLISECOND};
  for (int ms = 0; of_all_threads && ms < SETTLES_MS && __atomic_load_n(&inside, __ATOMIC_SEQ_CST); ms++)
    K2(SYS_nanosleep, &pause, NULL);
}

/* The filters that this process is behind; -1 where the kernel does not tell. */
static long count_filters(void) {
  static const char key[] = "\nSeccomp_filters:\t";
  char text[1024];
  long count = -1, got;
  size_t matched = 0;
  int fd = (int)K3(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  while ((got = K3(SYS_read, fd, text, sizeof text)) > 0) {
    for (long n = 0; n < got; n++) {
      if (matched == sizeof key - 1) {
        if (text[n] < '0' || text[n] > '9') goto found;
        count = (count < 0 ? 0 : count) * 10 + (text[n] - '0');
      } else {
        matched = text[n] == key[matched] ? matched + 1 : text[n] == key[0];
      }
    }
  }
found:
  K1(SYS_close, fd);
  return count;
}

/* Takes the shim out of the list of libraries, in place: a copy of it stays as it is. Libraries stand between spaces
 * and colons. */
static void forget_preload(int even_if_there) {
  for (char **entry = &environ ? environ : NULL; entry && *entry; entry++) {
    char *at = *entry;
    size_t n = 0;
    while (PRELOAD[n] && at[n] == PRELOAD[n]) n++;
    if (PRELOAD[n]) continue;
    char *kept = at += n;
    while (*at) {
      char *end = at, separator;
      while (*end && *end != ':' && *end != ' ') end++;
      separator = *end;
      size_t length = (size_t)(end - at), suffix = sizeof NAME - 1;
      int is_ours = length >= suffix && !__builtin_memcmp(end - suffix, NAME, suffix);
      *end = 0;
      int is_there = is_ours && !even_if_there && !K3(SYS_faccessat, AT_FDCWD, at, R_OK);
      *end = separator;
      if (!is_ours || is_there)
        for (char *from = at; from < end + !!separator;) *kept++ = *from++;
      at = end + !!separator;
    }
    if (kept != at) *kept = 0;
  }
}

/* The root has changed, or not. A process that stood aside asks nothing: what it executes has no gates anyway. */
__attribute__((noinline, cold)) static long moved(long result) {
  if (result) return result;
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  forget_preload(__atomic_load_n(&words, __ATOMIC_SEQ_CST) == no_words);
  leave();
  return result;
}

/* Whether the process is about to restrict itself: then it has no gates any more, and the call is to say so
 * (ASIDE_MARK). */
static int by_seccomp(long operation, long flags, long program) {
  /* Without a program libseccomp asks only what the kernel can do. */
  int installs = operation == SECCOMP_SET_MODE_STRICT || (operation == SECCOMP_SET_MODE_FILTER && program);
  if (installs) stand_aside((flags & SECCOMP_FILTER_FLAG_TSYNC) != 0);
  return installs;
}

static int by_prctl(long option, long mode) {
  int installs = option == PR_SET_SECCOMP && (mode == SECCOMP_MODE_STRICT || mode == SECCOMP_MODE_FILTER);
  if (installs) stand_aside(0);
  return installs;
}

static int (*next_prctl)(int, unsigned long, unsigned long, unsigned long, unsigned long);
__attribute__((constructor)) static void find_prctl(void) { next_prctl = find("prctl"); }
EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  if (by_prctl(option, (long)a)) return (int)answered(K6(SYS_prctl, option, a, b, c, d, ASIDE_MARK));
  return next_prctl ? next_prctl(option, a, b, c, d) : (int)call_kernel(SYS_prctl, (long)option, a, b, c, d, 0L);
}

/* syscall(2). Where a caller gives fewer arguments, the last one's place on the stack is the caller's own: it is read
 * and never changed. libseccomp calls seccomp(2) so, which has no function. */
EXPORT long pass_on(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");
static long (*next_syscall)(long, long, long, long, long, long, long);
__attribute__((constructor)) static void find_syscall(void) { next_syscall = find("syscall"); }
EXPORT long pass_on(long number, long a, long b, long c, long d, long e, long f) {
  if (number == SYS_seccomp && by_seccomp(a, b, c)) return answered(kernel(number, a, b, c, d, e, ASIDE_MARK));
  if (number == SYS_prctl && by_prctl(a, b)) return answered(kernel(number, a, b, c, d, e, ASIDE_MARK));
  if (number == SYS_chroot || number == SYS_pivot_root || number == SYS_setns)
    return moved(call_kernel(number, a, b, c, d, e, f));
  return next_syscall ? next_syscall(number, a, b, c, d, e, f) : call_kernel(number, a, b, c, d, e, f);
}

/* A function of the C library after which the root may be another. */
#define MOVES(name, parameters, arguments, direct)                                            \
  static int(*next_##name) parameters;                                                        \
  __attribute__((constructor)) static void find_##name(void) { next_##name = find(#name); }   \
  EXPORT int name parameters {                                                                \
    return (int)moved(next_##name ? next_##name arguments : (int)call_kernel direct);         \
  }
MOVES(chroot, (const char *path), (path), (SYS_chroot, path))
MOVES(pivot_root, (const char *root, const char *old), (root, old), (SYS_pivot_root, root, old))
MOVES(setns, (int fd, int kinds), (fd, kinds), (SYS_setns, (long)fd, (long)kinds))

/* A dynamic AddressSanitizer refuses to start behind another library unless its options say otherwise; it asks for them
 * here before anything else runs. The program's own function of this name comes first, and so does ASAN_OPTIONS. */
EXPORT const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }

#endif
