/* Programs: each in its own session and its own control group, with pipes that never hold more than a window. */
#define _GNU_SOURCE
#include "agent.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup/reve"
#define MAX_PROGRAMS 256
/* A kill does not wait until a thousand names are read. */
#define MAX_NAMES 32
/* How long the pipes are read on after the program's own end: what it wrote last is in them, a child may hold them. */
#define DRAIN_MS 50
/* What two pipes hold at most, so that a child that goes on writing cannot keep a command from ending. */
#define LATE_BYTES (128u << 10)

struct program {
  int used;
  uint32_t channel;
  pid_t pid;
  int in, out, err;    /* our ends, -1 when closed */
  uint32_t credit;     /* output bytes that may be sent now */
  uint8_t *input;      /* bytes for its stdin that it has not taken */
  size_t input_length;
  int input_ends;
  int ended, code, signal;
  int killed;          /* the host ended it, not it itself */
  int64_t close_at;    /* when to give its pipes up, in ms */
  size_t late;         /* bytes that were read after that */
  char left[2048];     /* names of what was killed with it */
  size_t left_length;
};

static struct program programs[MAX_PROGRAMS];

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

static int write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t written = write(fd, text, strlen(text));
  close(fd);
  return written < 0 ? -1 : 0;
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

/* The payload: u32 argc, argc strings, u32 envc, envc strings, one string (working directory); a string is u32 length
   and bytes without NUL. Every length is checked against what is there. */
struct reader {
  const uint8_t *at, *end;
  int bad;
};

static uint32_t take_u32(struct reader *reader) {
  if (reader->end - reader->at < 4) {
    reader->bad = 1;
    return 0;
  }
  uint32_t value = get_u32(reader->at);
  reader->at += 4;
  return value;
}

static char *take_string(struct reader *reader) {
  uint32_t length = take_u32(reader);
  if (reader->bad || (size_t)(reader->end - reader->at) < length || memchr(reader->at, 0, length) != NULL) {
    reader->bad = 1;
    return NULL;
  }
  char *text = malloc((size_t)length + 1);
  if (text == NULL) {
    reader->bad = 1;
    return NULL;
  }
  memcpy(text, reader->at, length);
  text[length] = 0;
  reader->at += length;
  return text;
}

static char **take_strings(struct reader *reader) {
  uint32_t count = take_u32(reader);
  if (count > MAX_PAYLOAD / 4) reader->bad = 1;
  char **strings = reader->bad ? NULL : calloc((size_t)count + 1, sizeof *strings);
  if (strings == NULL) {
    reader->bad = 1;
    return NULL;
  }
  for (uint32_t i = 0; i < count && !reader->bad; i++) strings[i] = take_string(reader);
  return strings;
}

static void free_strings(char **strings) {
  for (char **at = strings; at != NULL && *at != NULL; at++) free(*at);
  free(strings);
}

static void say_and_exit(const char *what, const char *name, int code) {
  dprintf(2, "%s %s: %s\n", what, name, strerror(errno));
  _exit(code);
}

