/* How many random cases a test runs: all, or in proportion where RINGATTN_SWEEP asks for fewer (sanitizers) or more;
 * 240 is all of them. At least one. */
#ifndef TESTS_SUPPORT_SCALE_H
#define TESTS_SUPPORT_SCALE_H

#include <stdlib.h>

static inline unsigned scaled_count(unsigned full) {
    const char *sweep = getenv("RINGATTN_SWEEP");
    long wanted = sweep ? strtol(sweep, NULL, 10) : 240;
    return wanted > 0 ? (unsigned)((full * (unsigned long)wanted + 239) / 240) : 1;
}

#endif
