#include "report/json.h"

#include <inttypes.h>
#include <math.h>

static void put_string(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at; ++at) {
        if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else if (*at < ' ' || *at == 0x7f)
            fprintf(file, "\\u%04x", *at);
        else
            fputc(*at, file);
    }
    fputc('"', file);
}

/* The comma behind the entry before, a line of its own, the key. */
static void begin_entry(json_writer *json, const char *key) {
    if (json->filled[json->depth]) fputc(',', json->file);
    json->filled[json->depth] = 1;
    if (json->depth) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    if (!key) return;
    put_string(json->file, key);
    fputs(": ", json->file);
}

json_writer json_begin(FILE *file) {
    return (json_writer){.file = file};
}

void json_open(json_writer *json, const char *key, char open) {
    begin_entry(json, key);
    fputc(open, json->file);
    if (json->depth < JSON_DEPTH_MAX) ++json->depth;
    json->filled[json->depth] = 0;
}

void json_close(json_writer *json, char close) {
    int filled = json->filled[json->depth];
    if (json->depth) --json->depth;
    if (filled) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    fputc(close, json->file);
    if (!json->depth) fputc('\n', json->file);
}

void json_text(json_writer *json, const char *key, const char *text) {
    begin_entry(json, key);
    if (text)
        put_string(json->file, text);
    else
        fputs("null", json->file);
}

void json_int(json_writer *json, const char *key, int64_t value) {
    begin_entry(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void json_real(json_writer *json, const char *key, double value) {
    begin_entry(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.9g", value);
    else
        fputs("null", json->file);
}

void json_bool(json_writer *json, const char *key, int value) {
    begin_entry(json, key);
    fputs(value ? "true" : "false", json->file);
}
