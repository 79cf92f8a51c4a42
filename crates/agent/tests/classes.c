/* What applications say of their files, for the tests of classes: classes say FILE CLASS | classes ask FILE | classes vectored FILE
 * | classes silent SOCKET: connects many times, says nothing, and prints how often it is sent away with EAGAIN.
 *
 * Prints what it is told. Ends with the number of the error, if there is one. */
#define _GNU_SOURCE
#include "plimsoll_classes.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* A block of each of three classes, each durable before the next. */
static int write_vectored(const char *path) {
  static const unsigned char numbers[] = {23, 24, 23};
  static char block[4096];
  int fd = open(path, O_WRONLY | PLIMSOLL_O_CLASSIFIED);
  if (fd < 0) return -1;
  for (int n = 0; n < 3; n++) {
    unsigned char number = numbers[n];
    struct iovec vectors[2] = {{&number, 1}, {memset(block, 'a' + n, sizeof block), sizeof block}};
    if (pwritev(fd, vectors, 2, n * 4096) != 4096 || fsync(fd)) return -1;
  }
  return close(fd);
}

static int be_silent(const char *path) {
  enum { CONNECTIONS = 80 };
  int sockets[CONNECTIONS], sent_away = 0;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  for (int n = 0; n < CONNECTIONS; n++) {
    sockets[n] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (sockets[n] < 0 || connect(sockets[n], (struct sockaddr *)&address, sizeof address)) return -1;
  }
  for (int n = 0; n < CONNECTIONS; n++) {
    int error = 0;
    if (recv(sockets[n], &error, sizeof error, 0) == sizeof error && error == EAGAIN) sent_away++;
  }
  errno = 0;
  return sent_away;
}

int main(int arguments, char **argument) {
  if (arguments < 3) return 200;
  int answer;
  errno = 0;
  if (!strcmp(argument[1], "vectored")) {
    answer = write_vectored(argument[2]);
  } else if (!strcmp(argument[1], "silent")) {
    answer = be_silent(argument[2]);
  } else {
    int fd = open(argument[2], O_RDONLY);
    if (fd < 0) return 201;
    answer = arguments > 3 ? plimsoll_classify(fd, (unsigned char)atoi(argument[3])) : plimsoll_class_of(fd);
  }
  int error = errno;
  printf("%d\n", answer);
  return answer < 0 ? error : error ? 202 : 0;
}
