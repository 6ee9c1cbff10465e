/* How many random cases a test runs: all, or a sixth where RINGATTN_SWEEP asks for a shorter run (sanitizers). */
#ifndef TESTS_SUPPORT_SCALE_H
#define TESTS_SUPPORT_SCALE_H

#include <stdlib.h>

static inline unsigned scaled_count(unsigned full) {
    return getenv("RINGATTN_SWEEP") ? (full + 5) / 6 : full;
}

#endif
