/* How many random cases a test runs, by RINGATTN_SWEEP, and where they begin. */
#ifndef TESTS_SUPPORT_SCALE_H
#define TESTS_SUPPORT_SCALE_H

#include <stdlib.h>

/* A positive number of the environment's. */
static inline int number_from(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* All, or in proportion where RINGATTN_SWEEP asks for fewer (sanitizers) or more; 240 is all of them. At least one. */
static inline unsigned scaled_count(unsigned full) {
    const char *sweep = getenv("RINGATTN_SWEEP");
    long wanted = sweep ? strtol(sweep, NULL, 10) : 240;
    return wanted > 0 ? (unsigned)((full * (unsigned long)wanted + 239) / 240) : 1;
}

#endif
