/* Programs: each in its own session and its own control group, with pipes that never hold more than a window. */
#define _GNU_SOURCE
#include "agent.h"
#include "order.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup/reve"
#define MAX_PROGRAMS 256
/* A kill does not wait until a thousand names are read. */
#define MAX_NAMES 32
/* How long the pipes are read on after the program's own end: what it wrote last is in them, a child may hold them. */
#define DRAIN_MS 50
/* What two pipes hold at most, so that a child that goes on writing cannot keep a command from ending. */
#define LATE_BYTES (128u << 10)
/* How often a terminal is looked at that its program has let go of: it may open it again. */
#define LOOSE_MS 20

struct program {
  int used;
  uint32_t channel;
  pid_t pid;
  int in, out, err;    /* our ends, -1 when closed; with a terminal the first two are its master */
  int is_terminal;
  int open_line;       /* what was typed last is not the end of a line */
  int64_t loose_until; /* nobody has the terminal open; when it is looked at again */
  uint32_t credit;     /* output bytes that may be sent now */
  uint8_t *input;      /* bytes for its stdin that it has not taken */
  size_t input_length;
  int input_ends;
  int ended, code, signal;
  int killed;          /* the host ended it, not it itself */
  int64_t close_at;    /* when to give its pipes up, in ms */
  size_t late;         /* bytes that were read after that */
  char *temporary;     /* a file that must not outlive it */
  char left[2048];     /* names of what was killed with it */
  size_t left_length;
};

static struct program programs[MAX_PROGRAMS];

