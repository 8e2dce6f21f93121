/*
 * A network without a card. A second network namespace, the gateway, is joined to the guest's by a pair of interfaces. In
 * it every address is local and the agent listens on the ports that the host serves, so it stands in for the whole world,
 * and programs of the guest may still bind what they like. Nothing here guards anything: the host decides on every
 * connection and every name again.
 */
#define _GNU_SOURCE
#include "agent.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PORTS 64
#define DNS_PORT 53
#define DNS_BYTES 4096
/* Who asked (address and port) and whom (address): they come back with the answer. */
#define RETURN_BYTES 10
/* As large as a packet gets: there is no wire. */
#define MTU 65520
#define GUEST_END "eth0"
#define GATEWAY_END "guest0"
/* How often refused attempts are looked at, how many at once, and how long one is not told again. */
#define DENIED_EVERY_MS 100
#define DENIED_AT_ONCE 32
#define DENIED_AGAIN_MS 10000
#define DENIED_KNOWN 64

static int listeners[MAX_PORTS];
static uint8_t name_server[4];
static uint16_t ports[MAX_PORTS];
static size_t listening;
static int dns = -1, tap = -1;
static int64_t tap_at;

/* From linux/netlink.h, linux/rtnetlink.h, linux/veth.h and linux/filter.h, which a libc does not bring. */
struct netlink_head {
  uint32_t length;
  uint16_t type, flags;
  uint32_t sequence, sender;
};
struct link_body {
  uint8_t family, padding;
  uint16_t type;
  int32_t index;
  uint32_t flags, change;
};
struct address_body {
  uint8_t family, prefix, flags, scope;
  uint32_t index;
};
struct route_body {
  uint8_t family, prefix, source_prefix, tos, table, protocol, scope, type;
  uint32_t flags;
};
struct filter {
  uint16_t code;
  uint8_t if_true, if_false;
  uint32_t value;
};
struct filter_program {
  uint16_t length;
  const struct filter *filter;
};
enum { NETLINK_ROUTE_FAMILY = 0, MESSAGE_ERROR = 2, NEW_LINK = 16, NEW_ADDRESS = 20, NEW_ROUTE = 24 };
enum { REQUEST = 0x1, ACKNOWLEDGE = 0x4, EXCLUSIVE = 0x200, CREATE = 0x400 };
enum { LINK_NAME = 3, LINK_MTU = 4, LINK_INFORMATION = 18, LINK_NAMESPACE = 28, INFORMATION_KIND = 1, INFORMATION_DATA = 2, VETH_PEER = 1 };
enum { ADDRESS_ADDRESS = 1, ADDRESS_LOCAL = 2 };
enum { ROUTE_DESTINATION = 1, ROUTE_LINK = 4, ROUTE_GATEWAY = 5 };
enum { TABLE_MAIN = 254, TABLE_LOCAL = 255, SCOPE_WORLD = 0, SCOPE_LINK = 253, SCOPE_HOST = 254, BY_BOOT = 3, UNICAST = 1, LOCAL = 2 };

struct message {
  uint32_t bytes[128]; /* aligned as the kernel wants it */
  size_t length;
};

static void *put(struct message *message, const void *bytes, size_t length) {
  uint8_t *at = (uint8_t *)message->bytes + message->length;
  memcpy(at, bytes, length);
  message->length += (length + 3) & ~(size_t)3;
  return at;
}

static uint16_t *begin(struct message *message, uint16_t type) {
  uint16_t head[2] = {0, type};
  return put(message, head, sizeof head);
}

static void end(struct message *message, uint16_t *head) {
  head[0] = (uint16_t)((uint8_t *)message->bytes + message->length - (uint8_t *)head);
}

static void attribute(struct message *message, uint16_t type, const void *bytes, size_t length) {
  uint16_t head[2] = {(uint16_t)(4 + length), type};
  put(message, head, sizeof head);
  put(message, bytes, length);
}

static struct message request(uint16_t type, const void *body, size_t length) {
  struct message message = {.length = 0};
  struct netlink_head head = {.type = type, .flags = REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE};
  put(&message, &head, sizeof head);
  put(&message, body, length);
  return message;
}

