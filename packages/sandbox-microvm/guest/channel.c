/* The virtio serial port to the host: frames in, frames out. */
#include "agent.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port = -1;
static uint8_t *pending;
static size_t pending_length;

uint16_t get_u16(const uint8_t *at) {
  return (uint16_t)(at[0] | at[1] << 8);
}

uint32_t get_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void put_u16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)value;
  at[1] = (uint8_t)(value >> 8);
}

void put_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* There is no udev here: the port's device is found by the name that QEMU gave it. */
int channel_open(const char *name) {
  const char *class = "/sys/class/virtio-ports";
  for (int attempt = 0; attempt < 500; attempt++) {
    DIR *directory = opendir(class);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
      char path[512], found[64] = "";
      snprintf(path, sizeof path, "%s/%s/name", class, entry->d_name);
      int fd = open(path, O_RDONLY | O_CLOEXEC);
      if (fd < 0) continue;
      ssize_t length = read(fd, found, sizeof found - 1);
      close(fd);
      if (length <= 0) continue;
      found[strcspn(found, "\n")] = 0;
      if (strcmp(found, name) != 0) continue;
      snprintf(path, sizeof path, "/dev/%s", entry->d_name);
      port = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
      if (port < 0) continue;
      closedir(directory);
      pending = malloc(HEADER_BYTES + MAX_PAYLOAD);
      return pending == NULL ? -1 : port;
    }
    if (directory != NULL) closedir(directory);
    usleep(10000);
  }
  return -1;
}

/* In a machine of somebody else's: the host listens at a port of the machine's own family of sockets. */
int channel_connect(uint32_t number) {
  struct { /* sockaddr_vm, which a libc does not bring; the host is number 2 */
    sa_family_t family;
    uint16_t reserved;
    uint32_t port, machine, zero;
  } host = {.family = AF_VSOCK, .port = number, .machine = 2};
  port = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  pending = malloc(HEADER_BYTES + MAX_PAYLOAD);
  int connected = port >= 0 && pending != NULL && connect(port, (struct sockaddr *)&host, sizeof host) == 0;
  return connected && fcntl(port, F_SETFL, O_NONBLOCK) == 0 ? port : -1;
}

static void write_all(const uint8_t *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(port, bytes, length);
    if (written > 0) {
      bytes += written;
      length -= (size_t)written;
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      struct pollfd wait = {.fd = port, .events = POLLOUT};
      poll(&wait, 1, -1);
      if (wait.revents & (POLLERR | POLLHUP)) system_power_off();
      continue;
    }
    system_power_off(); /* the host is gone */
  }
}

void channel_send(uint8_t type, uint32_t channel, const void *payload, size_t length) {
  uint8_t frame[HEADER_BYTES + CHUNK];
  if (length > CHUNK) length = CHUNK;
  put_u32(frame, (uint32_t)length);
  frame[4] = type;
  put_u32(frame + 5, channel);
  if (length > 0) memcpy(frame + HEADER_BYTES, payload, length);
  write_all(frame, HEADER_BYTES + length);
}

void channel_error(uint32_t channel, const char *what, int error) {
  char text[512];
  int length = error == 0 ? snprintf(text, sizeof text, "%s", what) : snprintf(text, sizeof text, "%s: %s", what, strerror(error));
  channel_send(F_ERROR, channel, text, length < (int)sizeof text ? (size_t)length : sizeof text - 1);
}

int channel_read(void (*handle)(uint8_t, uint32_t, const uint8_t *, size_t)) {
  for (;;) {
    ssize_t got = read(port, pending + pending_length, HEADER_BYTES + MAX_PAYLOAD - pending_length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return 1;
    if (got <= 0) return 0;
    pending_length += (size_t)got;
    size_t used = 0;
    while (pending_length - used >= HEADER_BYTES) {
      const uint8_t *frame = pending + used;
      uint32_t length = get_u32(frame);
      if (length > MAX_PAYLOAD) system_panic("a frame from the host is too long");
      if (pending_length - used < HEADER_BYTES + length) break;
      handle(frame[4], get_u32(frame + 5), frame + HEADER_BYTES, length);
      used += HEADER_BYTES + length;
    }
    pending_length -= used;
    memmove(pending, pending + used, pending_length);
  }
}
