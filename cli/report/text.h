/* Numbers for people. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_BYTES = 16 };

/* "512", "2.0K", "1.5G": at most five characters for bytes (powers of 1024). */
const char *text_bytes(int64_t bytes, char buffer[TEXT_BYTES]);

/* Likewise for counts (powers of 1000). */
const char *text_count(int64_t count, char buffer[TEXT_BYTES]);

#endif
