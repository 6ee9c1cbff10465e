/* Where tests put files: TMPDIR, else /tmp. */
#ifndef TESTS_SUPPORT_TEMPORARY_H
#define TESTS_SUPPORT_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

/* The path of a template for mkstemp or mkdtemp. Returns 0 where it does not fit. */
static inline int temporary_template(const char *name, char *path_out, size_t capacity) {
    const char *folder = getenv("TMPDIR");
    int length = snprintf(path_out, capacity, "%s/%s-XXXXXX", folder && *folder ? folder : "/tmp", name);
    return length > 0 && (size_t)length < capacity;
}

#endif