static struct program *find(uint32_t channel) {
  for (size_t i = 0; i < MAX_PROGRAMS; i++)
    if (programs[i].used && programs[i].channel == channel) return &programs[i];
  return NULL;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void group_path(char *path, size_t size, uint32_t channel, const char *file) {
  snprintf(path, size, CGROUPS "/%u%s%s", channel, *file ? "/" : "", file);
}

/* Empty groups of programs whose background children have ended since. */
static void sweep_groups(void) {
  DIR *directory = opendir(CGROUPS);
  struct dirent *entry;
  while (directory != NULL && (entry = readdir(directory)) != NULL) {
    char path[512];
    if (entry->d_name[0] == '.' || entry->d_type != DT_DIR) continue;
    if (find((uint32_t)strtoul(entry->d_name, NULL, 10)) != NULL) continue;
    snprintf(path, sizeof path, CGROUPS "/%s", entry->d_name);
    rmdir(path);
  }
  if (directory != NULL) closedir(directory);
}

static void say_and_exit(const char *what, const char *name, int code) {
  dprintf(2, "%s %s: %s\n", what, name, strerror(errno));
  _exit(code);
}

static void become(uint32_t channel, const struct order *order, int in, int out, int err) {
  char path[256];
  group_path(path, sizeof path, channel, "cgroup.procs");
  if (system_write(path, "0") != 0) say_and_exit("cannot join", path, 126);
  setsid();
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  if (order->size.ws_col > 0) ioctl(0, TIOCSCTTY, 0);
  for (int signal = 1; signal < 65; signal++) {
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(signal, &standard, NULL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  umask(022);
  if (order->is_file) {
    /* No exec closes them here, and this must hold nobody else's pipes open. */
    syscall(SYS_close_range, 3, ~0u, 0);
    _exit(file_run(order->argv));
  }
  if (chdir(order->cwd) != 0) say_and_exit("cannot enter", order->cwd, 126);
  environ = order->env;
  execvp(order->argv[0], order->argv);
  say_and_exit("cannot run", order->argv[0], errno == ENOENT ? 127 : 126);
}

/* A new terminal: `slave` is the program's, `master` ours, twice. */
static int open_terminal(const struct winsize *size, int *slave, int master[2]) {
  char name[64];
  master[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  master[1] = fcntl(master[0], F_DUPFD_CLOEXEC, 3);
  if (master[1] < 0 || unlockpt(master[0]) != 0 || ptsname_r(master[0], name, sizeof name) != 0) return -1;
  *slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  return *slave < 0 ? -1 : ioctl(*slave, TIOCSWINSZ, size);
}

static void start(struct program *program, const struct order *order) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  int terminal = -1, master[2] = {-1, -1};
  char path[256];
  group_path(path, sizeof path, program->channel, "");
  int ready = mkdir(path, 0755) == 0 || errno == EEXIST;
  system_limit_group(path);
  if (ready && program->is_terminal) ready = open_terminal(&order->size, &terminal, master) == 0;
  else if (ready) ready = pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0;
  if (!ready) {
    channel_error(program->channel, "cannot prepare a program", errno);
    program->used = 0;
  } else if ((program->pid = fork()) == 0) {
    if (program->is_terminal) become(program->channel, order, terminal, terminal, terminal);
    become(program->channel, order, in[0], out[1], err[1]);
  } else if (program->pid < 0) {
    channel_error(program->channel, "cannot start a program", errno);
    program->used = 0;
  } else {
    program->in = program->is_terminal ? master[0] : in[1];
    program->out = program->is_terminal ? master[1] : out[0];
    program->err = err[0];
    in[1] = out[0] = err[0] = master[0] = master[1] = -1;
    fcntl(program->in, F_SETFL, O_NONBLOCK);
    fcntl(program->out, F_SETFL, O_NONBLOCK);
    if (program->err >= 0) fcntl(program->err, F_SETFL, O_NONBLOCK);
    uint8_t pid[4];
    put_u32(pid, (uint32_t)program->pid);
    channel_send(F_STARTED, program->channel, pid, sizeof pid);
  }
  close_fd(&terminal);
  for (int i = 0; i < 2; i++) close_fd(&in[i]), close_fd(&out[i]), close_fd(&err[i]), close_fd(&master[i]);
}

void exec_start(uint32_t channel, const uint8_t *payload, size_t length, int is_file) {
  struct program *program = NULL;
  for (size_t i = 0; i < MAX_PROGRAMS && program == NULL; i++)
    if (!programs[i].used) program = &programs[i];
  if (program == NULL || find(channel) != NULL) {
    channel_error(channel, "too many programs run at once", 0);
    return;
  }
  struct order order;
  if (!order_read(&order, payload, length, is_file)) {
    channel_error(channel, "a request that makes no sense", 0);
  } else {
    sweep_groups();
    *program = (struct program){.used = 1, .channel = channel, .in = -1, .out = -1, .err = -1, .credit = WINDOW, .is_terminal = order.size.ws_col > 0};
    if (is_file && strcmp(order.argv[0], "replace") == 0 && order.argv[1] != NULL && order.argv[2] != NULL && order.argv[3] != NULL)
      program->temporary = strdup(order.argv[3]);
    start(program, &order);
    if (!program->used) free(program->temporary);
  }
  order_free(&order);
}

static void grant(uint32_t channel, uint32_t bytes) {
  uint8_t granted[4];
  put_u32(granted, bytes);
  channel_send(F_CREDIT, channel, granted, sizeof granted);
}

void exec_stdin(uint32_t channel, const uint8_t *bytes, size_t length) {
  struct program *program = find(channel);
  if (program == NULL || program->input_ends || length == 0) return;
  if (program->in < 0) { /* nobody reads: dropped, and granted, so that the sender can end */
    grant(channel, (uint32_t)length);
    return;
  }
  if (program->input_length + length > WINDOW) system_panic("the host sent more input than was granted");
  uint8_t *grown = realloc(program->input, program->input_length + length);
  if (grown == NULL) system_panic("out of memory");
  program->input = grown;
  memcpy(program->input + program->input_length, bytes, length);
  program->input_length += length;
}

/* A terminal has no end of its own: one is typed, twice where a line stands open, and means nothing in raw mode. */
static void end_input(struct program *program) {
  struct termios settings;
  if (program->is_terminal && program->in >= 0 && tcgetattr(program->in, &settings) == 0 && settings.c_lflag & ICANON) {
    uint8_t typed[2] = {settings.c_cc[VEOF], settings.c_cc[VEOF]};
    if (write(program->in, typed, program->open_line ? 2 : 1) < 0 && errno == EAGAIN) return;
  }
  close_fd(&program->in);
}

void exec_stdin_end(uint32_t channel) {
  struct program *program = find(channel);
  if (program == NULL) return;
  program->input_ends = 1;
  if (program->input_length == 0) end_input(program);
}

void exec_credit(uint32_t channel, uint32_t bytes) {
  struct program *program = find(channel);
  if (program == NULL) return;
  program->credit = bytes > WINDOW - program->credit ? WINDOW : program->credit + bytes;
}

/* Names of the processes in a program's group, for whoever asks what still ran. */
static void note_left(struct program *program) {
  char path[256], line[64];
  int names = 0;
  group_path(path, sizeof path, program->channel, "cgroup.procs");
  FILE *list = fopen(path, "re");
  while (list != NULL && names++ < MAX_NAMES && fgets(line, sizeof line, list) != NULL) {
    char name[64] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", atoi(line));
    FILE *comm = fopen(path, "re");
    if (comm == NULL) continue;
    if (fgets(name, sizeof name, comm) != NULL) {
      name[strcspn(name, "\n")] = 0;
      size_t length = strlen(name) + 1;
      if (program->left_length + length <= sizeof program->left) {
        memcpy(program->left + program->left_length, name, length);
        program->left_length += length;
      }
    }
    fclose(comm);
  }
  if (list != NULL) fclose(list);
}

void exec_kill(uint32_t channel) {
  struct program *program = find(channel);
  if (program == NULL) return;
  if (program->left_length == 0) note_left(program);
  char path[256];
  group_path(path, sizeof path, channel, "cgroup.kill");
  system_write(path, "1");
  if (!program->ended) program->killed = 1;
  /* It may not have joined its group yet. */
  if (!program->ended) kill(program->pid, SIGKILL);
}

/* To all that the program started; it may live on. */
void exec_signal(uint32_t channel, uint32_t number) {
  const struct program *program = find(channel);
  if (program == NULL || program->ended || number < 1 || number > 64) return;
  char path[256], line[32];
  group_path(path, sizeof path, channel, number == SIGKILL ? "cgroup.kill" : "cgroup.procs");
  if (number == SIGKILL) {
    system_write(path, "1");
    kill(program->pid, SIGKILL); /* it may not have joined its group yet */
    return;
  }
  kill(program->pid, (int)number);
  FILE *list = fopen(path, "re");
  while (list != NULL && fgets(line, sizeof line, list) != NULL)
    if (atoi(line) > 1 && atoi(line) != program->pid) kill(atoi(line), (int)number);
  if (list != NULL) fclose(list);
}

void exec_resize(uint32_t channel, uint16_t columns, uint16_t rows) {
  const struct program *program = find(channel);
  struct winsize size = {.ws_col = columns, .ws_row = rows};
  if (program != NULL && program->is_terminal && program->out >= 0) ioctl(program->out, TIOCSWINSZ, &size);
}

void exec_kill_all(void) {
  system_write(CGROUPS "/cgroup.kill", "1");
}

static void finish(struct program *program) {
  uint8_t payload[9 + sizeof program->left];
  put_u32(payload, (uint32_t)program->code);
  put_u32(payload + 4, (uint32_t)program->signal);
  payload[8] = (uint8_t)program->killed;
  memcpy(payload + 9, program->left, program->left_length);
  channel_send(F_EXIT, program->channel, payload, 9 + program->left_length);
  close_fd(&program->in), close_fd(&program->out), close_fd(&program->err);
  free(program->input);
  if (program->temporary != NULL) unlink(program->temporary);
  free(program->temporary);
  program->used = 0;
  sweep_groups();
}

void exec_reap(void) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
      struct program *program = &programs[i];
      if (!program->used || program->pid != pid || program->ended) continue;
      program->ended = 1;
      program->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      program->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      program->close_at = system_now() + DRAIN_MS;
    }
  }
}