/* Sends one request in the namespace that this process is in now. Returns 0, or -1 with errno. */
static int ask(struct message *message) {
  struct {
    struct netlink_head head;
    int32_t error;
    uint8_t rest[1024];
  } answer = {.error = -EPROTO};
  ((struct netlink_head *)message->bytes)->length = (uint32_t)message->length;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE_FAMILY);
  if (fd < 0) return -1;
  if (send(fd, message->bytes, message->length, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0) answer.error = -errno;
  else if (answer.head.type != MESSAGE_ERROR) answer.error = -EPROTO;
  close(fd);
  errno = -answer.error;
  return answer.error == 0 ? 0 : -1;
}

static int add_address(const char *name, const uint8_t *address, uint8_t prefix) {
  struct address_body body = {.family = AF_INET, .prefix = prefix, .scope = SCOPE_WORLD, .index = if_nametoindex(name)};
  struct message message = request(NEW_ADDRESS, &body, sizeof body);
  attribute(&message, ADDRESS_LOCAL, address, 4);
  attribute(&message, ADDRESS_ADDRESS, address, 4);
  return ask(&message);
}

static int add_pair(int home) {
  uint32_t mtu = MTU;
  struct link_body link = {.family = AF_UNSPEC};
  struct message message = request(NEW_LINK, &link, sizeof link);
  attribute(&message, LINK_NAME, GATEWAY_END, sizeof GATEWAY_END);
  attribute(&message, LINK_MTU, &mtu, sizeof mtu);
  uint16_t *information = begin(&message, LINK_INFORMATION);
  attribute(&message, INFORMATION_KIND, "veth", 4);
  uint16_t *data = begin(&message, INFORMATION_DATA);
  uint16_t *peer = begin(&message, VETH_PEER);
  put(&message, &link, sizeof link);
  attribute(&message, LINK_NAME, GUEST_END, sizeof GUEST_END);
  attribute(&message, LINK_MTU, &mtu, sizeof mtu);
  attribute(&message, LINK_NAMESPACE, &home, sizeof home);
  end(&message, peer);
  end(&message, data);
  end(&message, information);
  return ask(&message);
}

/* Every address is one of the gateway's own, but for those of the link: the table that is looked at first says both. */
static int everything_is_local(const uint8_t *gateway, uint8_t prefix) {
  uint32_t loopback = if_nametoindex("lo"), link = if_nametoindex(GATEWAY_END), network;
  struct route_body all = {.family = AF_INET, .table = TABLE_LOCAL, .protocol = BY_BOOT, .scope = SCOPE_HOST, .type = LOCAL};
  struct message local = request(NEW_ROUTE, &all, sizeof all);
  attribute(&local, ROUTE_LINK, &loopback, sizeof loopback);
  if (ask(&local) != 0) return -1;
  memcpy(&network, gateway, sizeof network);
  network &= htonl(~0u << (32 - prefix));
  struct route_body near = {.family = AF_INET, .prefix = prefix, .table = TABLE_LOCAL, .protocol = BY_BOOT, .scope = SCOPE_LINK, .type = UNICAST};
  struct message direct = request(NEW_ROUTE, &near, sizeof near);
  attribute(&direct, ROUTE_DESTINATION, &network, sizeof network);
  attribute(&direct, ROUTE_LINK, &link, sizeof link);
  return ask(&direct);
}

static int default_route(const uint8_t *gateway) {
  struct route_body body = {.family = AF_INET, .table = TABLE_MAIN, .protocol = BY_BOOT, .scope = SCOPE_WORLD, .type = UNICAST};
  struct message message = request(NEW_ROUTE, &body, sizeof body);
  attribute(&message, ROUTE_GATEWAY, gateway, 4);
  return ask(&message);
}

static int listen_on(int type, uint16_t port) {
  int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (type == SOCK_DGRAM) setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes);
  if (bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && (type == SOCK_DGRAM || listen(fd, 1024) == 0)) return fd;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

/* What comes from the guest: first packets of TCP connections, and UDP that is not DNS; no later fragments. */
static int open_tap(void) {
  static const struct filter filter[] = {
      {0x20, 0, 0, 0xfffff004u},   /* which way the packet goes */
      {0x15, 12, 0, 4},            /* out: of no interest */
      {0x28, 0, 0, 6},
      {0x45, 10, 0, 0x1fff},       /* a later fragment */
      {0xb1, 0, 0, 0},             /* X: where the ports are */
      {0x30, 0, 0, 9},
      {0x15, 0, 3, IPPROTO_TCP},
      {0x50, 0, 0, 13},
      {0x54, 0, 0, 0x12},          /* SYN and ACK */
      {0x15, 3, 4, 0x02},
      {0x15, 0, 3, IPPROTO_UDP},
      {0x48, 0, 0, 2},
      {0x15, 1, 0, DNS_PORT},
      {0x06, 0, 0, 64},
      {0x06, 0, 0, 0},
  };
  struct filter_program program = {.length = sizeof filter / sizeof *filter, .filter = filter};
  struct sockaddr_ll from = {.sll_family = AF_PACKET, .sll_protocol = htons(0x0800), .sll_ifindex = (int)if_nametoindex(GATEWAY_END)};
  int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), small = 32 << 10;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0 && bind(fd, (struct sockaddr *)&from, sizeof from) == 0) return fd;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

