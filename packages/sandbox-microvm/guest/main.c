/* The guest agent: process 1 of a microVM, and the host's hands in it. It serves one host over one virtio port. */
#define _GNU_SOURCE
#include "agent.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static void handle(uint8_t type, uint32_t channel, const uint8_t *payload, size_t length) {
  switch ((enum to_guest)type) {
  case T_EXEC: exec_start(channel, payload, length); return;
  case T_STDIN: exec_stdin(channel, payload, length); return;
  case T_STDIN_END: exec_stdin_end(channel); return;
  case T_KILL: exec_kill(channel); return;
  case T_CREDIT: if (length == 4) exec_credit(channel, get_u32(payload)); return;
  case T_PING: channel_send(F_PONG, channel, NULL, 0); return;
  case T_SET_TIME: system_set_time(channel, payload, length); return;
  case T_MOUNT: system_mount(channel, payload, length); return;
  case T_SEED: system_seed(channel, payload, length); return;
  case T_SHUTDOWN: system_power_off();
  }
  channel_error(channel, "a frame of an unknown type", 0);
}

int main(void) {
  system_boot();
  int port = channel_open("agent");
  if (port < 0) system_panic("there is no port to the host");

  /* Before everything else that runs, so that a kill is heard under a fork bomb; children are ordinary again. */
  struct sched_param first = {.sched_priority = 1};
  syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first);

  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, NULL);
  signal(SIGPIPE, SIG_IGN);
  int ended = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);

  uint8_t version[4];
  put_u32(version, PROTOCOL_VERSION);
  channel_send(F_READY, 0, version, sizeof version);

  for (;;) {
    static struct pollfd set[2 + 3 * 256];
    set[0] = (struct pollfd){.fd = port, .events = POLLIN};
    set[1] = (struct pollfd){.fd = ended, .events = POLLIN};
    size_t count = exec_poll(set + 2, sizeof set / sizeof *set - 2);
    poll(set, 2 + count, exec_timeout());
    /* Output first: the entries are those of the programs as they were when poll began. */
    exec_ready(set + 2, count);
    if (set[1].revents != 0) {
      struct signalfd_siginfo information;
      while (read(ended, &information, sizeof information) > 0) continue;
      exec_reap();
    }
    exec_tick();
    if (set[0].revents & (POLLHUP | POLLERR)) system_power_off();
    if (set[0].revents & POLLIN && !channel_read(handle)) system_power_off();
  }
}