/* Sends what a pipe holds, as far as the host granted. */
static size_t forward(struct program *program, int *fd, uint8_t type) {
  uint8_t buffer[CHUNK];
  if (*fd < 0 || program->credit == 0) return 0;
  ssize_t got = read(*fd, buffer, program->credit < CHUNK ? program->credit : CHUNK);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (got <= 0 && program->is_terminal && !program->ended) {
    /* Many programs close their streams before they end: a terminal that went away now would kill them (SIGHUP). */
    program->loose_until = system_now() + LOOSE_MS;
    return 0;
  }
  if (got <= 0) {
    close_fd(fd);
    return 0;
  }
  channel_send(type, program->channel, buffer, (size_t)got);
  program->credit -= (uint32_t)got;
  /* One read a turn: a flood must not keep other channels and the kill from being heard. */
  return (size_t)got;
}

static void feed(struct program *program) {
  if (program->input_length > 0) {
    ssize_t written = write(program->in, program->input, program->input_length);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
    /* It reads no more: what is left is dropped, and granted, so that the sender can end. */
    size_t taken = written < 0 ? program->input_length : (size_t)written;
    if (taken > 0) program->open_line = program->input[taken - 1] != '\n';
    program->input_length -= taken;
    memmove(program->input, program->input + taken, program->input_length);
    grant(program->channel, (uint32_t)taken);
    if (written < 0) close_fd(&program->in);
  }
  if (program->input_ends && program->input_length == 0) end_input(program);
}

