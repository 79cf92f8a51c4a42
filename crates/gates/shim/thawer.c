/* Thaws what a dead agent left frozen: thawer NOTE WORDS, its agent on descriptor 0.
 *
 * A frozen process waits for ever for an agent that was killed. So this process holds the other end of the agent's
 * line and does nothing as long as the agent lives and renews its lease. NOTE says which cgroups the agent has frozen;
 * the agent writes there before it freezes.
 *
 *     agent there, lease lasts   ->  wait
 *     agent gone                 ->  thaw all that the note calls frozen, and end
 *     lease has run out          ->  thaw all that the note calls frozen
 *
 * It keeps both files open: the next agent begins a note of its own. */
#define _GNU_SOURCE
#include "background.h"
#include "layout.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

static int note;
static const char *words;

static int lease_lasts(void) {
  return now_ns() < __atomic_load_n((const uint64_t *)(words + LEASE_OFFSET), __ATOMIC_ACQUIRE);
}

/* A cgroup of the same name that was made since is another one. */
static void thaw(const char *slot) {
  uint64_t inode;
  memcpy(&inode, slot + NOTE_INODE_OFFSET, sizeof inode);
  int directory = open(slot + NOTE_PATH_OFFSET, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  struct stat found;
  if (!fstat(directory, &found) && (uint64_t)found.st_ino == inode) {
    int is_second = slot[NOTE_VERSION_OFFSET] == '2';
    int file = openat(directory, is_second ? "cgroup.freeze" : "freezer.state", O_WRONLY | O_CLOEXEC);
    const char *thawed = is_second ? "0" : "THAWED";
    if (file >= 0 && write(file, thawed, strlen(thawed)) < 0) errno = 0;
    if (file >= 0) close(file);
  }
  close(directory);
}

static void thaw_all(void) {
  static char slot[NOTE_SLOT_BYTES];
  for (off_t place = NOTE_SLOT_BYTES; pread(note, slot, sizeof slot, place) == sizeof slot; place += NOTE_SLOT_BYTES) {
    slot[NOTE_SLOT_BYTES - 1] = 0;
    if (slot[0] == NOTE_FROZEN) thaw(slot);
  }
}

int main(int arguments, char **argument) {
  if (arguments != 3) return 2;
  note = open(argument[1], O_RDONLY | O_CLOEXEC);
  int file = open(argument[2], O_RDONLY | O_CLOEXEC);
  if (note < 0 || file < 0) return 3;
  words = mmap(NULL, WORDS_BYTES, PROT_READ, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) return 3;
  pid_t child = fork();
  if (child < 0) return 4;
  if (child) return 0;
  setsid();
  stay_in_memory();
  settle_down("plimsoll-thawer");
  for (;;) {
    struct pollfd polled = {0, POLLIN, 0};
    int count = poll(&polled, 1, TICK_MS);
    if (count > 0) break;
    if (count == 0 && !lease_lasts()) thaw_all();
  }
  thaw_all();
  return 0;
}
