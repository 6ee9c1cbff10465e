/* Random problems: every feature together, from a seed. */
#ifndef TESTS_SUPPORT_CASE_H
#define TESTS_SUPPORT_CASE_H

#include <ringattn/ringattn.h>

enum { CASE_MAX_DOCUMENTS = 64, CASE_MAX_BRANCHES = 4 };

typedef struct test_case {
    uint64_t seed;
    ra_problem problem; /* its arrays are in this structure: do not copy it */
    ra_options options;
    int64_t cu_q[CASE_MAX_DOCUMENTS + 1], cu_k[CASE_MAX_DOCUMENTS + 1];
    ra_branch branches[CASE_MAX_BRANCHES];
    int strides;            /* how the tensors lie in memory: 0 C-order; 1 heads before rows; 2 padded, dim not last */
    double size_qk, size_v; /* of the elements of q and k, and of v and dout; 0 is 1 */
    int positive;           /* nonzero: no element is negative */
} test_case;

/* work bounds batch * heads * Sq * Sk * (D + Dv), so that a sweep ends. */
void case_make(test_case *c, uint64_t seed, ra_dtype dtype, double work);

/* One whose rows go through all stages of kernels that copy whole tiles, and lie as those want them: hundreds of rows
 * in C-order, widths of whole chunks of 16 bytes. */
void case_make_long(test_case *c, uint64_t seed, ra_dtype dtype);

/* A small causal problem of doubles, both passes, on that backend: 203 rows shared out in zigzag, 2 heads of 8
 * elements, seed 5. */
void case_plain(test_case *c, ra_strategy strategy, const ra_backend *backend);

/* One line: what to type to see it again. */
const char *case_text(const test_case *c, char *text, size_t bytes);

#endif