static void become(uint32_t channel, int in, int out, int err, char **argv, char **env, const char *cwd) {
  char path[256];
  group_path(path, sizeof path, channel, "cgroup.procs");
  if (write_file(path, "0") != 0) say_and_exit("cannot join", path, 126);
  setsid();
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  for (int signal = 1; signal < 65; signal++) {
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(signal, &standard, NULL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  umask(022);
  if (chdir(cwd) != 0) say_and_exit("cannot enter", cwd, 126);
  environ = env;
  execvp(argv[0], argv);
  say_and_exit("cannot run", argv[0], errno == ENOENT ? 127 : 126);
}

static void start(struct program *program, char **argv, char **env, const char *cwd) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  char path[256];
  group_path(path, sizeof path, program->channel, "");
  if ((mkdir(path, 0755) != 0 && errno != EEXIST) || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    channel_error(program->channel, "cannot prepare a program", errno);
    program->used = 0;
  } else if ((program->pid = fork()) == 0) {
    become(program->channel, in[0], out[1], err[1], argv, env, cwd);
  } else if (program->pid < 0) {
    channel_error(program->channel, "cannot start a program", errno);
    program->used = 0;
  } else {
    program->in = in[1], in[1] = -1;
    program->out = out[0], out[0] = -1;
    program->err = err[0], err[0] = -1;
    fcntl(program->in, F_SETFL, O_NONBLOCK);
    fcntl(program->out, F_SETFL, O_NONBLOCK);
    fcntl(program->err, F_SETFL, O_NONBLOCK);
    uint8_t pid[4];
    put_u32(pid, (uint32_t)program->pid);
    channel_send(F_STARTED, program->channel, pid, sizeof pid);
  }
  for (int i = 0; i < 2; i++) close_fd(&in[i]), close_fd(&out[i]), close_fd(&err[i]);
}

void exec_start(uint32_t channel, const uint8_t *payload, size_t length) {
  struct program *program = NULL;
  for (size_t i = 0; i < MAX_PROGRAMS && program == NULL; i++)
    if (!programs[i].used) program = &programs[i];
  if (program == NULL || find(channel) != NULL) {
    channel_error(channel, "too many programs run at once", 0);
    return;
  }
  struct reader reader = {.at = payload, .end = payload + length};
  char **argv = take_strings(&reader);
  char **env = reader.bad ? NULL : take_strings(&reader);
  char *cwd = reader.bad ? NULL : take_string(&reader);
  if (reader.bad || argv[0] == NULL) {
    channel_error(channel, "a request that makes no sense", 0);
  } else {
    sweep_groups();
    *program = (struct program){.used = 1, .channel = channel, .in = -1, .out = -1, .err = -1, .credit = WINDOW};
    start(program, argv, env, cwd);
  }
  free_strings(argv);
  free_strings(env);
  free(cwd);
}

static void grant(uint32_t channel, uint32_t bytes) {
  uint8_t granted[4];
  put_u32(granted, bytes);
  channel_send(F_CREDIT, channel, granted, sizeof granted);
}

void exec_stdin(uint32_t channel, const uint8_t *bytes, size_t length) {
  struct program *program = find(channel);
  if (program == NULL || program->input_ends) return;
  if (program->in < 0) { /* nobody reads: dropped, and granted, so that the sender can end */
    grant(channel, (uint32_t)length);
    return;
  }
  if (program->input_length + length > WINDOW) system_panic("the host sent more input than was granted");
  uint8_t *grown = realloc(program->input, program->input_length + length);
  if (grown == NULL && length > 0) system_panic("out of memory");
  program->input = grown;
  memcpy(program->input + program->input_length, bytes, length);
  program->input_length += length;
}

void exec_stdin_end(uint32_t channel) {
  struct program *program = find(channel);
  if (program == NULL) return;
  program->input_ends = 1;
  if (program->input_length == 0) close_fd(&program->in);
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
  write_file(path, "1");
  if (!program->ended) program->killed = 1;
  /* It may not have joined its group yet. */
  if (!program->ended) kill(program->pid, SIGKILL);
}

void exec_kill_all(void) {
  write_file(CGROUPS "/cgroup.kill", "1");
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
      program->close_at = now_ms() + DRAIN_MS;
    }
  }
}

/* Sends what a pipe holds, as far as the host granted. */
static size_t forward(struct program *program, int *fd, uint8_t type) {
  uint8_t buffer[CHUNK];
  if (*fd < 0 || program->credit == 0) return 0;
  ssize_t got = read(*fd, buffer, program->credit < CHUNK ? program->credit : CHUNK);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
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
  ssize_t written = write(program->in, program->input, program->input_length);
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
  /* It reads no more: what is left is dropped, and granted, so that the sender can end. */
  size_t taken = written < 0 ? program->input_length : (size_t)written;
  program->input_length -= taken;
  memmove(program->input, program->input + taken, program->input_length);
  grant(program->channel, (uint32_t)taken);
  if (written < 0 || (program->input_ends && program->input_length == 0)) close_fd(&program->in);
}

size_t exec_poll(struct pollfd *at, size_t room) {
  size_t count = 0;
  for (size_t i = 0; i < MAX_PROGRAMS && count + 3 <= room; i++) {
    struct program *program = &programs[i];
    if (!program->used) continue;
    int reads = program->credit > 0;
    at[count++] = (struct pollfd){.fd = program->input_length > 0 ? program->in : -1, .events = POLLOUT};
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
    if (!program->used || !program->ended) continue;
    int64_t left = program->close_at - now_ms();
    int wait = left < 0 ? 0 : (int)left;
    if (program->credit == 0) wait = DRAIN_MS; /* the host has to take what was sent first */
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
      program->close_at = now_ms() + DRAIN_MS;
      continue;
    }
    if (now_ms() < program->close_at) continue;
    size_t got = forward(program, &program->out, F_STDOUT);
    got += forward(program, &program->err, F_STDERR);
    program->late += got;
    if (got == 0 || program->late > LATE_BYTES) finish(program);
  }
}
