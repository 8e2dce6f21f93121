/* Reads what the host wants to have run. */
#include "order.h"
#include "agent.h"
#include <stdlib.h>
#include <string.h>

/* The payload: u32 argc, argc strings, u32 envc, envc strings, one string (working directory), u16 columns and u16 rows of a
   terminal (0: none); a string is u32 length and bytes without NUL. Every length is checked against what is there. */
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

static uint16_t take_u16(struct reader *reader) {
  if (reader->end - reader->at < 2) {
    reader->bad = 1;
    return 0;
  }
  uint16_t value = get_u16(reader->at);
  reader->at += 2;
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

int order_read(struct order *order, const uint8_t *payload, size_t length, int is_file) {
  struct reader reader = {.at = payload, .end = payload + length};
  *order = (struct order){.is_file = is_file};
  order->argv = take_strings(&reader);
  order->env = reader.bad ? NULL : take_strings(&reader);
  order->cwd = reader.bad ? NULL : take_string(&reader);
  order->size.ws_col = take_u16(&reader);
  order->size.ws_row = take_u16(&reader);
  return !reader.bad && order->argv[0] != NULL;
}

void order_free(struct order *order) {
  free_strings(order->argv);
  free_strings(order->env);
  free(order->cwd);
}