/* In the gateway's namespace. Returns what failed, or NULL. */
static const char *open_gateway(int home, const uint8_t *gateway, uint8_t prefix) {
  /* Only IPv4 is carried; what is never there need not be refused. */
  system_write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
  system_write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
  /* A refused datagram is answered each time. */
  system_write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
  if (system_link_up("lo") != 0) return "the gateway's loopback";
  if (add_pair(home) != 0 || system_link_up(GATEWAY_END) != 0) return "the pair of interfaces";
  if (add_address(GATEWAY_END, gateway, prefix) != 0) return "the gateway's address";
  if (everything_is_local(gateway, prefix) != 0) return "the gateway's routes";
  for (size_t i = 0; i < listening; i++)
    if ((listeners[i] = listen_on(SOCK_STREAM, ports[i])) < 0) return "a port of the gateway";
  if ((dns = listen_on(SOCK_DGRAM, DNS_PORT)) < 0) return "the port of DNS";
  if ((tap = open_tap()) < 0) return "the gateway's tap";
  return NULL;
}

static const char *start(const uint8_t *guest, const uint8_t *gateway, uint8_t prefix) {
  int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0 || unshare(CLONE_NEWNET) != 0) {
    if (home >= 0) close(home);
    return "a network namespace";
  }
  const char *failed = open_gateway(home, gateway, prefix);
  int error = errno;
  if (setns(home, CLONE_NEWNET) != 0) system_panic("cannot go back to the guest's network");
  close(home);
  errno = error;
  if (failed != NULL) return failed;
  system_write("/proc/sys/net/ipv6/conf/" GUEST_END "/disable_ipv6", "1");
  if (system_link_up(GUEST_END) != 0) return "the guest's interface";
  if (add_address(GUEST_END, guest, prefix) != 0) return "the guest's address";
  if (default_route(gateway) != 0) return "the guest's route";
  return NULL;
}

void network_resolver(void) {
  char text[64];
  if (listening == 0 || !system_has_root()) return;
  snprintf(text, sizeof text, "nameserver %u.%u.%u.%u\n", name_server[0], name_server[1], name_server[2], name_server[3]);
  /* It may be a link to what an image's own network service writes. */
  unlink("/etc/resolv.conf");
  int fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) system_say("cannot write /etc/resolv.conf");
  if (fd >= 0) close(fd);
}

/* The payload: the guest's address, the gateway's, u8 prefix, then a u16 for each port. */
void network_start(uint32_t channel, const uint8_t *payload, size_t length) {
  size_t count = length < 9 ? 0 : (length - 9) / 2;
  if (length < 9 || length != 9 + 2 * count || count > MAX_PORTS || payload[8] < 8 || payload[8] > 30) {
    channel_error(channel, "a request that makes no sense", 0);
    return;
  }
  if (listening > 0) {
    channel_error(channel, "the network is already there", 0);
    return;
  }
  for (size_t i = 0; i < count; i++) ports[i] = get_u16(payload + 9 + 2 * i);
  for (size_t i = 0; i < count; i++) listeners[i] = -1;
  listening = count;
  const char *failed = start(payload, payload + 4, payload[8]);
  if (failed != NULL) {
    channel_error(channel, failed, errno);
    return;
  }
  memcpy(name_server, payload + 4, sizeof name_server);
  network_resolver();
  channel_send(F_DONE, channel, NULL, 0);
}

