/* What the processes behind an agent have in common: they outlive it, whatever ends sessions and services. */
#ifndef PLIMSOLL_BACKGROUND_H
#define PLIMSOLL_BACKGROUND_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000
#define TICK_MS 100

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NANOSECONDS + (uint64_t)now.tv_nsec;
}

/* Deaf to the signals by which sessions and services are ended, and locked in memory. */
static void settle_down(const char *name) {
  static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP, SIGUSR1, SIGUSR2};
  for (unsigned n = 0; n < sizeof ignored / sizeof *ignored; n++) signal(ignored[n], SIG_IGN);
  prctl(PR_SET_NAME, name);
  prctl(PR_SET_DUMPABLE, 0);
  mlockall(MCL_CURRENT);
  if (chdir("/")) return;
}

/* Root only; to be done while the process still owns its files in /proc. */
static void stay_in_memory(void) {
  int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file >= 0 && write(file, "-1000", 5) < 0) errno = 0;
  if (file >= 0) close(file);
}

#endif
