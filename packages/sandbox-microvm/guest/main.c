/* The guest agent: process 1 of a microVM, and the host's hands in it. It serves one host over one virtio port. */
#define _GNU_SOURCE
#include "agent.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static void handle(uint8_t type, uint32_t channel, const uint8_t *payload, size_t length) {
  int connects = (channel & GUEST_CHANNELS) != 0;
  switch ((enum to_guest)type) {
  case T_EXEC: exec_start(channel, payload, length, 0); return;
  case T_FILE: exec_start(channel, payload, length, 1); return;
  case T_STDIN: (connects ? connection_input : exec_stdin)(channel, payload, length); return;
  case T_STDIN_END: (connects ? connection_input_end : exec_stdin_end)(channel); return;
  case T_RESET: connection_reset(channel); return;
  case T_KILL: exec_kill(channel); return;
  case T_CREDIT: if (length == 4) (connects ? connection_credit : exec_credit)(channel, get_u32(payload)); return;
  case T_SIGNAL: if (length == 4) exec_signal(channel, get_u32(payload)); return;
  case T_RESIZE: if (length == 4) exec_resize(channel, get_u16(payload), get_u16(payload + 2)); return;
  case T_PING: channel_send(F_PONG, channel, NULL, 0); return;
  case T_SET_TIME: system_set_time(channel, payload, length); return;
  case T_MOUNT: system_mount(channel, payload, length); return;
  case T_SEED: system_seed(channel, payload, length); return;
  case T_ROOT: system_root(channel); return;
  case T_NETWORK: network_start(channel, payload, length); return;
  case T_DNS: network_answer(payload, length); return;
  case T_TRUST: system_trust(channel, payload, length); return;
  case T_SHUTDOWN: system_power_off();
  }
  channel_error(channel, "a frame of an unknown type", 0);
}

/* The shorter of two waits, of which -1 is endless. */
static int sooner(int one, int other) {
  return one < 0 || (other >= 0 && other < one) ? other : one;
}

/* Not as process 1, it joins a machine that another program has booted; the argument is where the host listens. */
int main(int argc, char **argv) {
  /* A kernel gives its first process what it does not know of its command line. */
  int joins = getpid() != 1 && argc == 2;
  if (joins) system_join();
  else system_boot();
  int port = joins ? channel_connect((uint32_t)strtoul(argv[1], NULL, 10)) : channel_open("agent");
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
    static struct pollfd set[2 + 3 * 256 + 128 + MAX_CONNECTIONS];
    size_t room = sizeof set / sizeof *set;
    set[0] = (struct pollfd){.fd = port, .events = POLLIN};
    set[1] = (struct pollfd){.fd = ended, .events = POLLIN};
    struct pollfd *programs = set + 2;
    size_t running = exec_poll(programs, room - 2);
    struct pollfd *connections = programs + running;
    size_t connected = connection_poll(connections, room - 2 - running);
    struct pollfd *sockets = connections + connected;
    size_t listening = network_poll(sockets, room - 2 - running - connected);
    poll(set, 2 + running + connected + listening, sooner(exec_timeout(), network_timeout()));
    /* Output first: the entries are those of the programs as they were when poll began. */
    exec_ready(programs, running);
    connection_ready(connections, connected);
    network_ready(sockets, listening);
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