/* The answer must come from the address that was asked: both ends travel with the query, so nothing is kept here. */
static void forward_query(void) {
  uint8_t query[RETURN_BYTES + DNS_BYTES], control[256];
  struct sockaddr_in from;
  struct iovec body = {.iov_base = query + RETURN_BYTES, .iov_len = DNS_BYTES};
  struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &body, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got = recvmsg(dns, &message, MSG_DONTWAIT);
  if (got <= 0 || message.msg_flags & MSG_TRUNC) return;
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  if (part == NULL || part->cmsg_level != IPPROTO_IP || part->cmsg_type != IP_PKTINFO) return;
  struct in_pktinfo asked;
  memcpy(&asked, CMSG_DATA(part), sizeof asked);
  memcpy(query, &from.sin_addr, 4);
  memcpy(query + 4, &from.sin_port, 2);
  memcpy(query + 6, &asked.ipi_addr, 4);
  channel_send(F_DNS, 0, query, RETURN_BYTES + (size_t)got);
}

void network_answer(const uint8_t *payload, size_t length) {
  if (length < RETURN_BYTES || dns < 0) return;
  struct sockaddr_in to = {.sin_family = AF_INET};
  struct in_pktinfo asked = {0};
  memcpy(&to.sin_addr, payload, 4);
  memcpy(&to.sin_port, payload + 4, 2);
  memcpy(&asked.ipi_spec_dst, payload + 6, 4);
  union {
    struct cmsghdr head;
    uint8_t bytes[CMSG_SPACE(sizeof asked)];
  } control = {0};
  control.head.cmsg_level = IPPROTO_IP;
  control.head.cmsg_type = IP_PKTINFO;
  control.head.cmsg_len = CMSG_LEN(sizeof asked);
  memcpy(CMSG_DATA(&control.head), &asked, sizeof asked);
  struct iovec body = {.iov_base = (void *)(payload + RETURN_BYTES), .iov_len = length - RETURN_BYTES};
  struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &body, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  /* It is a datagram: one that is lost is asked for again. */
  if (sendmsg(dns, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
}

/* Whether this was told not long ago; it is taken down if not. */
static int known(const uint8_t *attempt) {
  static struct {
    uint8_t attempt[7];
    int64_t until;
  } table[DENIED_KNOWN];
  static size_t next;
  int64_t now = system_now();
  for (size_t i = 0; i < DENIED_KNOWN; i++)
    if (table[i].until > now && memcmp(table[i].attempt, attempt, sizeof table[i].attempt) == 0) return 1;
  memcpy(table[next].attempt, attempt, sizeof table[next].attempt);
  table[next].until = now + DENIED_AGAIN_MS;
  next = (next + 1) % DENIED_KNOWN;
  return 0;
}

static void report_refused(void) {
  tap_at = system_now() + DENIED_EVERY_MS;
  for (int i = 0; i < DENIED_AT_ONCE; i++) {
    uint8_t packet[64];
    ssize_t got = recv(tap, packet, sizeof packet, MSG_DONTWAIT);
    if (got < 0) return;
    size_t head = got > 0 ? (size_t)(packet[0] & 15) * 4 : 0;
    if (head < 20 || (size_t)got < head + 4) continue;
    uint16_t port = (uint16_t)(packet[head + 2] << 8 | packet[head + 3]);
    int is_served = 0;
    for (size_t listener = 0; packet[9] == IPPROTO_TCP && listener < listening; listener++) is_served |= ports[listener] == port;
    uint8_t attempt[7];
    attempt[0] = packet[9];
    memcpy(attempt + 1, packet + 16, 4);
    put_u16(attempt + 5, port);
    if (!is_served && !known(attempt)) channel_send(F_DENIED, 0, attempt, sizeof attempt);
  }
}

size_t network_poll(struct pollfd *at, size_t room) {
  if (tap < 0 || room < listening + 2) return 0;
  at[0] = (struct pollfd){.fd = dns, .events = POLLIN};
  at[1] = (struct pollfd){.fd = system_now() < tap_at ? -1 : tap, .events = POLLIN};
  /* Who connects when there is no room waits until there is. */
  for (size_t i = 0; i < listening; i++) at[2 + i] = (struct pollfd){.fd = connection_room() ? listeners[i] : -1, .events = POLLIN};
  return 2 + listening;
}

void network_ready(const struct pollfd *at, size_t count) {
  if (count == 0) return;
  if (at[0].revents != 0) forward_query();
  if (at[1].revents != 0) report_refused();
  for (size_t i = 0; i < listening && 2 + i < count; i++)
    if (at[2 + i].revents != 0) connection_accept(listeners[i]);
}

int network_timeout(void) {
  if (tap < 0) return -1;
  int64_t left = tap_at - system_now();
  return left > 0 ? (int)left : -1;
}
