/* Tenants that restrict themselves: restricted FILE COUNTERS HOW [THREADS]
 *
 * Each thread writes into FILE again and again, and counts in COUNTERS as tenant.c does. Where it is a seccomp filter,
 * it allows what the program itself does from then on and kills for everything else, as those of sandboxed workers do.
 * The first thread restricts the process when it has begun; for "all threads", when it gets SIGUSR1. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how, *file;
static uint64_t *counters;
static int fd;

static int is(const char *name) { return !strcmp(how, name); }

static void fail(const char *step) {
  perror(step);
  _exit(3);
}

#define MUST(call) \
  if ((call) < 0) fail(#call)

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define PROGRAM(filter) {sizeof(filter) / sizeof *(filter), filter}

/* What it does itself, with what glibc does to fork. */
static struct sock_filter own_calls[] = {
    NUMBER,           ALLOW(SYS_pwrite64),       ALLOW(SYS_write), ALLOW(SYS_exit_group),
    ALLOW(SYS_clone), ALLOW(SYS_set_robust_list), ALLOW(SYS_wait4), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
/* What the shim asks at a closed gate, and no loader. */
static struct sock_filter loaders_calls[] = {NUMBER,
                                             KILL(SYS_fstat),
                                             KILL(SYS_fstatfs),
                                             KILL(SYS_futex),
                                             KILL(SYS_preadv2),
                                             KILL(SYS_fcntl),
                                             KILL(SYS_prctl),
                                             KILL(SYS_faccessat),
                                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

/* As programs do that are not written in C: the C library hears nothing of it. */
static long call_directly(long number, long a, long b, const void *c) {
  register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
#ifdef __x86_64__
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
#else
  _exit(77);
#endif
  return number;
}

/* libseccomp; its header need not be there. */
#ifdef WITH_LIBSECCOMP
void *seccomp_init(uint32_t);
int seccomp_rule_add(void *, uint32_t, int, unsigned, ...);
int seccomp_load(void *);
static void load_with_library(void) {
  void *filter = seccomp_init(SECCOMP_RET_KILL_PROCESS);
  if (!filter) fail("seccomp_init");
  MUST(seccomp_rule_add(filter, 0x7fff0000u, SYS_pwrite64, 0));
  MUST(seccomp_rule_add(filter, 0x7fff0000u, SYS_exit_group, 0));
  MUST(seccomp_load(filter));
}
#else
static void load_with_library(void) { fail("libseccomp"); }
#endif

/* Nothing of the file system is to be changed from here on but by what is open. */
static void restrict_with_landlock(void) {
  struct landlock_ruleset_attr all = {.handled_access_fs = (1ull << 13) - 1};
  int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
  if (rules < 0) _exit(77);
  MUST(syscall(SYS_landlock_restrict_self, rules, 0));
}

static void restrict_self(char **argument) {
  struct sock_fprog own = PROGRAM(own_calls), loaders = PROGRAM(loaders_calls);
  if (is("nothing")) return;
  MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  if (is("prctl") || is("fork")) MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own));
  if (is("strict")) MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
  if (is("syscall prctl")) MUST(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own, 0, 0));
  if (is("seccomp")) MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &own));
  if (is("all threads")) MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &own));
  if (is("twice")) {
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaders));
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &own));
  }
  if (is("libseccomp")) load_with_library();
  if (is("direct seccomp")) MUST(call_directly(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &own));
  if (is("direct prctl")) MUST(call_directly(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &own));
  if (is("exec")) {
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaders));
    argument[3] = "nothing";
    execv(argument[0], argument);
    fail("execv");
  }
  if (is("landlock")) restrict_with_landlock();
  if (is("setuid")) {
    MUST(setgroups(0, NULL));
    MUST(setgid(65534));
    MUST(setuid(65534));
  }
  if (is("undumpable")) MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
  if (is("chroot")) MUST(chroot("/dev/shm"));
  if (is("closed")) {
    MUST(dup2(fd, 0));
    fd = 0;
    MUST(syscall(SYS_close_range, 3, ~0u, 0));
  }
}

static int write_in_child(const char *bytes) {
  int status;
  pid_t child = fork();
  if (!child) _exit(pwrite(fd, bytes, 100, 0) == 100 ? 0 : 4);
  return child > 0 && wait4(child, &status, 0, NULL) == child && !status ? 0 : -1;
}

static int call(const char *bytes) {
  if (is("fork")) return write_in_child(bytes);
  if (is("strict")) return write(fd, bytes, 1) == 1 ? 0 : -1;
  return pwrite(fd, bytes, 100, 0) == 100 ? 0 : -1;
}

static void *loop(void *argument) {
  uint64_t *own = counters + 2 * (long)argument;
  static const char bytes[100] = "a tenant's bytes";
  for (;;) {
    __atomic_add_fetch(own, 1, __ATOMIC_SEQ_CST);
    if (call(bytes)) _exit(4);
    __atomic_add_fetch(own + 1, 1, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

int main(int arguments, char **argument) {
  if (arguments < 4) return 2;
  file = argument[1];
  how = argument[3];
  long threads = arguments > 4 ? atol(argument[4]) : 1;
  int counts = open(argument[2], O_RDWR);
  counters = mmap(NULL, (size_t)threads * 16, PROT_READ | PROT_WRITE, MAP_SHARED, counts, 0);
  if (counters == MAP_FAILED) fail(argument[2]);
  close(counts);
  fd = open(file, O_RDWR);
  if (fd < 0) fail(file);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wanted, NULL);
  for (long thread = 1; thread < threads; thread++) {
    pthread_t id;
    if (pthread_create(&id, NULL, loop, (void *)thread)) fail("pthread_create");
  }
  int signal;
  if (is("all threads")) sigwait(&wanted, &signal);
  restrict_self(argument);
  loop((void *)0);
  return 0;
}
