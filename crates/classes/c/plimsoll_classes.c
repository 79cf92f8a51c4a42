/* See plimsoll_classes.h. What goes over the socket stands in src/message.rs of the Rust library.
 *
 * All calls go straight to the kernel, so that the preload shim can have this in it beside any C library. */
#define _GNU_SOURCE
#include "plimsoll_classes.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PLIMSOLL_SAY 1
#define PLIMSOLL_ASK 2

struct plimsoll_request {
  char magic[4];
  uint8_t version, command, number, zero;
  uint64_t device, inode;
};
struct plimsoll_answer {
  int32_t error;
  uint8_t number, zero[3];
};
_Static_assert(sizeof(struct plimsoll_request) == 24 && sizeof(struct plimsoll_answer) == 8, "as message.rs has it");

/* One request over a connection of its own; 0, or what went wrong. */
static int plimsoll_exchange(int connection, const struct plimsoll_request *request, struct plimsoll_answer *answer) {
  const char *path = getenv("PLIMSOLL_CLASSES");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct timeval patience = {.tv_sec = 1};
  if (!path || !*path) path = PLIMSOLL_CLASSES_SOCKET;
  if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
  memcpy(address.sun_path, path, strlen(path));
  if (syscall(SYS_setsockopt, connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) ||
      syscall(SYS_setsockopt, connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) ||
      syscall(SYS_connect, connection, &address, sizeof address) ||
      syscall(SYS_sendto, connection, request, sizeof *request, MSG_NOSIGNAL, NULL, 0) < 0)
    return errno;
  long received = syscall(SYS_recvfrom, connection, answer, sizeof *answer, 0, NULL, NULL);
  if (received < 0) return errno;
  return received == sizeof *answer ? answer->error : EPROTO;
}

static int plimsoll_ask(int fd, uint8_t command, uint8_t number) {
  struct plimsoll_request request = {{'P', 'L', 'C', 'L'}, 1, command, number, 0, 0, 0};
  struct plimsoll_answer answer = {0};
  struct stat file;
  int saved = errno;
  if (syscall(SYS_fstat, fd, &file)) return -1;
  request.device = file.st_dev;
  request.inode = file.st_ino;
  int connection = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  int error = plimsoll_exchange(connection, &request, &answer);
  syscall(SYS_close, connection);
  errno = error ? error : saved;
  return error ? -1 : answer.number;
}

int plimsoll_classify(int fd, unsigned char number) {
  if (number > 31) {
    errno = EINVAL;
    return -1;
  }
  return plimsoll_ask(fd, PLIMSOLL_SAY, number) < 0 ? -1 : 0;
}

int plimsoll_class_of(int fd) { return plimsoll_ask(fd, PLIMSOLL_ASK, 0); }
