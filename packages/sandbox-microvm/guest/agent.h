/* What the guest agent and the host say to each other; the host's side is src/frames.ts. Little-endian throughout. */
#ifndef REVE_AGENT_H
#define REVE_AGENT_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 1

/* A frame: u32 payload length, u8 type, u32 channel, payload. */
#define HEADER_BYTES 9
#define MAX_PAYLOAD (1u << 20)
/* Bytes that one side may send on a channel before the other grants more. */
#define WINDOW (256u << 10)
#define CHUNK (32u << 10)

enum to_guest {
  T_EXEC = 1,      /* argv, environment, working directory (see exec.c) */
  T_STDIN = 2,     /* bytes */
  T_STDIN_END = 3,
  T_KILL = 4,      /* every process of the channel, at once */
  T_CREDIT = 5,    /* u32: output bytes the host has taken */
  T_PING = 6,
  T_SET_TIME = 7,  /* u64 seconds, u32 nanoseconds */
  T_MOUNT = 8,     /* tag, NUL, path, NUL, u8 read-only */
  T_SEED = 9,      /* random bytes */
  T_SHUTDOWN = 10,
};

enum from_guest {
  F_READY = 64,    /* u32 protocol version */
  F_STARTED = 65,  /* u32 pid */
  F_STDOUT = 66,
  F_STDERR = 67,
  F_EXIT = 68,     /* i32 exit code, u32 signal, u8 whether it was killed, names of what still ran, each with NUL */
  F_ERROR = 69,    /* text: the request on this channel failed */
  F_PONG = 70,
  F_CREDIT = 71,   /* u32: input bytes the program has taken */
  F_DONE = 72,     /* the request on this channel is done */
};

/* channel.c: the virtio port */
int channel_open(const char *name);
void channel_send(uint8_t type, uint32_t channel, const void *payload, size_t length);
void channel_error(uint32_t channel, const char *what, int error);
/* Reads what is there and calls `handle` for each whole frame. Returns 0 when the host is gone. */
int channel_read(void (*handle)(uint8_t type, uint32_t channel, const uint8_t *payload, size_t length));

/* exec.c: programs */
void exec_start(uint32_t channel, const uint8_t *payload, size_t length);
void exec_stdin(uint32_t channel, const uint8_t *bytes, size_t length);
void exec_stdin_end(uint32_t channel);
void exec_kill(uint32_t channel);
void exec_credit(uint32_t channel, uint32_t bytes);
void exec_reap(void);
/* Fills poll entries from `at` on and says how many; exec_ready takes them back after poll. */
struct pollfd;
size_t exec_poll(struct pollfd *at, size_t room);
void exec_ready(const struct pollfd *at, size_t count);
/* Milliseconds until something is due, -1 when nothing is. */
int exec_timeout(void);
void exec_tick(void);
void exec_kill_all(void);

/* system.c: what an init does */
void system_boot(void);
void system_mount(uint32_t channel, const uint8_t *payload, size_t length);
void system_set_time(uint32_t channel, const uint8_t *payload, size_t length);
void system_seed(uint32_t channel, const uint8_t *payload, size_t length);
void system_power_off(void) __attribute__((noreturn));
void system_panic(const char *what) __attribute__((noreturn));

uint32_t get_u32(const uint8_t *at);
void put_u32(uint8_t *at, uint32_t value);

#endif
