/* O_CLASSIFIED (Differentiated Storage Services, section 4.3.1): the first element of each scattered or gathered call
 * on such a file is one byte, the class, which does not go into the file but to the daemon.
 *
 * What has to be remembered is remembered by the kernel, in the open file itself: the signal that it would send if it
 * sent any (F_SETSIG), which for a regular file is never. So copies and children know it too, and a number that is used
 * again, for whatever, is not mistaken.
 *
 *     32       opened with O_CLASSIFIED, nothing said yet
 *     33 + c   class c was said last: said again only when it changes
 *
 * A program that is executed does not inherit such files (O_CLOEXEC): without the shim it would write the class into
 * them. */
#ifndef PLIMSOLL_CLASSIFIED_H
#define PLIMSOLL_CLASSIFIED_H

#include "../../classes/c/plimsoll_classes.c"

#define SAID_NOTHING 32
#define SAID_FIRST 33
#define NUMBERS 32

/* Whether this process has ever had such a file: until then it costs a load. */
static int has_classified;

static inline int wants_classes(int flags) { return (flags & O_TMPFILE) == PLIMSOLL_O_CLASSIFIED; }

/* Whether an open has an argument for the mode. */
static inline int has_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

static inline int flags_without_classes(int flags) {
  return wants_classes(flags) ? (flags & ~PLIMSOLL_O_CLASSIFIED) | O_CLOEXEC : flags;
}

/* The descriptor that a call has opened; -1 if it was to be classified and cannot. */
__attribute__((noinline, cold)) static int begin_classes(int fd) {
  if (fd < 0) return fd;
  __atomic_store_n(&has_classified, 1, __ATOMIC_RELAXED);
  long refused = K3(SYS_fcntl, fd, F_SETSIG, SAID_NOTHING);
  if (!refused) return fd;
  K1(SYS_close, fd);
  return (int)answered(refused);
}

static inline int opened(int fd, int flags) { return wants_classes(flags) ? begin_classes(fd) : fd; }

/* Takes the class off the front of a call's elements, if its file has one, and says it. Nonzero: the call is wrong
 * (errno). */
__attribute__((noinline, cold)) static int take_class(int fd, const struct iovec **vectors, int *count) {
  long said = K2(SYS_fcntl, fd, F_GETSIG);
  if (said < SAID_NOTHING) return 0;
  if (*count < 1 || (*vectors)->iov_len != 1 || !(*vectors)->iov_base) {
    errno = EINVAL;
    return -1;
  }
  unsigned char number = *(const unsigned char *)(*vectors)->iov_base;
  if (number >= NUMBERS) {
    errno = EINVAL;
    return -1;
  }
  ++*vectors;
  --*count;
  if (said != SAID_FIRST + number) {
    /* A hint: a server that does not hear it does not hold up the call, and is not asked again before the class
     * changes. */
    int saved = errno;
    plimsoll_classify(fd, number);
    errno = saved;
    K3(SYS_fcntl, fd, F_SETSIG, SAID_FIRST + number);
  }
  return 0;
}

/* In a call's function: goes on without the class, or returns. */
#define TAKE_CLASS(fd, vectors, count)                                                                                   \
  if (__builtin_expect(__atomic_load_n(&has_classified, __ATOMIC_RELAXED), 0) && take_class(fd, &vectors, &count)) return -1

#endif
