/* What is to be run, as the host sent it. */
#ifndef REVE_ORDER_H
#define REVE_ORDER_H

#include <stddef.h>
#include <stdint.h>
#include <termios.h>
#include <sys/ioctl.h>

struct order {
  char **argv, **env, *cwd;
  struct winsize size; /* of its terminal; no columns: it has none */
  int is_file;
};

/* Whether the payload makes sense; to be freed in either case. */
int order_read(struct order *order, const uint8_t *payload, size_t length, int is_file);
void order_free(struct order *order);

#endif
