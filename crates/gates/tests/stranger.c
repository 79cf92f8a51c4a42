/* A process that may read the file of words, and nothing else:
 *
 *     stranger FILE PLACE wait THREADS
 *     stranger FILE PLACE move
 *
 * Waits at the word at PLACE as if its threads were the account's, and again whenever it is woken; or moves all threads
 * there to a word of its own, again and again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uint32_t *word;

static void *wait_for_ever(void *nothing) {
  for (;;)
    if (syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0)) usleep(1000); /* it is open */
  return nothing;
}

static void move_for_ever(void) {
  static uint32_t own;
  for (;;) {
    syscall(SYS_futex, word, FUTEX_REQUEUE, 0, (long)INT_MAX, &own, 0);
    usleep(1000);
  }
}

int main(int arguments, char **argument) {
  if (arguments < 4) return 2;
  int fd = open(argument[1], O_RDONLY);
  off_t place = atol(argument[2]), page = place & -4096;
  char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, page);
  if (fd < 0 || mapped == MAP_FAILED) return 3;
  word = (const uint32_t *)(mapped + (place - page));
  if (!strcmp(argument[3], "move")) move_for_ever();
  for (int thread = 1; thread < atoi(argument[4]); thread++) {
    pthread_t id;
    if (pthread_create(&id, NULL, wait_for_ever, NULL)) return 4;
  }
  wait_for_ever(NULL);
  return 0;
}