size_t exec_poll(struct pollfd *at, size_t room) {
  size_t count = 0;
  for (size_t i = 0; i < MAX_PROGRAMS && count + 3 <= room; i++) {
    struct program *program = &programs[i];
    if (!program->used) continue;
    int loose = !program->ended && program->loose_until > system_now();
    int reads = program->credit > 0 && !loose;
    int writes = program->input_length > 0 || program->input_ends;
    at[count++] = (struct pollfd){.fd = writes ? program->in : -1, .events = POLLOUT};
    at[count++] = (struct pollfd){.fd = reads ? program->out : -1, .events = POLLIN};
    at[count++] = (struct pollfd){.fd = reads ? program->err : -1, .events = POLLIN};
  }
  return count;
}

void exec_ready(const struct pollfd *at, size_t count) {
  size_t next = 0;
  for (size_t i = 0; i < MAX_PROGRAMS && next + 3 <= count; i++) {
    struct program *program = &programs[i];
    if (!program->used) continue;
    const struct pollfd *mine = at + next;
    next += 3;
    if (mine[0].revents != 0 && program->in >= 0) feed(program);
    if (mine[1].revents != 0) forward(program, &program->out, F_STDOUT);
    if (mine[2].revents != 0) forward(program, &program->err, F_STDERR);
  }
}

int exec_timeout(void) {
  int soonest = -1;
  for (size_t i = 0; i < MAX_PROGRAMS; i++) {
    struct program *program = &programs[i];
    if (!program->used || (!program->ended && program->loose_until == 0)) continue;
    int64_t left = (program->ended ? program->close_at : program->loose_until) - system_now();
    if (!program->ended && left <= 0) program->loose_until = 0;
    int wait = left < 0 ? 0 : (int)left;
    if (program->ended && program->credit == 0) wait = DRAIN_MS; /* the host has to take what was sent first */
    if (soonest < 0 || wait < soonest) soonest = wait;
  }
  return soonest;
}

void exec_tick(void) {
  for (size_t i = 0; i < MAX_PROGRAMS; i++) {
    struct program *program = &programs[i];
    if (!program->used || !program->ended) continue;
    if (program->out < 0 && program->err < 0) {
      finish(program);
      continue;
    }
    /* While the window is closed nothing could be read, so nothing is given up either. */
    if (program->credit == 0) {
      program->close_at = system_now() + DRAIN_MS;
      continue;
    }
    if (system_now() < program->close_at) continue;
    size_t got = forward(program, &program->out, F_STDOUT);
    got += forward(program, &program->err, F_STDERR);
    program->late += got;
    if (got == 0 || program->late > LATE_BYTES) finish(program);
  }
}
