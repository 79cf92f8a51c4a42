/* The keeper of one listener: keeper SOCKET, its agent on descriptor 0.
 *
 * The kernel fails a tenant's calls with ENOSYS, for ever, when the last descriptor of its listener is closed. So this
 * process holds one and does nothing, as long as an agent answers and renews its lease. Whenever none does, it lets
 * every call go on, those first that the agent had received: their numbers are in the ledger. It ends with the tenant.
 *
 *     agent there, 'A' received, lease lasts     ->  wait
 *     agent gone                                 ->  let all go on; offer the listener at SOCKET to the next agent
 *     lease has run out                          ->  let all go on
 *
 * It is small, locked in memory, exempt from the out-of-memory killer where it may be, in a session of its own, and
 * deaf to the signals by which sessions and services are ended. */
#define _GNU_SOURCE
#include "background.h"
#include "layout.h"
#include <linux/seccomp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

/* Calls that are let go on before everything else is looked at again. */
#define BUDGET 64
#define REGISTRATION_MAX 4096
#define DESCRIPTORS 3

static struct sockaddr_un meeting_place;
static char registration[REGISTRATION_MAX];
static size_t registration_bytes;
/* In the order in which they are sent. */
static int descriptors[DESCRIPTORS];
#define LISTENER descriptors[0]
static volatile char *ledger;
static const char *words;
static int agent, is_acknowledged;

static int agent_answers(void) {
  if (agent < 0 || !is_acknowledged) return 0;
  return now_ns() < __atomic_load_n((const uint64_t *)(words + LEASE_OFFSET), __ATOMIC_ACQUIRE);
}

/* A tick may end the wait for the listener's lock; no other program knows the number of what we received. */
static void let_go_on(uint64_t id) {
  struct seccomp_notif_resp response = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
  while (ioctl(LISTENER, SECCOMP_IOCTL_NOTIF_SEND, &response) && errno == EINTR) {}
}

/* What an agent had received. One that is alive empties its slots itself. */
static void let_received_go_on(void) {
  for (int slot = 0; slot < LEDGER_SLOTS; slot++) {
    volatile uint64_t *id = (volatile uint64_t *)(ledger + slot * SLOT_BYTES);
    if (!*id) continue;
    let_go_on(*id);
    if (agent < 0) *id = 0;
  }
}

/* First all are received, then answered: to poll, the kernel goes through the calls until it has found one that is new
 * and one that was received. */
static void let_new_go_on(void) {
  uint64_t received[BUDGET];
  int count = 0;
  while (count < BUDGET && !agent_answers()) {
    struct pollfd polled = {LISTENER, POLLIN, 0};
    if (poll(&polled, 1, 0) <= 0 || !(polled.revents & POLLIN)) break;
    struct seccomp_notif notification;
    memset(&notification, 0, sizeof notification);
    if (ioctl(LISTENER, SECCOMP_IOCTL_NOTIF_RECV, &notification)) break;
    received[count++] = notification.id;
  }
  for (int n = 0; n < count; n++) let_go_on(received[n]);
}

static void leave_agent(void) {
  close(agent);
  agent = -1;
  is_acknowledged = 0;
}

static void offer(void) {
  agent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (agent < 0) return;
  union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof descriptors)]; } control = {0};
  struct iovec payload = {registration, registration_bytes};
  struct msghdr message = {.msg_iov = &payload, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  *header = (struct cmsghdr){
      .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof descriptors)};
  memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  if (connect(agent, (struct sockaddr *)&meeting_place, sizeof meeting_place) ||
      sendmsg(agent, &message, MSG_NOSIGNAL) < 0)
    leave_agent();
}

/* The first message: what to keep; and a second, if the agent answers already. */
static int take(void) {
  union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof descriptors)]; } control;
  struct iovec payload = {registration, sizeof registration};
  struct msghdr message = {.msg_iov = &payload, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
  ssize_t bytes = recvmsg(agent, &message, MSG_CMSG_CLOEXEC);
  struct cmsghdr *header = bytes > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof descriptors)) return 0;
  registration_bytes = (size_t)bytes;
  memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
  ledger = mmap(NULL, LEDGER_SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[1], 0);
  words = mmap(NULL, WORDS_BYTES, PROT_READ, MAP_SHARED, descriptors[2], 0);
  char said;
  is_acknowledged = recv(agent, &said, 1, MSG_DONTWAIT) == 1 && said == 'A';
  return ledger != MAP_FAILED && words != MAP_FAILED;
}

static void wake(int signal) { (void)signal; }

/* A tick ends a receive that found nothing after all, because an agent came to itself in between. */
static void tick_each_second(void) {
  struct sigaction tick = {.sa_handler = wake};
  sigaction(SIGALRM, &tick, NULL);
  struct itimerval period = {{1, 0}, {1, 0}};
  setitimer(ITIMER_REAL, &period, NULL);
}

static void keep(void) {
  uint64_t tick_ns = 0;
  for (;;) {
    int answers = !agent_answers();
    struct pollfd polled[2] = {{LISTENER, answers ? POLLIN : 0, 0}, {agent, POLLIN, 0}};
    if (poll(polled, 2, TICK_MS) < 0) continue;
    if (polled[0].revents & (POLLERR | POLLNVAL)) return;
    if (polled[1].revents) {
      char said;
      ssize_t bytes = recv(agent, &said, 1, MSG_DONTWAIT);
      if (bytes == 1 && said == 'A') is_acknowledged = 1;
      if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
        leave_agent();
        let_received_go_on();
        continue;
      }
    }
    if (answers && polled[0].revents & POLLIN) let_new_go_on();
    else if (polled[0].revents & POLLHUP) return;
    if (now_ns() - tick_ns >= TICK_MS * 1000000ull) {
      if (!agent_answers()) let_received_go_on();
      if (agent < 0) offer();
      tick_ns = now_ns();
    }
  }
}

int main(int arguments, char **argument) {
  if (arguments != 2 || strlen(argument[1]) >= sizeof meeting_place.sun_path) return 2;
  meeting_place.sun_family = AF_UNIX;
  strcpy(meeting_place.sun_path, argument[1]);
  if (!take()) return 3;
  pid_t child = fork();
  if (child < 0) return 4;
  if (child) return 0;
  setsid();
  stay_in_memory();
  tick_each_second();
  settle_down("plimsoll-keeper");
  keep();
  return 0;
}
