/* What the shim makes of O_CLASSIFIED, for the tests: classified FILE OTHER. Ends with the line of what is not so. */
#define _GNU_SOURCE
#include "plimsoll_classes.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(is_so)                  \
  do {                               \
    if (!(is_so)) _exit(__LINE__ % 256); \
  } while (0)

static unsigned char number;
static char bytes[16];

/* The class, and text to write or a place to read to. */
static struct iovec *vectors(unsigned char class_number, const char *text) {
  static struct iovec both[2];
  number = class_number;
  both[0] = (struct iovec){&number, 1};
  both[1] = (struct iovec){text ? (void *)text : bytes, text ? strlen(text) : 4};
  return both;
}

static void is_in_file(const char *path, const char *expected) {
  char all[64];
  int fd = open(path, O_RDONLY);
  ssize_t length = read(fd, all, sizeof all);
  MUST(fd >= 0 && length == (ssize_t)strlen(expected) && !memcmp(all, expected, (size_t)length) && !close(fd));
}

/* Every call takes its first element away, and what it moves is the rest. */
static void every_call(int fd, const char *path) {
  MUST(writev(fd, vectors(1, "abcd"), 2) == 4);
  MUST(pwritev(fd, vectors(2, "efgh"), 2, 4) == 4);
  MUST(pwritev64(fd, vectors(3, "ijkl"), 2, 8) == 4);
  MUST(pwritev2(fd, vectors(4, "mnop"), 2, 12, 0) == 4);
  MUST(pwritev64v2(fd, vectors(5, "qrst"), 2, 16, 0) == 4);
  is_in_file(path, "abcdefghijklmnopqrst");
  MUST(readv(fd, vectors(6, NULL), 2) == 4 && !memcmp(bytes, "efgh", 4));
  MUST(preadv(fd, vectors(7, NULL), 2, 0) == 4 && !memcmp(bytes, "abcd", 4));
  MUST(preadv64(fd, vectors(8, NULL), 2, 4) == 4 && !memcmp(bytes, "efgh", 4));
  MUST(preadv2(fd, vectors(9, NULL), 2, 8, 0) == 4 && !memcmp(bytes, "ijkl", 4));
  MUST(preadv64v2(fd, vectors(31, NULL), 2, 12, 0) == 4 && !memcmp(bytes, "mnop", 4));
  /* Calls with one place are as they were. */
  MUST(pwrite(fd, "A", 1, 0) == 1 && pread(fd, bytes, 1, 0) == 1 && bytes[0] == 'A');
}

static void wrong_calls(int fd) {
  struct iovec *wrong = vectors(32, "x");
  MUST(pwritev(fd, wrong, 2, 0) == -1 && errno == EINVAL);
  wrong = vectors(1, "x");
  MUST(pwritev(fd, wrong, 0, 0) == -1 && errno == EINVAL);
  wrong[0].iov_len = 2;
  MUST(pwritev(fd, wrong, 2, 0) == -1 && errno == EINVAL);
  wrong[0] = (struct iovec){NULL, 1};
  MUST(pwritev(fd, wrong, 2, 0) == -1 && errno == EINVAL);
  MUST(pwritev(fd, vectors(1, ""), 1, 0) == 0);
}

/* A copy is classified too, in a child too; a number that is used again is not. */
static void copies(int fd, const char *path, const char *other) {
  int copy = dup(fd), status;
  MUST(pwritev(copy, vectors(10, "copy"), 2, 0) == 4);
  pid_t child = fork();
  if (!child) _exit(pwritev(copy, vectors(11, "born"), 2, 4) == 4 ? 0 : 1);
  MUST(waitpid(child, &status, 0) == child && !status);
  is_in_file(path, "copybornijklmnopqrst");
  MUST(!close(copy));
  int plain = open(other, O_RDWR | O_CREAT, 0600);
  MUST(plain == copy && pwritev(plain, vectors('!', "!!"), 2, 0) == 3 && !close(plain));
  is_in_file(other, "!!!");
  int gone = open(path, O_RDWR | PLIMSOLL_O_CLASSIFIED);
  MUST(gone >= 0 && !close(gone));
  plain = open(other, O_RDWR);
  MUST(plain == gone && pwritev(plain, vectors('?', "??"), 2, 0) == 3 && !close(plain));
  is_in_file(other, "???");
  int pair[2];
  MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair) && writev(pair[0], vectors('?', "??"), 2) == 3);
  MUST(read(pair[1], bytes, sizeof bytes) == 3 && !memcmp(bytes, "???", 3));
}

int main(int arguments, char **argument) {
  MUST(arguments == 3);
  struct sigaction none;
  int fd = open(argument[1], O_RDWR | O_CREAT | PLIMSOLL_O_CLASSIFIED, 0640);
  MUST(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
  errno = 0;
  every_call(fd, argument[1]);
  MUST(errno == 0);
  wrong_calls(fd);
  copies(fd, argument[1], argument[2]);
  MUST(open("/no such file", O_RDONLY | PLIMSOLL_O_CLASSIFIED) == -1 && errno == ENOENT);
  volatile int unknown = O_RDWR | PLIMSOLL_O_CLASSIFIED;
  int again = open(argument[1], unknown);
  MUST(again >= 0 && pwritev(again, vectors(12, "last"), 2, 0) == 4);
  is_in_file(argument[1], "lastbornijklmnopqrst");
  /* Where the file is: not every file system has files without a name. */
  *strrchr(argument[1], '/') = 0;
  int temporary = open(argument[1], O_TMPFILE | O_RDWR, 0600);
  MUST(temporary >= 0 && pwritev(temporary, vectors('t', "mp"), 2, 0) == 3);
  MUST(!sigaction(SIGIO, NULL, &none) && none.sa_handler == SIG_DFL);
  return 0;
}
