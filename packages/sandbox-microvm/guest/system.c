/* What an init does: modules, file systems, the clock, the end. */
#define _GNU_SOURCE
#include "agent.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From linux/random.h and fs/ext4/ext4.h, which a libc does not bring. */
#define RNDADDENTROPY _IOW('R', 0x03, int[2])
#define RNDRESEEDCRNG _IO('R', 0x07)
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
/* Of the images that src/qemu/image.ts makes. */
#define BLOCK_BYTES 4096
#define MAX_PIDS "4096"

static void say(const char *text) {
  int fd = open("/dev/console", O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return;
  dprintf(fd, "reve-agent: %s\n", text);
  close(fd);
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) say(path);
  if (fd >= 0) close(fd);
}

void system_panic(const char *what) {
  char text[256];
  snprintf(text, sizeof text, "%s (%s)", what, strerror(errno));
  say(text);
  sync();
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

void system_power_off(void) {
  exec_kill_all();
  /* What still writes keeps the disk from becoming read-only; a process that does not die holds this up for 2 s at most. */
  for (int attempt = 0; attempt < 200 && waitpid(-1, NULL, WNOHANG) >= 0; attempt++) usleep(10000);
  sync();
  mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
  sync();
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

static void mount_or_die(const char *source, const char *target, const char *type, unsigned long flags, const char *options) {
  mkdir(target, 0755);
  if (mount(source, target, type, flags, options) != 0) {
    char text[256];
    snprintf(text, sizeof text, "cannot mount %s on %s", type, target);
    system_panic(text);
  }
}

/* /modules lists files of the initramfs in the order of their needs. */
static void load_modules(void) {
  FILE *list = fopen("/modules", "re");
  char path[256];
  if (list == NULL) system_panic("there is no list of modules");
  while (fgets(path, sizeof path, list) != NULL) {
    path[strcspn(path, "\n")] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) system_panic(path);
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) system_panic(path);
    close(fd);
  }
  fclose(list);
}

/* With standard descriptors open, nothing that is opened later is taken for one of them. */
static void open_standard_descriptors(void) {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 3) fd = dup(fd);
  if (fd > 2) close(fd);
}

static void loopback_up(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {.ifr_name = "lo"};
  if (fd < 0) return;
  if (ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    ioctl(fd, SIOCSIFFLAGS, &request);
  }
  close(fd);
}

/* The image is as small as its files; the disk is as large as the sandbox's owner says. */
static void grow_root(void) {
  uint64_t bytes = 0;
  int disk = open("/dev/vda", O_RDONLY | O_CLOEXEC), root = open("/root", O_RDONLY | O_CLOEXEC);
  int known = disk >= 0 && root >= 0 && ioctl(disk, BLKGETSIZE64, &bytes) == 0;
  uint64_t blocks = bytes / BLOCK_BYTES;
  if (!known || ioctl(root, EXT4_IOC_RESIZE_FS, &blocks) != 0) say("the disk's file system keeps its size");
  close(disk);
  close(root);
}

/* A boot that only proves that this machine can: no disk, no programs. */
static int only_probes(void) {
  char line[4096] = "";
  int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, line, sizeof line - 1);
  close(fd);
  return length > 0 && strstr(line, "reve.probe") != NULL;
}

/* A boot that only asks whether this machine can boot at all: it has no disk. */
static int probing(void) {
  char line[1024] = "";
  int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, line, sizeof line - 1) < 0) line[0] = 0;
  close(fd);
  return strstr(line, "reve.probe") != NULL;
}

void system_boot(void) {
  mount_or_die("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
  open_standard_descriptors();
  mount_or_die("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_or_die("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  load_modules();
  if (probing()) return;
  if (only_probes()) return;
  for (int attempt = 0; access("/dev/vda", F_OK) != 0; attempt++) {
    if (attempt == 500) system_panic("there is no disk");
    usleep(10000);
  }
  mount_or_die("/dev/vda", "/root", "ext4", MS_NOATIME, "noinit_itable");
  grow_root();
  const char *moved[] = {"/dev", "/proc", "/sys"};
  for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
    char target[32];
    snprintf(target, sizeof target, "/root%s", moved[i]);
    mkdir(target, 0755);
    if (mount(moved[i], target, NULL, MS_MOVE, NULL) != 0) system_panic(moved[i]);
  }
  if (chdir("/root") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
    system_panic("cannot change to the disk's root");
  mount_or_die("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666");
  mount_or_die("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  mount_or_die("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
  mount_or_die("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mkdir("/sys/fs/cgroup/reve", 0755);
  /* A fork bomb ends at a number that can still be killed. */
  write_text("/sys/fs/cgroup/cgroup.subtree_control", "+pids");
  write_text("/sys/fs/cgroup/reve/pids.max", MAX_PIDS);
  mkdir("/run/lock", 01777);
  symlink("/proc/self/fd", "/dev/fd");
  symlink("/proc/self/fd/0", "/dev/stdin");
  symlink("/proc/self/fd/1", "/dev/stdout");
  symlink("/proc/self/fd/2", "/dev/stderr");
  sethostname("reve", 4);
  loopback_up();
}

void system_mount(uint32_t channel, const uint8_t *payload, size_t length) {
  const char *tag = (const char *)payload;
  const char *path = memchr(payload, 0, length);
  const uint8_t *end = path == NULL ? NULL : memchr(path + 1, 0, length - (size_t)(path + 1 - tag));
  if (end == NULL || end + 2 != payload + length) {
    channel_error(channel, "a request that makes no sense", 0);
    return;
  }
  path++;
  for (char part[512], *slash = part; slash != NULL;) { /* every folder of the path */
    snprintf(part, sizeof part, "%s", path);
    for (slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
      *slash = 0;
      mkdir(part, 0755);
      *slash = '/';
    }
    mkdir(path, 0755);
  }
  unsigned long flags = MS_NOSUID | MS_NODEV | (end[1] ? MS_RDONLY : 0);
  /* mmap: every read and write reaches the host at once, and shared mappings work. */
  if (mount(tag, path, "9p", flags, "trans=virtio,version=9p2000.L,cache=mmap,msize=512000") != 0) channel_error(channel, path, errno);
  else channel_send(F_DONE, channel, NULL, 0);
}

void system_set_time(uint32_t channel, const uint8_t *payload, size_t length) {
  if (length != 12) {
    channel_error(channel, "a request that makes no sense", 0);
    return;
  }
  uint64_t seconds = (uint64_t)get_u32(payload) | (uint64_t)get_u32(payload + 4) << 32;
  struct timespec now = {.tv_sec = (time_t)seconds, .tv_nsec = (long)get_u32(payload + 8)};
  if (clock_settime(CLOCK_REALTIME, &now) != 0) channel_error(channel, "the clock", errno);
  else channel_send(F_DONE, channel, NULL, 0);
}

void system_seed(uint32_t channel, const uint8_t *payload, size_t length) {
  struct {
    int bits, size;
    uint8_t bytes[64];
  } seed = {0};
  if (length > sizeof seed.bytes) length = sizeof seed.bytes;
  memcpy(seed.bytes, payload, length);
  seed.size = (int)length;
  seed.bits = (int)length * 8;
  int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
  if (fd < 0 || ioctl(fd, RNDADDENTROPY, &seed) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0) channel_error(channel, "the random source", errno);
  else channel_send(F_DONE, channel, NULL, 0);
  if (fd >= 0) close(fd);
}
