/* Files of the guest: a process of its own copies between one and the standard streams. */
#define _GNU_SOURCE
#include "agent.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An exit code that is no errno. */
#define NOT_A_FILE 200

static int failed(int error) {
  dprintf(2, "%s", strerror(error));
  return error;
}

/* Copies until `from` ends or `limit` bytes are done. Returns 0 or an errno. */
static int copy(int from, int to, unsigned long long limit) {
  static uint8_t buffer[64 << 10];
  while (limit > 0) {
    ssize_t got = read(from, buffer, limit < sizeof buffer ? (size_t)limit : sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    for (ssize_t at = 0, written; at < got; at += written) {
      written = write(to, buffer + at, (size_t)(got - at));
      if (written < 0 && errno == EINTR) written = 0;
      if (written < 0) return errno;
    }
    limit -= (unsigned long long)got;
  }
  return 0;
}

/* A pipe or a device would hold this process up, or do something when it is opened or written. */
static int open_file(const char *path, int flags, mode_t mode, int *code) {
  struct stat information;
  int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, mode);
  *code = 0;
  if (fd < 0) *code = errno == ENXIO ? NOT_A_FILE : failed(errno);
  else if (fstat(fd, &information) != 0) *code = failed(errno);
  else if (!S_ISREG(information.st_mode)) *code = NOT_A_FILE;
  return fd;
}

static int read_file(const char *path, const char *offset, const char *limit) {
  int code, fd = open_file(path, O_RDONLY, 0, &code);
  if (code != 0) return code;
  if (strcmp(offset, "0") != 0 && lseek(fd, strtoll(offset, NULL, 10), SEEK_SET) < 0) return failed(errno);
  int error = copy(fd, 1, strtoull(limit, NULL, 10));
  return error == 0 ? 0 : failed(error);
}

static int write_file(const char *path, const char *mode) {
  int code, fd = open_file(path, O_WRONLY | O_CREAT, 0666, &code);
  if (code != 0) return code;
  if (ftruncate(fd, 0) != 0 || (*mode && fchmod(fd, (mode_t)strtoul(mode, NULL, 8)) != 0)) return failed(errno);
  int error = copy(0, fd, ~0ull);
  if (error == 0 && close(fd) != 0) error = errno;
  return error == 0 ? 0 : failed(error);
}

/* The old file or the new one, whole; also after a power cut. Whoever asked removes `temporary` if this dies. */
static int replace_file(const char *path, const char *mode, const char *temporary) {
  struct stat old;
  int is_there = lstat(path, &old) == 0;
  if (is_there && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode)) return NOT_A_FILE;
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return failed(errno);
  int error = copy(0, fd, ~0ull);
  mode_t wanted = *mode ? (mode_t)strtoul(mode, NULL, 8) : old.st_mode & 07777;
  if (error == 0 && (*mode || (is_there && S_ISREG(old.st_mode))) && fchmod(fd, wanted) != 0) error = errno;
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (error == 0 && rename(temporary, path) != 0) error = errno;
  return error == 0 ? 0 : failed(error);
}

int file_run(char **argv) {
  size_t count = 0;
  while (argv[count] != NULL) count++;
  if (count == 4 && strcmp(argv[0], "read") == 0) return read_file(argv[1], argv[2], argv[3]);
  if (count == 3 && strcmp(argv[0], "write") == 0) return write_file(argv[1], argv[2]);
  if (count == 4 && strcmp(argv[0], "replace") == 0) return replace_file(argv[1], argv[2], argv[3]);
  return failed(EINVAL);
}
