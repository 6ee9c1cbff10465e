/* A small JSON writer. Commas, quotes and indentation are its business; text is escaped, and numbers that JSON has no
 * word for (nan, inf) become null. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdint.h>
#include <stdio.h>

enum { JSON_DEPTH_MAX = 15 };

typedef struct json_writer {
    FILE *file;
    int depth;
    int filled[JSON_DEPTH_MAX + 1]; /* whether the object or array at that depth has an entry */
} json_writer;

json_writer json_begin(FILE *file);

/* key: NULL inside an array and at the top. close: '}' or ']', as opened. */
void json_open(json_writer *json, const char *key, char open);
void json_close(json_writer *json, char close);
void json_text(json_writer *json, const char *key, const char *text); /* NULL: null */
void json_int(json_writer *json, const char *key, int64_t value);
void json_real(json_writer *json, const char *key, double value);
void json_bool(json_writer *json, const char *key, int value);

#endif
