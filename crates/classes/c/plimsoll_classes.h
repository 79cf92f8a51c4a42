/* How a C program says what class its files are, to the Plimsoll daemon that serves their volume: docs/classes.md.
 *
 *     int fd = open("orders.index", O_RDWR);
 *     if (plimsoll_classify(fd, 25)) perror("no class");
 *
 * Put this file and plimsoll_classes.c into the program; there is nothing to link with. Both calls are
 * async-signal-safe and thread-safe, leave no descriptor open, and take at most two seconds. Needs Linux. */
#ifndef PLIMSOLL_CLASSES_H
#define PLIMSOLL_CLASSES_H

/* Where the daemon listens, if the environment does not say in PLIMSOLL_CLASSES. */
#define PLIMSOLL_CLASSES_SOCKET "/run/plimsoll/classes.sock"

/* With the preload shim of `plimsoll run`: a program that opens a file with this flag says the class of each call (0 to
 * 31). The class is the first element of each readv, writev, preadv and pwritev, which is one byte long. Without the
 * shim the open fails with EINVAL: the kernel knows no such flag, so no byte of class ever gets into a file. Not with
 * O_TMPFILE or O_DIRECTORY. */
#define PLIMSOLL_O_CLASSIFIED 020000000

/* The I/O priority of a call with direct I/O (O_DIRECT) that says the class of its blocks (1 to 31), for `ioprio` of an
 * io_uring submission or `aio_reqprio` with IOCB_FLAG_IOPRIO: best effort, level 4, hint 512 and the class. It goes
 * before what was said of the file. From Linux 6.5 on; before, the kernel refuses the call with EINVAL. */
#define PLIMSOLL_IO_PRIORITY(number) ((unsigned short)(2 << 13 | (0x200 | (number)) << 3 | 4))

#ifdef __cplusplus
extern "C" {
#endif

/* The file has this class from now on, 0 to 31; with 0, that of its file system. 0 if it is so, otherwise -1 with
 * errno: ENODEV (the file is on no volume that is mounted with tenants here), EPERM (the caller is neither its owner
 * nor root), EINVAL (no regular file, or no class), ENOSPC (too many files have a class), ENOENT or ECONNREFUSED (no
 * daemon), EAGAIN (it does not answer), or what fstat says. */
int plimsoll_classify(int fd, unsigned char number);

/* What was said of the file; 0 if nothing was. -1 with errno as above. */
int plimsoll_class_of(int fd);

#ifdef __cplusplus
}
#endif
#endif
