/* What programs of the guest connected to: each accepted socket is a channel to the host, which may refuse it. */
#define _GNU_SOURCE
#include "agent.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
  int used;
  uint32_t channel;
  int fd;
  uint32_t credit;     /* bytes that may be sent to the host now */
  int sent_end;        /* the program sends no more, and the host knows it */
  uint8_t *input;      /* bytes of the host that the program has not taken */
  size_t input_length;
  int input_ends;
};

static struct connection connections[MAX_CONNECTIONS];
static size_t open_connections;
static uint32_t last_channel;

static struct connection *find(uint32_t channel) {
  for (size_t i = 0; i < MAX_CONNECTIONS; i++)
    if (connections[i].used && connections[i].channel == channel) return &connections[i];
  return NULL;
}

static void forget(struct connection *connection) {
  close(connection->fd);
  free(connection->input);
  *connection = (struct connection){0};
  open_connections--;
}

/* The program sees a reset, never an orderly end of what did not end so. */
static void break_off(struct connection *connection) {
  struct linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  forget(connection);
}

static void fail(struct connection *connection) {
  channel_send(F_RESET, connection->channel, NULL, 0);
  break_off(connection);
}

static void end_if_over(struct connection *connection) {
  if (connection->sent_end && connection->input_ends && connection->input_length == 0) forget(connection);
}

int connection_room(void) {
  return open_connections < MAX_CONNECTIONS;
}

void connection_accept(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  struct sockaddr_in wanted;
  socklen_t size = sizeof wanted;
  if (fd < 0) return;
  struct connection *connection = NULL;
  for (size_t i = 0; i < MAX_CONNECTIONS && connection == NULL; i++)
    if (!connections[i].used) connection = &connections[i];
  if (connection == NULL || getsockname(fd, (struct sockaddr *)&wanted, &size) != 0 || wanted.sin_family != AF_INET) {
    close(fd);
    return;
  }
  int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  /* Never used twice: what the host says late is for nobody then. */
  if (last_channel == GUEST_CHANNELS - 1) system_panic("no channel is left");
  *connection = (struct connection){.used = 1, .channel = GUEST_CHANNELS | ++last_channel, .fd = fd, .credit = WINDOW};
  open_connections++;
  uint8_t payload[6];
  memcpy(payload, &wanted.sin_addr, 4);
  put_u16(payload + 4, ntohs(wanted.sin_port));
  channel_send(F_OPEN, connection->channel, payload, sizeof payload);
}

static void grant(const struct connection *connection, size_t bytes) {
  uint8_t granted[4];
  put_u32(granted, (uint32_t)bytes);
  channel_send(F_CREDIT, connection->channel, granted, sizeof granted);
}

/* How much of `bytes` the socket took, -1 when it is broken. */
static ssize_t offer(const struct connection *connection, const uint8_t *bytes, size_t length) {
  ssize_t written = send(connection->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
  return written < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : written;
}

void connection_input(uint32_t channel, const uint8_t *bytes, size_t length) {
  struct connection *connection = find(channel);
  if (connection == NULL || connection->input_ends) return;
  if (connection->input_length + length > WINDOW) system_panic("the host sent more than was granted");
  if (connection->input_length == 0) {
    ssize_t written = offer(connection, bytes, length);
    if (written < 0) {
      fail(connection);
      return;
    }
    if (written > 0) grant(connection, (size_t)written);
    bytes += written;
    length -= (size_t)written;
  }
  if (length == 0) return;
  uint8_t *grown = realloc(connection->input, connection->input_length + length);
  if (grown == NULL) system_panic("out of memory");
  connection->input = grown;
  memcpy(connection->input + connection->input_length, bytes, length);
  connection->input_length += length;
}

void connection_input_end(uint32_t channel) {
  struct connection *connection = find(channel);
  if (connection == NULL || connection->input_ends) return;
  connection->input_ends = 1;
  if (connection->input_length == 0) shutdown(connection->fd, SHUT_WR);
  end_if_over(connection);
}

void connection_credit(uint32_t channel, uint32_t bytes) {
  struct connection *connection = find(channel);
  if (connection == NULL) return;
  connection->credit = bytes > WINDOW - connection->credit ? WINDOW : connection->credit + bytes;
}

void connection_reset(uint32_t channel) {
  struct connection *connection = find(channel);
  if (connection != NULL) break_off(connection);
}

static int reads(const struct connection *connection) {
  return !connection->sent_end && connection->credit > 0;
}

/* Entries without events still tell of a reset; where a plain end would look like one, nothing is asked. */
size_t connection_poll(struct pollfd *at, size_t room) {
  size_t count = 0;
  for (size_t i = 0; i < MAX_CONNECTIONS && count < room; i++) {
    const struct connection *connection = &connections[i];
    if (!connection->used) continue;
    int read = reads(connection), write = connection->input_length > 0;
    int silent = !read && !write && !connection->sent_end && connection->input_ends;
    at[count++] = (struct pollfd){
        .fd = silent ? -1 : connection->fd,
        .events = (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0)),
    };
  }
  return count;
}

/* One read a turn: a flood must not keep other channels from being heard. Says whether the connection is still whole. */
static int forward(struct connection *connection) {
  uint8_t buffer[CHUNK];
  ssize_t got = recv(connection->fd, buffer, connection->credit < CHUNK ? connection->credit : CHUNK, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) {
    connection->sent_end = 1;
    channel_send(F_END, connection->channel, NULL, 0);
    return 1;
  }
  connection->credit -= (uint32_t)got;
  channel_send(F_STDOUT, connection->channel, buffer, (size_t)got);
  return 1;
}

static int feed(struct connection *connection) {
  ssize_t written = offer(connection, connection->input, connection->input_length);
  if (written < 0) return 0;
  if (written == 0) return 1;
  connection->input_length -= (size_t)written;
  memmove(connection->input, connection->input + written, connection->input_length);
  grant(connection, (size_t)written);
  if (connection->input_length > 0) return 1;
  free(connection->input);
  connection->input = NULL;
  if (connection->input_ends) shutdown(connection->fd, SHUT_WR);
  return 1;
}

void connection_ready(const struct pollfd *at, size_t count) {
  size_t next = 0;
  for (size_t i = 0; i < MAX_CONNECTIONS && next < count; i++) {
    struct connection *connection = &connections[i];
    if (!connection->used) continue;
    const struct pollfd *mine = &at[next++];
    if (mine->revents == 0) continue;
    int read = reads(connection), write = connection->input_length > 0;
    int whole = read || write || !(mine->revents & (POLLERR | POLLHUP));
    if (whole && read) whole = forward(connection);
    if (whole && write) whole = feed(connection);
    if (whole) end_if_over(connection);
    else fail(connection);
  }
}
