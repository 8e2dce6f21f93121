/* What an init does: modules, file systems, the clock, the end. */
#define _GNU_SOURCE
#include "agent.h"
#include <dirent.h>
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
#define BLOCK_COUNT_AT 1028
#define MAX_PIDS 4096
/* The smallest process takes 120 KB or more: memory holds so many, and is not what ends a fork bomb. */
#define PIDS_PER_MIB 2
/* A bundle of authorities has 220 KB; one that is far larger is none. */
#define MAX_BUNDLE (4u << 20)

/* Another program is process 1 here, and the end of the machine is its own. */
static int is_tenant;
static int has_root;

void system_say(const char *text) {
  int fd = open("/dev/console", O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return;
  dprintf(fd, "reve-agent: %s\n", text);
  close(fd);
}

int system_write(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t written = write(fd, text, strlen(text));
  close(fd);
  return written < 0 ? -1 : 0;
}

int64_t system_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void system_panic(const char *what) {
  char text[256];
  snprintf(text, sizeof text, "%s (%s)", what, strerror(errno));
  system_say(text);
  sync();
  if (is_tenant) _exit(1);
  reboot(RB_POWER_OFF);
  for (;;) pause();
}

void system_power_off(void) {
  exec_kill_all();
  if (is_tenant) _exit(0);
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

/* A list names files of the initramfs in the order of their needs. */
static void load_modules(const char *names) {
  FILE *list = fopen(names, "re");
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

int system_link_up(const char *name) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {0};
  if (fd < 0) return -1;
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  int failed = ioctl(fd, SIOCGIFFLAGS, &request);
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  if (failed == 0) failed = ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
  return failed;
}

/* The image is as small as its files; the disk is as large as the sandbox's owner says. */
static void grow_root(const char *path) {
  uint64_t bytes = 0;
  uint8_t has[4];
  int disk = open("/dev/vda", O_RDONLY | O_CLOEXEC), root = open(path, O_RDONLY | O_CLOEXEC);
  int known = disk >= 0 && root >= 0 && ioctl(disk, BLKGETSIZE64, &bytes) == 0;
  uint64_t blocks = bytes / BLOCK_BYTES;
  /* Most starts find it grown: to ask costs less than to be told so. */
  int is_grown = known && pread(disk, has, sizeof has, BLOCK_COUNT_AT) == sizeof has && get_u32(has) == blocks;
  if (!is_grown && (!known || ioctl(root, EXT4_IOC_RESIZE_FS, &blocks) != 0)) system_say("the disk's file system keeps its size");
  close(disk);
  close(root);
}

static char pids_of_one[16];

/* A fork bomb ends at a number that can still be killed, leaves room for other commands, and each has its share of the processors. */
static void open_groups(void) {
  long wanted = sysconf(_SC_PHYS_PAGES) / 256 * PIDS_PER_MIB;
  int most = wanted < MAX_PIDS ? (int)wanted : MAX_PIDS;
  char pids[16];
  snprintf(pids, sizeof pids, "%d", most);
  snprintf(pids_of_one, sizeof pids_of_one, "%d", most / 4 * 3);
  mkdir("/sys/fs/cgroup/reve", 0755);
  const char *controls[] = {"/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/reve/cgroup.subtree_control"};
  int limited = 0;
  for (size_t i = 0; i < 2; i++) limited += system_write(controls[i], "+pids") == 0;
  if (limited != 2 || system_write("/sys/fs/cgroup/reve/pids.max", pids) != 0) system_say("the number of processes is not limited");
  for (size_t i = 0; i < 2; i++)
    if (system_write(controls[i], "+cpu") != 0) system_say("commands have no share of the processors of their own");
}

void system_limit_group(const char *path) {
  char file[256];
  snprintf(file, sizeof file, "%s/pids.max", path);
  system_write(file, pids_of_one);
}

/* Everything that needs no disk: a machine that is saved now is spared it at each start. */
void system_boot(void) {
  mount_or_die("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
  open_standard_descriptors();
  mount_or_die("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_or_die("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  load_modules("/modules");
  /* The disk's driver is there, and is given the disk when the host says so: nothing of a disk is read before. */
  system_write("/sys/bus/virtio/drivers_autoprobe", "0");
  load_modules("/modules-of-the-disk");
  mount_or_die("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666");
  mount_or_die("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
  mount_or_die("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
  mount_or_die("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  open_groups();
  mkdir("/run/lock", 01777);
  symlink("/proc/self/fd", "/dev/fd");
  symlink("/proc/self/fd/0", "/dev/stdin");
  symlink("/proc/self/fd/1", "/dev/stdout");
  symlink("/proc/self/fd/2", "/dev/stderr");
  sethostname("reve", 4);
  system_link_up("lo");
}

/* The machine runs already, with its root, shares and network. */
void system_join(void) {
  is_tenant = has_root = 1;
  open_standard_descriptors();
  grow_root("/");
  open_groups();
}

int system_has_root(void) {
  return has_root;
}

/* To its driver, which refuses all that is no disk. */
static void find_disk(void) {
  system_write("/sys/bus/virtio/drivers_autoprobe", "1");
  DIR *devices = opendir("/sys/bus/virtio/devices");
  for (struct dirent *entry; devices != NULL && (entry = readdir(devices)) != NULL;)
    if (entry->d_name[0] != '.') system_write("/sys/bus/virtio/drivers/virtio_blk/bind", entry->d_name);
  if (devices != NULL) closedir(devices);
  for (int attempt = 0; access("/dev/vda", F_OK) != 0; attempt++) {
    if (attempt == 500) system_panic("there is no disk");
    usleep(10000);
  }
}

/* The host asks for this when the disk is there; a boot that only tries the machine never gets so far. */
void system_root(uint32_t channel) {
  find_disk();
  mount_or_die("/dev/vda", "/root", "ext4", MS_NOATIME, "noinit_itable");
  grow_root("/root");
  const char *moved[] = {"/dev", "/proc", "/sys", "/run"};
  for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
    char target[32];
    snprintf(target, sizeof target, "/root%s", moved[i]);
    mkdir(target, 0755);
    if (mount(moved[i], target, NULL, MS_MOVE, NULL) != 0) system_panic(moved[i]);
  }
  if (chdir("/root") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
    system_panic("cannot change to the disk's root");
  has_root = 1;
  network_resolver();
  channel_send(F_DONE, channel, NULL, 0);
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

#define AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"
#define OUR_AUTHORITY "/usr/local/share/ca-certificates/reve.crt"
/* Stands before ours in the bundle of all authorities: what follows it is of an earlier start. */
static const char marker[] = "\n# reve\n";

static int write_whole(const char *path, const uint8_t *first, size_t first_length, const uint8_t *second, size_t second_length) {
  char temporary[256];
  snprintf(temporary, sizeof temporary, "%s.reve-new", path);
  FILE *file = fopen(temporary, "we");
  if (file == NULL) return -1;
  int written = fwrite(first, 1, first_length, file) == first_length && fwrite(second, 1, second_length, file) == second_length;
  if (fclose(file) != 0) written = 0;
  return written && chmod(temporary, 0644) == 0 ? rename(temporary, path) : -1;
}

/* Into the bundle that programs read, and where the system's own tool makes that bundle from. */
void system_trust(uint32_t channel, const uint8_t *pem, size_t length) {
  const char *folders[] = {"/etc/ssl", "/etc/ssl/certs", "/usr/local/share", "/usr/local/share/ca-certificates"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) mkdir(folders[i], 0755);
  struct stat information;
  int fd = open(AUTHORITIES, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  size_t size = fd >= 0 && fstat(fd, &information) == 0 && S_ISREG(information.st_mode) ? (size_t)information.st_size : 0;
  uint8_t *bundle = size > 0 && size <= MAX_BUNDLE ? malloc(size) : NULL;
  size_t kept = 0;
  for (ssize_t got; bundle != NULL && kept < size && (got = read(fd, bundle + kept, size - kept)) > 0;) kept += (size_t)got;
  if (fd >= 0) close(fd);
  const uint8_t *old = kept == 0 ? NULL : memmem(bundle, kept, marker, sizeof marker - 1);
  if (old != NULL) kept = (size_t)(old - bundle);
  uint8_t *ours = malloc(sizeof marker - 1 + length);
  if (ours == NULL) system_panic("out of memory");
  memcpy(ours, marker, sizeof marker - 1);
  memcpy(ours + sizeof marker - 1, pem, length);
  int failed = write_whole(OUR_AUTHORITY, pem, length, NULL, 0) != 0 || write_whole(AUTHORITIES, bundle, kept, ours, sizeof marker - 1 + length) != 0;
  if (failed) channel_error(channel, "the authority of the network cannot be written", errno);
  else channel_send(F_DONE, channel, NULL, 0);
  free(bundle);
  free(ours);
}
