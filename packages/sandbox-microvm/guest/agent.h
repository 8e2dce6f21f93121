/* What the guest agent and the host say to each other; the host's side is src/frames.ts. Little-endian throughout. */
#ifndef REVE_AGENT_H
#define REVE_AGENT_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 2

/* A frame: u32 payload length, u8 type, u32 channel, payload. */
#define HEADER_BYTES 9
#define MAX_PAYLOAD (1u << 20)
/* Bytes that one side may send on a channel before the other grants more. */
#define WINDOW (256u << 10)
/* With its header a chunk is 32 KiB: the port takes no more in one write, and each write costs the host a turn. */
#define CHUNK ((32u << 10) - HEADER_BYTES)
/* Channels with this bit are opened by the guest, each number once and in rising order: connections of its programs. */
#define GUEST_CHANNELS 0x80000000u

enum to_guest {
  T_EXEC = 1,      /* argv, environment, working directory, terminal (see order.c) */
  T_STDIN = 2,     /* bytes, for a program or for a connection */
  T_STDIN_END = 3,
  T_KILL = 4,      /* every process of the channel, at once */
  T_CREDIT = 5,    /* u32: output bytes the host has taken */
  T_PING = 6,
  T_SET_TIME = 7,  /* u64 seconds, u32 nanoseconds */
  T_MOUNT = 8,     /* tag, NUL, path, NUL, u8 read-only */
  T_SEED = 9,      /* random bytes */
  T_SHUTDOWN = 10,
  T_FILE = 11,     /* like T_EXEC: argv is what file.c is to do, its streams are the file's bytes */
  T_SIGNAL = 12,   /* u32 signal, to every process of the channel */
  T_RESIZE = 13,   /* u16 columns, u16 rows */
  T_ROOT = 14,     /* the disk is there: mount it and live in it */
  T_NETWORK = 15,  /* guest's address, gateway's address, u8 prefix, u16 ports (see network.c) */
  T_DNS = 16,      /* as F_DNS, with the answer */
  T_RESET = 17,    /* the connection is over, both ways and at once */
  T_TRUST = 18,    /* PEM of an authority that programs are to trust */
};

enum from_guest {
  F_READY = 64,    /* u32 protocol version */
  F_STARTED = 65,  /* u32 pid */
  F_STDOUT = 66,   /* bytes, of a program or of a connection */
  F_STDERR = 67,
  F_EXIT = 68,     /* i32 exit code, u32 signal, u8 whether it was killed, names of what still ran, each with NUL */
  F_ERROR = 69,    /* text: the request on this channel failed */
  F_PONG = 70,
  F_CREDIT = 71,   /* u32: input bytes the program or the connection has taken */
  F_DONE = 72,     /* the request on this channel is done */
  F_OPEN = 73,     /* a program connected: address, u16 port */
  F_END = 74,      /* the program sends no more on this connection */
  F_RESET = 75,    /* the connection is over, both ways and at once */
  F_DNS = 76,      /* where the answer goes (10 bytes, given back as they are), a query */
  F_DENIED = 77,   /* u8 protocol (6, 17), address, u16 port: nobody serves this here */
};

/* channel.c: the virtio port */
int channel_open(const char *name);
int channel_connect(uint32_t number);
void channel_send(uint8_t type, uint32_t channel, const void *payload, size_t length);
void channel_error(uint32_t channel, const char *what, int error);
/* Reads what is there and calls `handle` for each whole frame. Returns 0 when the host is gone. */
int channel_read(void (*handle)(uint8_t type, uint32_t channel, const uint8_t *payload, size_t length));

/* exec.c: programs */
void exec_start(uint32_t channel, const uint8_t *payload, size_t length, int is_file);
void exec_stdin(uint32_t channel, const uint8_t *bytes, size_t length);
void exec_stdin_end(uint32_t channel);
void exec_kill(uint32_t channel);
void exec_signal(uint32_t channel, uint32_t signal);
void exec_resize(uint32_t channel, uint16_t columns, uint16_t rows);
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

/* file.c: in a process of its own, copies between a file and the standard streams. Returns the exit code: an errno. */
int file_run(char **argv);

/* network.c: a network without a card */
void network_start(uint32_t channel, const uint8_t *payload, size_t length);
void network_answer(const uint8_t *payload, size_t length);
void network_resolver(void); /* says in the disk who resolves names, when both are there */
size_t network_poll(struct pollfd *at, size_t room);
void network_ready(const struct pollfd *at, size_t count);
int network_timeout(void);

/* connection.c: what the guest's programs connected to */
#define MAX_CONNECTIONS 256
int connection_room(void);
void connection_accept(int listener);
void connection_input(uint32_t channel, const uint8_t *bytes, size_t length);
void connection_input_end(uint32_t channel);
void connection_credit(uint32_t channel, uint32_t bytes);
void connection_reset(uint32_t channel);
size_t connection_poll(struct pollfd *at, size_t room);
void connection_ready(const struct pollfd *at, size_t count);

/* system.c: what an init does */
void system_boot(void);
void system_join(void);
void system_root(uint32_t channel);
int system_has_root(void);
void system_mount(uint32_t channel, const uint8_t *payload, size_t length);
void system_set_time(uint32_t channel, const uint8_t *payload, size_t length);
void system_seed(uint32_t channel, const uint8_t *payload, size_t length);
void system_trust(uint32_t channel, const uint8_t *pem, size_t length);
int system_link_up(const char *name); /* in the network that this process is in now */
void system_say(const char *text);
int system_write(const char *path, const char *text);
void system_limit_group(const char *path);
int64_t system_now(void); /* monotonic, ms */
void system_power_off(void) __attribute__((noreturn));
void system_panic(const char *what) __attribute__((noreturn));

uint16_t get_u16(const uint8_t *at);
uint32_t get_u32(const uint8_t *at);
void put_u16(uint8_t *at, uint16_t value);
void put_u32(uint8_t *at, uint32_t value);

#endif
