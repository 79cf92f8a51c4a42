/* A program that moves bytes past the shim: freezer WAY PATH MIB, from the start of PATH to its end.
 * Ways: write, stdio, mmap, direct, aio (libaio's calls), uring; cpu moves none, and counts lines into PATH. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (1l << 20)

static void must(int holds, const char *what) {
  if (holds) return;
  perror(what);
  exit(1);
}

static int file_of(const char *path, int flags) {
  int file = open(path, O_CREAT | O_RDWR | flags, 0644);
  must(file >= 0, path);
  return file;
}

static void by_aio(int file, char *bytes, long mib) {
  aio_context_t context = 0;
  must(!syscall(SYS_io_setup, 8, &context), "io_setup");
  for (long n = 0; n < mib; n++) {
    struct iocb call = {.aio_fildes = (uint32_t)file, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uint64_t)bytes,
                        .aio_nbytes = MIB, .aio_offset = n * MIB};
    struct iocb *calls[1] = {&call};
    struct io_event event;
    must(syscall(SYS_io_submit, context, 1, calls) == 1, "io_submit");
    while (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1) {}
  }
}

static void by_uring(int file, char *bytes, long mib) {
  struct io_uring_params set = {0};
  int ring = (int)syscall(SYS_io_uring_setup, 8, &set);
  must(ring >= 0, "io_uring_setup");
  char *queue = mmap(NULL, set.sq_off.array + set.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                     IORING_OFF_SQ_RING);
  char *done = mmap(NULL, set.cq_off.cqes + set.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                    MAP_SHARED, ring, IORING_OFF_CQ_RING);
  struct io_uring_sqe *entries =
      mmap(NULL, set.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  must(queue != MAP_FAILED && done != MAP_FAILED && entries != MAP_FAILED, "mmap of a ring");
  unsigned *tail = (unsigned *)(queue + set.sq_off.tail), *array = (unsigned *)(queue + set.sq_off.array);
  unsigned *head = (unsigned *)(done + set.cq_off.head), *end = (unsigned *)(done + set.cq_off.tail);
  for (long n = 0; n < mib; n++) {
    entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = file, .addr = (uint64_t)bytes, .len = MIB,
                                       .off = (uint64_t)n * MIB};
    array[*tail & (set.sq_entries - 1)] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    must(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1, "io_uring_enter");
    while (__atomic_load_n(end, __ATOMIC_ACQUIRE) == *head)
      syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  }
}

int main(int count, char **arguments) {
  must(count == 4, "usage");
  const char *way = arguments[1], *path = arguments[2];
  long mib = atol(arguments[3]);
  char *bytes = NULL;
  must(!posix_memalign((void **)&bytes, 4096, MIB), "memory");
  memset(bytes, 7, MIB);
  if (!strcmp(way, "write") || !strcmp(way, "direct")) {
    int file = file_of(path, strcmp(way, "direct") ? 0 : O_DIRECT);
    for (long n = 0; n < mib; n++) must(write(file, bytes, MIB) == MIB, "write");
  } else if (!strcmp(way, "stdio")) {
    FILE *file = fopen(path, "w");
    must(file != NULL, path);
    for (long n = 0; n < mib * 256; n++) must(fwrite(bytes, 1, 4096, file) == 4096, "fwrite");
  } else if (!strcmp(way, "mmap")) {
    int file = file_of(path, 0);
    must(!ftruncate(file, mib * MIB), "ftruncate");
    volatile char *pages = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(pages != MAP_FAILED, "mmap");
    for (long page = 0; page < mib * 256; page++) pages[page * 4096] = 1;
  } else if (!strcmp(way, "aio")) {
    by_aio(file_of(path, O_DIRECT), bytes, mib);
  } else if (!strcmp(way, "uring")) {
    by_uring(file_of(path, 0), bytes, mib);
  } else if (!strcmp(way, "cpu")) {
    int file = file_of(path, 0);
    for (;;) {
      must(pwrite(file, "x", 1, lseek(file, 0, SEEK_END)) == 1, "pwrite");
      usleep(1000);
    }
  } else {
    return 2;
  }
  return 0;
}
